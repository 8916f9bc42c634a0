"""Kernel tables from traces: every piece of device work whose sizes and time a trace holds."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnperf.data.tables import MODEL_OP, TRACE, KernelTable, Names, make_table
from gnnperf.errors import InputError
from gnnperf.graph import DTYPES, ExecutionGraph, Job
from gnnperf.graph.model import NONE
from gnnperf.hardware import find_hardware
from gnnperf.ops import describe, family_index, family_names
from gnnperf.traces import read_job

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Built:
    """A table and what could not become a row of it."""

    table: KernelTable
    unknown: dict[str, int]
    """name of op or kernel -> rows left out because its family, sizes or type are not known"""
    unmeasured: int
    """rows left out because the trace holds no time for them"""
    collectives: int
    """rows left out because their time is mostly waiting for other ranks"""

    @staticmethod
    def join(parts: Sequence["Built"]) -> "Built":
        """All of them."""
        unknown: Counter[str] = Counter()
        for part in parts:
            unknown.update(part.unknown)
        return Built(
            KernelTable.join([part.table for part in parts]),
            dict(unknown),
            sum(part.unmeasured for part in parts),
            sum(part.collectives for part in parts),
        )


def table_of(job: Job, source: str = TRACE, model: str = "") -> Built:
    """One row per measured and described piece of device work (CPU traces: per leaf op).

    The description is the one that predictions start from; the durations are those of the
    graphs: of the kernel itself on a GPU, of the whole op on a CPU.

    Args:
        job: Graphs with times.
        source: Where the rows come from.
        model: What was run; default: the trace's path.
    """
    return Built.join([_table_of_graph(graph, source, model) for graph in job.graphs])


def _table_of_graph(graph: ExecutionGraph, source: str, model: str) -> Built:
    described = describe(graph)
    batch = described.batch
    duration = graph.nodes.duration_us[described.node]
    measured = np.isfinite(duration) & (duration > 0)
    collective = batch.family == family_index("collective")
    known = batch.known & (batch.dtype > 0) & ~collective
    rows = np.flatnonzero(known & measured)
    nodes = described.node[rows]
    meta = graph.meta
    raw = meta.device or meta.host_cpu or meta.device_type
    hardware = find_hardware(raw)
    families = np.array(family_names())[batch.family[rows]].tolist()
    table = make_table(
        duration[rows],
        batch.dims[rows],
        peers={},
        device=raw if hardware is None else hardware.name,
        raw_device=raw,
        family=Names.of(families),
        label=Names.of(families),
        dtype=Names.of(np.array(DTYPES)[batch.dtype[rows]].tolist()),
        framework="pytorch",
        framework_version=dict(meta.versions).get("torch", ""),
        kernel_source=Names.of([graph.name_of(int(n)) for n in nodes]),
        source=source,
        launch_included=meta.device_type == "cpu",
        file=meta.source,
        row=nodes.astype(np.int64),
        split_group=model or meta.source,
        origin=MODEL_OP,
        model=model or meta.source,
    )
    missing = ~(batch.known & (batch.dtype > 0)) & ~collective
    named = np.where(described.op != NONE, described.op, described.node)[missing]
    return Built(
        table,
        dict(Counter(graph.name_of(int(n)) for n in named)),
        int((known & ~measured).sum()),
        int(collective.sum()),
    )


def merged(table: KernelTable, reduce: Callable[[F64], Any] = np.mean) -> KernelTable:
    """The table with equal ops (same model, family, dimensions, type and name) as one row.

    Args:
        table: Rows.
        reduce: Times of equal ops to one. The mean, so that the sum over a step is what it was.
    """
    names = (table.device, table.model, table.family, table.dtype, table.kernel_source)
    keys = np.column_stack([*(column.codes for column in names), table.dims])
    _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    place = place.reshape(-1)
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place, minlength=len(first)))[:-1]
    times = (
        [reduce(part) for part in np.split(table.duration_us[order], ends)] if len(first) else []
    )
    return replace(table.take(first), duration_us=np.array(times, np.float64))


@dataclass(frozen=True)
class BuiltSets:
    """The table of several sets of traces, and what is not in it."""

    built: Built
    rows: dict[str, int]
    """set -> rows, equal ones counted once"""
    left_out: dict[str, str] = field(default_factory=dict)
    """set -> why nothing of it became a row"""


def trace_sets(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """Set by name: each folder given, or each folder in it; files given by themselves are one.

    Ranks of one job, and the execution trace beside a profiler's trace, lie in one folder.
    """
    sets: dict[str, list[Path]] = {}
    for path in paths:
        below = sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
        for place in below or ([path] if path.is_dir() else []):
            sets[place.name] = [place]
    files = [path for path in paths if not path.is_dir()]
    if files:
        sets[files[0].name] = files
    return sets


def table_of_sets(sets: dict[str, list[Path]]) -> BuiltSets:
    """Every described and timed piece of device work of several sets, equal ones their median.

    `model` and `split_group` name the set. A set that cannot be read, that holds no such row or
    whose device is named by nothing in it is left out, and told.

    Raises:
        InputError: The only set cannot be read.
    """
    parts: list[Built] = []
    rows: dict[str, int] = {}
    left_out: dict[str, str] = {}
    for name, paths in sets.items():
        try:
            job = read_job(paths)
        except InputError as why:
            if len(sets) == 1:
                raise
            left_out[name] = str(why)
            continue
        metas = [graph.meta for graph in job.graphs]
        if len(sets) > 1 and not any(meta.device or meta.host_cpu for meta in metas):
            left_out[name] = "names no device"
            continue
        part = table_of(job, model=name)
        part = replace(part, table=merged(part.table, np.median))
        parts.append(part)
        if len(part.table):
            rows[name] = len(part.table)
        else:
            left_out[name] = "no op has both sizes and a measured time"
    return BuiltSets(Built.join(parts), rows, left_out)
