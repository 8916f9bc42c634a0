"""Measured rows for training: balanced draws from kernel tables, split by device group."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnperf.data.splits import implementations, row_groups, trace_groups
from gnnperf.data.tables import MODEL_OP, KernelTable, Names, load_table
from gnnperf.errors import InputError
from gnnperf.features import (
    NO_VARIANT,
    Measurement,
    Rows,
    find_variant,
    make_rows,
    variant_name,
    with_frameworks,
)
from gnnperf.hardware import Hardware, find_hardware
from gnnperf.ops import crosses_link

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
SHORT_US, SHORT_ON_HOST_US = 20.0, 1.0
"""Rows timed with their launch count t / (t + SHORT_US): below it they show the host, not the op.
On the host itself the call is what is asked for, and only what a clock can tell counts less."""


@dataclass(frozen=True, eq=False)
class Samples:
    """[n] measured rows."""

    rows: Rows
    log_time: F32
    """[n] natural logarithm of the measured time in us"""
    weight: F32
    """[n]"""
    label: I64
    """[n] index into `labels`"""
    group: I64
    """[n] index into `groups`: what is left out together (`splits.row_groups`)"""
    trace: I64
    """[n] index into `traces`: the set of traces that a row is of"""
    held: NDArray[np.bool_]
    """[n] the source holds the row's shape group back for validation"""
    labels: tuple[str, ...]
    """family as reported, with its type: gemm bfloat16"""
    groups: tuple[str, ...]
    traces: tuple[str, ...]
    """`splits.trace_groups`; "" for what is no trace"""
    devices: tuple[Hardware, ...]
    variants: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.log_time)

    def take(self, rows: I64) -> "Samples":
        """The given rows."""
        kept = ("labels", "groups", "traces", "devices", "variants")
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        values: dict[str, Any] = {
            n: v if n in kept else v.take(rows) if isinstance(v, Rows) else v[rows]
            for n, v in parts.items()
        }
        return Samples(**values)

    def of_groups(self, names: Sequence[str], inside: bool = True) -> I64:
        """Indices of the rows whose group, trace or device is (or is not) among `names`."""
        groups = [i for i, name in enumerate(self.groups) if name in names]
        traces = [i for i, name in enumerate(self.traces) if name in names]
        devices = [i for i, device in enumerate(self.devices) if device.name in names]
        chosen = np.isin(self.group, groups) | np.isin(self.rows.device, devices)
        chosen |= np.isin(self.trace, traces)
        return np.flatnonzero(chosen == inside)


def short_us(device: Hardware) -> float:
    """Time at which a row that holds its launch counts half."""
    return SHORT_ON_HOST_US if device.kind == "cpu" else SHORT_US


def table_files(folder: str | Path) -> list[Path]:
    """The kernel tables of a folder (or one file).

    Raises:
        InputError: There is none.
    """
    place = Path(folder)
    files = sorted(place.glob("*.parquet")) if place.is_dir() else [place]
    if not files or not files[0].exists():
        raise InputError(
            "no kernel table (*.parquet)",
            path=folder,
            remedy="make them with `gnnperf dataset import`",
        )
    return files


def read_samples(
    folder: str | Path, rows_per_cell: int, seed: int, more: KernelTable | None = None
) -> Samples:
    """Draw at most `rows_per_cell` rows of each (device, reported family, type) from all tables.

    Args:
        folder: Of kernel tables, or one of them.
        rows_per_cell: As above.
        seed: Of the draw.
        more: Rows beside those of the tables, all of which are taken.

    Raises:
        InputError: No table, or no row of a device that the catalogue knows.
    """
    generator = np.random.default_rng(seed)
    drawn = [_draw(load_table(file), rows_per_cell, generator) for file in table_files(folder)]
    drawn += [] if more is None else [more]
    table = KernelTable.join([part for part in drawn if len(part)])
    if not len(table):
        raise InputError("no row of a known device", path=folder, remedy="`gnnperf hardware list`")
    return samples_of(table)


def labels_of(table: KernelTable) -> Names:
    """[n] the family as reported with its element type and, for attention, its phase."""
    queries, seen = table.dims[:, 3], table.dims[:, 4]
    phase = np.where((queries <= 16) & (seen > queries), " decode", " prefill")
    attention = table.label.mask("attention")
    names = {
        (a, b): f"{table.label.names[a]} {table.dtype.names[b]}"
        for a in range(len(table.label.names))
        for b in range(len(table.dtype.names))
    }
    keys = table.label.codes.astype(np.int64) * len(table.dtype.names) + table.dtype.codes
    distinct, codes = np.unique(
        keys * 3 + attention * np.where(phase == " decode", 1, 2), return_inverse=True
    )
    texts = []
    for key in distinct.tolist():
        pair, part = divmod(key, 3)
        name = names[divmod(pair, len(table.dtype.names))]
        texts.append(name + ("", " decode", " prefill")[part])
    return Names(codes.astype(np.int32).reshape(-1), tuple(texts))


def variants_of(table: KernelTable) -> Names:
    """[n] the implementation that ran, as `features.variant_name` names it."""
    texts: dict[tuple[int, int, int], str] = {}
    columns = (table.source, table.framework, implementations(table))
    keys = np.stack([c.codes for c in columns], axis=1)
    distinct, codes = np.unique(keys, axis=0, return_inverse=True)
    for a, b, c in distinct.tolist():
        parts = (columns[0].names[a], columns[1].names[b], columns[2].names[c])
        texts[a, b, c] = variant_name(*parts)
    names = Names(codes.astype(np.int32).reshape(-1), tuple(texts.values()))
    merged = {name: i for i, name in enumerate(dict.fromkeys(names.names))}
    translate = np.array([merged[n] for n in names.names], np.int32)
    return Names(translate[names.codes], tuple(merged))


def measurement_of(table: KernelTable, variants: Sequence[str]) -> Measurement:
    """How the rows were measured, in the codes of a list of variants."""
    found = variants_of(table)
    index = {name: find_variant(variants, name) for name in found.names}
    codes = found.lookup(index, NO_VARIANT).astype(np.int64)
    return Measurement(codes, table.launch_included, table.origin.mask(MODEL_OP))


def samples_of(table: KernelTable, variants: Sequence[str] | None = None) -> Samples:
    """All rows of a table whose devices the catalogue knows, as samples.

    Copies over a GPU's links are none: the links are not among the network's inputs.
    """
    devices = [find_hardware(name) for name in table.device.names]
    known = np.array([d is not None for d in devices])[table.device.codes]
    gpu = np.array([d is not None and d.kind == "gpu" for d in devices])[table.device.codes]
    batch = table.batch()
    known &= batch.known & ~(gpu & crosses_link(batch))
    table = table.take(known & (table.duration_us > 0))
    present = [d for d in devices if d is not None]
    place = np.cumsum([d is not None for d in devices]) - 1
    device = place[table.device.codes].astype(np.int64)
    names = tuple(variants) if variants is not None else with_frameworks(variants_of(table).names)
    labels = labels_of(table)
    groups, traces = row_groups(table), trace_groups(table)
    duration = table.duration_us
    short = np.array([short_us(d) for d in present])[device]
    weight = np.where(table.launch_included, duration / (duration + short), 1.0)
    return Samples(
        rows=make_rows(table.batch(), present, device, measurement_of(table, names)),
        log_time=np.log(duration).astype(np.float32),
        weight=weight.astype(np.float32),
        label=labels.codes.astype(np.int64),
        group=groups.codes.astype(np.int64),
        trace=traces.codes.astype(np.int64),
        held=table.split.mask("dev_val"),
        labels=labels.names,
        groups=groups.names,
        traces=traces.names,
        devices=tuple(present),
        variants=names,
    )


def _draw(table: KernelTable, rows_per_cell: int, generator: np.random.Generator) -> KernelTable:
    """A balanced draw; the P4's slow training session of linear layers is left out."""
    odd = table.source.mask("neusight") & table.device.mask("p4") & table.label.mask("linear")
    keep = np.flatnonzero(~(odd & table.split.mask("train")))
    keep = generator.permutation(keep)
    labels = labels_of(table)
    cells = table.device.codes[keep].astype(np.int64) * len(labels.names) + labels.codes[keep]
    order = np.argsort(cells, kind="stable")
    starts = np.searchsorted(cells[order], cells[order], side="left")
    rank = np.arange(len(order)) - starts
    return table.take(np.sort(keep[order[rank < rows_per_cell]]))
