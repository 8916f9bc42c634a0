"""Kineto and other Chrome traces: JSON object or bare list, old and new names, CUDA and HIP."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnperf.errors import InputError
from gnnperf.graph import GraphMeta, LaneKind, Lanes, NodeKind, dtype_bytes, dtype_index
from gnnperf.graph.model import F64, I32, NONE
from gnnperf.traces.collectives import whole_bytes
from gnnperf.traces.columns import Collector, numbers, product
from gnnperf.traces.decode import Decoded, Header, pieces
from gnnperf.traces.marks import find_marks, is_step_mark
from gnnperf.traces.signatures import SignatureBuilder, kineto_row
from gnnperf.traces.source import Source
from gnnperf.traces.table import CollectiveTable, Signatures, TraceTable, full

_MOST = np.iinfo(np.int32).max
_UNSIGNED_NONE = 0xFFFFFFFF
"""What an unsigned field holds where there is no event or stream."""
UNTIMED = "events without a usable time"
REPAIRED = "values that are no JSON, blanked"
DROPPED = "messages of dropped events"
_USELESS = ("GetDevice", "GetLastError", "PeekAtLastError", "DeviceGetAttribute")


def sniff(source: Source) -> bool:
    """Whether a file is a Chrome trace: its events, or a bare list of them."""
    head = source.data[:4096].lstrip()
    if head[:1] == b"[":
        return b'"ph"' in head
    return head[:1] == b"{" and b'"traceEvents"' in source.data


def read(source: Source) -> TraceTable:
    """The events of one file.

    Raises:
        InputError: Broken JSON, or no event that gnnperf can use.
    """
    decoded, collector = Decoded(), Collector()
    for events in pieces(source.data, source.name, decoded):
        collector.take(events)
    host, runtime, device = (collector.rows[r] for r in ("host", "runtime", "device"))
    sizes = [len(rows.get("name")) for rows in (host, runtime, device)]
    if sum(sizes) == 0:
        raise InputError(
            f"no op, runtime call or kernel among its events ({dict(collector.left_out)})",
            path=source.name,
            remedy="record with torch.profiler",
        )
    starts = np.concatenate([r.get("start_us", np.float64) for r in (host, runtime, device)])
    origin = float(np.nanmin(starts)) if np.isfinite(starts).any() else 0.0
    table = _table(collector, starts - origin, sizes, _meta(source, decoded, collector))
    table.clock_us = abs(origin)
    table.origin_us = origin + _base_us(decoded.header)
    table.module_start_us = table.module_start_us - origin
    table.marks = find_marks(table)
    kept = _drop(table, decoded)
    if not len(kept):
        raise InputError(
            f"none of its {len(table)} events is timed work",
            path=source.name,
            field="ts, dur",
            remedy="record it again",
        )
    return kept


def _table(collector: Collector, starts: F64, sizes: list[int], meta: GraphMeta) -> TraceTable:
    host, runtime, device = (collector.rows[r] for r in ("host", "runtime", "device"))
    h, r, d = sizes
    n = h + r + d
    joined = [np.full(h, NodeKind.HOST_OP), np.full(r, NodeKind.RUNTIME), device.get("kind")]
    grids = np.array([product(g) for g in collector.grids] or [NONE], np.int64)
    blocks = grids[device.get("block")]
    device_only = slice(h + r, n)
    module = collector.rows["module"]
    table = TraceTable(
        strings=collector.strings,
        kind=np.concatenate(joined).astype(np.uint8),
        name=_three(collector, "name").astype(np.int32),
        lane=_three(collector, "lane").astype(np.int32),
        start_us=starts,
        duration_us=_three(collector, "duration_us").astype(np.float64),
        correlation=np.concatenate(
            [full(h), runtime.get("correlation"), device.get("correlation")]
        ),
        external_id=_placed(n, slice(0, h), host.get("external_id")),
        signature=_placed(n, slice(0, h), host.get("signature")).astype(np.int32),
        bytes=np.concatenate([full(h), runtime.get("bytes"), device.get("bytes")]),
        grid_blocks=_placed(n, device_only, grids[device.get("grid")]),
        block_threads=_placed(n, device_only, np.where(blocks > _MOST, NONE, blocks)).astype(
            np.int32
        ),
        registers=_placed(n, device_only, device.get("registers")).astype(np.int32),
        shared_memory=_placed(n, device_only, device.get("shared_memory")).astype(np.int32),
        event=_placed(n, slice(h, h + r), runtime.get("event")),
        stream=_placed(n, slice(h, h + r), runtime.get("stream")),
        backward=_placed(n, slice(0, h), host.get("forward_thread")) > 0,
        lanes=_lanes(collector),
        signatures=_signatures(collector),
        collectives=_collectives(collector, h + r),
        marks=[],
        module_lane=module.get("lane", np.int32),
        module_name=module.get("name", np.int32),
        module_start_us=module.get("start_us", np.float64),
        module_duration_us=module.get("duration_us", np.float64),
        meta=meta,
        record_function=_placed(n, slice(0, h), host.get("record_function")),
        annotation=_placed(n, slice(0, h), host.get("annotation")) == 1,
        forward_thread=_placed(n, slice(0, h), host.get("forward_thread")),
        autograd=_placed(n, slice(0, h), host.get("autograd")),
        taken=dict(collector.taken),
        left_out={k: v for k, v in collector.left_out.items() if v},
    )
    _fill_from_sync(table, collector)
    return table


def _three(collector: Collector, column: str) -> NDArray[Any]:
    return np.concatenate(
        [collector.rows[role].get(column) for role in ("host", "runtime", "device")]
    )


def _placed(n: int, rows: slice, values: NDArray[Any]) -> NDArray[np.int64]:
    column = full(n)
    column[rows] = values
    return column


def _lanes(collector: Collector) -> Lanes:
    keys = list(collector.lanes)
    strings = collector.strings
    return Lanes(
        kind=np.array([k for k, _, _ in keys], np.uint8),
        device=numbers(
            [_digits(p) if k == LaneKind.STREAM else NONE for k, p, _ in keys], np.int32
        ),
        number=np.array([_digits(t) for _, _, t in keys], np.int64),
        label=np.array(
            [
                strings[f"stream {_digits(t)}" if k == LaneKind.STREAM else f"thread {t}"]
                for k, _, t in keys
            ],
            np.int32,
        ),
    )


def _digits(value: object) -> int:
    """The number in `7`, `"stream 7 "` or `"0x0"`; NONE if there is none."""
    words = str(value).split()
    last = value if isinstance(value, (int, float)) or not words else words[-1]
    return int(numbers([last])[0])


def _signatures(collector: Collector) -> Signatures:
    builder = SignatureBuilder(collector.strings)
    for raw in collector.signatures:
        kineto_row(builder, raw)
    return builder.build()


def _collectives(collector: Collector, device_base: int) -> CollectiveTable:
    rows = collector.collectives
    if not rows.parts:
        return CollectiveTable.none()
    names = list(collector.strings)
    width = np.array([dtype_bytes(dtype_index(name)) for name in names])[rows.get("dtype")]
    known = [rows.get("input_elements"), rows.get("output_elements")]
    moved = [whole_bytes(e * width, (e >= 0) & (width > 0)) for e in known]
    empty = collector.strings[""]
    texts = {k: _without(rows.get(k), empty) for k in ("kind", "group", "ranks")}
    return CollectiveTable(
        event=rows.get("row") + np.where(rows.get("on_device"), device_base, 0),
        kind=texts["kind"],
        group=texts["group"],
        sequence=rows.get("sequence"),
        input_bytes=moved[0],
        output_bytes=moved[1],
        group_size=rows.get("group_size").astype(np.int32),
        ranks=texts["ranks"],
    )


def _without(codes: I32, empty: int) -> I32:
    return np.where(codes == empty, NONE, codes).astype(np.int32)


def _fill_from_sync(table: TraceTable, collector: Collector) -> None:
    """Events and streams that the device's own record of a synchronization names.

    It tells of the waiting call its event and stream, and of the call that recorded the event
    (by its correlation id) the same event and the stream that it was recorded on.
    """
    sync = collector.rows["sync"]
    calls = np.flatnonzero(table.kind == NodeKind.RUNTIME)
    if not len(sync.get("correlation")) or not len(calls):
        return
    calls = calls[np.argsort(table.correlation[calls], kind="stable")]
    for id_column, stream_column in (("correlation", "stream"), ("record", "record_stream")):
        ids = sync.get(id_column)
        place = np.searchsorted(table.correlation[calls], ids)
        found = calls[np.minimum(place, len(calls) - 1)]
        usable = (table.correlation[found] == ids) & (ids > 0)
        for name, values in (("event", sync.get("event")), ("stream", sync.get(stream_column))):
            keep = usable & (values >= 0) & (values < _UNSIGNED_NONE)
            getattr(table, name)[found[keep]] = values[keep]


def _drop(table: TraceTable, decoded: Decoded) -> TraceTable:
    """Without marks of steps and calls that tell nothing."""
    names = list(table.strings)
    useless = np.array([n.endswith(_USELESS) for n in names])
    mark = np.array([is_step_mark(n) for n in names])
    out = (useless[table.name] & (table.kind == NodeKind.RUNTIME)) | (
        mark[table.name] & (table.kind == NodeKind.HOST_OP)
    )
    timeless = ~(np.isfinite(table.start_us) & np.isfinite(table.duration_us))
    dropped = sum("drop" in str(line).lower() for line in decoded.header.complaints)
    found = {
        UNTIMED: int(timeless.sum()),
        REPAIRED: decoded.repairs,
        DROPPED: dropped,
    }
    table.counts.update({name: count for name, count in found.items() if count})
    return table.keep(~(out | timeless))


def _meta(source: Source, decoded: Decoded, collector: Collector) -> GraphMeta:
    header = decoded.header
    distributed = header.distributedInfo or {}
    devices = header.deviceProperties or []
    used = sorted({_digits(p) for k, p, _ in collector.lanes if k == LaneKind.STREAM})
    chosen = next((d for d in devices if used and d.get("id") == used[0]), None)
    chosen = chosen or (devices[0] if devices else {})
    return GraphMeta(
        source=source.label,
        sha256=source.sha256,
        format="kineto",
        schema=str(header.schemaVersion if header.schemaVersion is not None else ""),
        device=str(chosen.get("name", "")),
        device_type="cuda" if used else "cpu",
        rank=_whole(distributed.get("rank"), 0),
        world_size=_whole(distributed.get("world_size"), 1),
        versions=_versions(header, distributed),
        notes=(("rank_recorded", str("rank" in distributed).lower()),),
    )


def _base_us(header: Header) -> float:
    """What the times of a file count from, since the epoch; 0 where they count from there."""
    base = header.baseTimeNanoseconds
    return float(base) / 1e3 if isinstance(base, (int, float)) else 0.0


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default


def _versions(header: Header, distributed: dict[str, object]) -> tuple[tuple[str, str], ...]:
    found = {
        "cuda_driver": header.cuda_driver_version,
        "cuda": header.cuda_runtime_version,
        "cupti": header.cupti_version,
        "hip_driver": header.hip_driver_version,
        "hip": header.hip_runtime_version,
        "roctracer": header.roctracer_version,
        "nccl": distributed.get("nccl_version"),
    }
    return tuple((name, str(value)) for name, value in found.items() if value is not None)
