"""PyTorch execution traces (ET): JSON of the schemas 1.0.0 (flat) to 1.1.1 (attrs), and ET+."""

import re
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from gnnperf.errors import InputError
from gnnperf.graph import GraphMeta, LaneKind, Lanes, NodeKind
from gnnperf.graph.model import I32, I64, NONE
from gnnperf.traces.columns import LATEST_US, numbers, product
from gnnperf.traces.decode import Args
from gnnperf.traces.marks import find_marks, is_step_mark
from gnnperf.traces.signatures import SignatureBuilder, execution_trace_row
from gnnperf.traces.source import Source
from gnnperf.traces.table import CollectiveTable, Interner, TraceTable, empty_table

_ROOT = re.compile(r"^\[pytorch\|profiler\|execution_(graph|trace)\|")
_WRITTEN = re.compile(r"\(\w+!\)")
_NOTHING = Raw(b"")
_USER_SCOPE = 7
"""`scope` of a node that is an annotation of the user (at::RecordScope::USER_SCOPE)"""


class Attribute(Struct, gc=False):
    """One entry of `attrs`."""

    name: str
    value: Raw = _NOTHING


class Node(Struct, gc=False):
    """A node of either layout; ET+ adds nodes with `cat` for device work, and times to all."""

    id: int
    name: str = ""
    parent: int = 0
    ctrl_deps: int | None = None
    rf_id: int = NONE
    tid: int = 0
    op_schema: str = ""
    scope: int = 0
    inputs: Raw = _NOTHING
    input_shapes: Raw = _NOTHING
    input_types: Raw = _NOTHING
    outputs: Raw = _NOTHING
    output_shapes: Raw = _NOTHING
    output_types: Raw = _NOTHING
    attrs: list[Attribute] = []
    ts: float | None = None
    dur: float | None = None
    cat: str | None = None
    pid: int = 0
    args: Args | None = None


class Document(Struct, gc=False):
    """A file."""

    nodes: list[Node]
    schema: str = ""
    pid: int = 0


def sniff(source: Source) -> bool:
    """Whether a file is an execution trace: it has `schema` and `nodes`, and no events."""
    return (
        source.data[:4096].lstrip()[:1] == b"{"
        and b'"schema"' in source.data[:4096]
        and b'"nodes"' in source.data
    )


def read(source: Source) -> TraceTable:
    """The nodes of one file, in the order in which they started.

    Raises:
        InputError: Broken JSON, a node of another layout, or no node at all.
    """
    document = _decode(source)
    try:
        return _table(source, document)
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError) as why:
        raise InputError(
            f"a node is not as an execution trace has it ({type(why).__name__}: {why})",
            path=source.name,
            field="nodes",
            remedy="record it again",
        ) from why


def _table(source: Source, document: Document) -> TraceTable:
    nodes = sorted((n for n in document.nodes if not _ROOT.match(n.name)), key=lambda node: node.id)
    if not nodes:
        raise InputError("no op among its nodes", path=source.name, field="nodes")
    for node in nodes:
        _flatten(node)
    strings = Interner()
    lanes, lane = _lanes(nodes, strings)
    table = empty_table(len(nodes), strings, lanes, _meta(source, document, nodes))
    table.name = strings.codes([n.name for n in nodes])
    table.lane = lane
    table.external_id = numbers([n.rf_id for n in nodes])
    table.annotation = np.array([n.scope == _USER_SCOPE for n in nodes], np.bool_)
    _device_columns(table, nodes)
    _arguments(table, nodes)
    _relations(table, nodes)
    _times(table, nodes)
    table.collectives = _collectives(table, nodes)
    table.marks = find_marks(table)
    mark = np.array([is_step_mark(n) for n in table.names])[table.name]
    return _without_marks(table, mark)


def _decode(source: Source) -> Document:
    try:
        return msgspec.json.decode(source.data, type=Document)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as why:
        raise InputError(
            f"broken execution trace: {why}", path=source.name, remedy="record it again"
        ) from why


def _flatten(node: Node) -> None:
    """Bring a node with `attrs` and dictionaries to the flat layout."""
    if node.ctrl_deps is not None:
        node.parent = node.ctrl_deps
    for attribute in node.attrs:
        if attribute.name in ("rf_id", "tid", "op_schema", "scope"):
            setattr(node, attribute.name, msgspec.json.decode(attribute.value))


def _lists(node: Node, side: str) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Values, shapes, types and strides of the `input` or the `output` side."""
    raw = bytes(getattr(node, side + "s"))
    if raw[:1] == b"{":
        table = msgspec.json.decode(raw)
        values, shapes, types = (table.get(k, []) for k in ("values", "shapes", "types"))
        return values, shapes, types, table.get("strides", [])
    parts = [raw, *(bytes(getattr(node, f"{side}_{k}")) for k in ("shapes", "types"))]
    values, shapes, types = (msgspec.json.decode(p) if p else [] for p in parts)
    return values, shapes, types, []


def _lanes(nodes: list[Node], strings: Interner) -> tuple[Lanes, I32]:
    keys: dict[tuple[int, int, int], int] = {}
    lane = []
    for node in nodes:
        key = (LaneKind.THREAD, NONE, node.tid)
        if node.cat is not None:
            key = (LaneKind.STREAM, node.pid, node.tid)
        lane.append(keys.setdefault(key, len(keys)))
    rows = list(keys)
    words = {LaneKind.THREAD: "thread", LaneKind.STREAM: "stream"}
    lanes = Lanes(
        np.array([k for k, _, _ in rows], np.uint8),
        np.array([d for _, d, _ in rows], np.int32),
        np.array([t for _, _, t in rows], np.int64),
        np.array([strings[f"{words[LaneKind(k)]} {t}"] for k, _, t in rows], np.int32),
    )
    return lanes, np.array(lane, np.int32)


def _device_columns(table: TraceTable, nodes: list[Node]) -> None:
    kinds = {"kernel": NodeKind.KERNEL, "gpu_memcpy": NodeKind.COPY, "gpu_memset": NodeKind.COPY}
    table.kind = np.array(
        [NodeKind.HOST_OP if n.cat is None else kinds.get(n.cat, NodeKind.KERNEL) for n in nodes],
        np.uint8,
    )
    rows = np.flatnonzero(table.kind != NodeKind.HOST_OP)
    args = [nodes[i].args or Args() for i in rows]
    table.correlation[rows] = numbers([a.correlation for a in args])
    table.bytes[rows] = numbers([a.bytes for a in args])
    table.grid_blocks[rows] = [product(bytes(a.grid)) for a in args]
    table.block_threads[rows] = [product(bytes(a.block)) for a in args]
    table.registers[rows] = numbers([a.registers for a in args])
    table.shared_memory[rows] = numbers([a.shared_memory for a in args])


def _arguments(table: TraceTable, nodes: list[Node]) -> None:
    """Rows 2i and 2i + 1 of the signatures are the inputs and the outputs of node i."""
    builder = SignatureBuilder(table.strings, uses_device=table.meta.device_type == "cuda")
    for node in nodes:
        entering = _lists(node, "input")
        execution_trace_row(builder, *entering)
        builder.end_row()
        leaving = _lists(node, "output")
        execution_trace_row(builder, *leaving)
        _written(builder, node.op_schema, entering, leaving)
        builder.end_row()
    table.signatures = builder.build()
    host = table.kind == NodeKind.HOST_OP
    rows = np.arange(len(nodes), dtype=np.int32)
    table.signature = np.where(host, 2 * rows, NONE).astype(np.int32)
    table.output_signature = np.where(host, 2 * rows + 1, NONE).astype(np.int32)


def _written(
    builder: SignatureBuilder,
    schema: str,
    entering: tuple[list[Any], list[Any], list[Any], list[Any]],
    leaving: tuple[list[Any], list[Any], list[Any], list[Any]],
) -> None:
    """Tensors that an op changes in place are outputs too, even where it returns none."""
    if "!" not in schema or leaving[2]:
        return
    arguments = re.split(r",\s*(?![^\[(]*[\])])", schema[schema.index("(") + 1 :])
    positional = [a for a in arguments if a.strip() != "*"]
    chosen = [i for i, a in enumerate(positional) if _WRITTEN.search(a.split("->")[0])]
    columns = [[side[i] for i in chosen if i < len(side)] for side in entering]
    execution_trace_row(builder, columns[0], columns[1], columns[2], columns[3])


def _relations(table: TraceTable, nodes: list[Node]) -> None:
    row = {node.id: i for i, node in enumerate(nodes)}
    above: I32 = np.array([row.get(n.parent, NONE) for n in nodes], np.int32)
    above[above >= np.arange(len(nodes))] = NONE  # nothing encloses what began before it
    host = table.kind == NodeKind.HOST_OP
    same = table.lane == table.lane[above]
    table.parent = np.where(host & same, above, NONE).astype(np.int32)
    table.op = np.where(host, NONE, above).astype(np.int32)


def _times(table: TraceTable, nodes: list[Node]) -> None:
    """Times where the file has them; else the order, an op as long as what it encloses."""
    if all(n.ts is not None for n in nodes):
        table.start_us = np.array([n.ts for n in nodes], np.float64)
        table.duration_us = np.array([n.dur or 0.0 for n in nodes], np.float64)
        table.origin_us = table.clock_us = float(table.start_us.min())
        table.start_us -= table.origin_us
        if (table.duration_us < 0).any() or not (np.abs(table.start_us) < LATEST_US).all():
            raise ValueError("a negative duration, or a time past 285 years")
        return
    last = np.arange(len(nodes))
    parent = table.parent.tolist()
    for i in range(len(nodes) - 1, -1, -1):
        if parent[i] >= 0:
            last[parent[i]] = max(last[parent[i]], last[i])
    table.timed = False
    table.start_us = np.arange(len(nodes), dtype=np.float64)
    table.duration_us = last - table.start_us + 0.5


def _without_marks(table: TraceTable, mark: Any) -> TraceTable:  # noqa: ANN401
    """Drop the annotations that are steps; what they enclose is at top level."""
    new: I64 = np.append(np.where(mark, NONE, np.cumsum(~mark) - 1), NONE)
    kept = table.keep(~mark)
    kept.parent = new[kept.parent].astype(np.int32)
    kept.op = new[kept.op].astype(np.int32)
    return kept


def _collectives(table: TraceTable, nodes: list[Node]) -> CollectiveTable:
    """What `record_param_comms` says, whose arguments are values without names."""
    rows, kinds, groups, sequences, sizes = [], [], [], [], []
    for index, node in enumerate(nodes):
        if node.name != "record_param_comms":
            continue
        values, _, types, _ = _lists(node, "input")
        name = next((i for i, t in enumerate(types) if t == "String"), None)
        if name is None or str(values[name]) == "wait":
            continue
        group = next(
            (v for v, t in zip(values, types, strict=False) if t.startswith("Tuple")), None
        )
        rows.append(index)
        kinds.append(table.strings[str(values[name])])
        groups.append(table.strings[str(group[0])] if group else NONE)
        sequence = next((v for v, t in zip(values, types, strict=False) if t == "Int"), NONE)
        sequences.append(sequence if group else NONE)
        sizes.append(values[-1] if group and types[-1] == "Int" else NONE)
    unknown = np.full(len(rows), NONE, np.int64)
    return CollectiveTable(
        np.array(rows, np.int64),
        np.array(kinds, np.int32),
        np.array(groups, np.int32),
        np.array(sequences, np.int64),
        unknown,
        unknown,
        np.array(sizes, np.int32),
        unknown.astype(np.int32),
    )


def _rank(nodes: list[Node]) -> int:
    """The rank that `record_param_comms` states before the name of the collective; else NONE."""
    for node in nodes:
        if node.name == "record_param_comms":
            values, _, types, _ = _lists(node, "input")
            name = types.index("String") if "String" in types else 0
            if name and types[name - 1] == "Int":
                return int(values[name - 1])
    return NONE


def _meta(source: Source, document: Document, nodes: list[Node]) -> GraphMeta:
    on_device = any(b'"cuda:' in bytes(n.inputs) or n.cat is not None for n in nodes)
    rank = _rank(nodes)
    return GraphMeta(
        source=source.label,
        sha256=source.sha256,
        format="pytorch-et",
        schema=document.schema,
        device_type="cuda" if on_device else "cpu",
        rank=max(rank, 0),
        notes=(("rank_recorded", str(rank != NONE).lower()),),
    )
