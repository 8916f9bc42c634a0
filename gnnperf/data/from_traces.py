"""Kernel tables from traces: every piece of device work whose sizes and time a trace holds."""

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.data.tables import MODEL_OP, KernelTable, Names, make_table
from gnnperf.graph import DTYPES, ExecutionGraph, Job
from gnnperf.hardware import find_hardware
from gnnperf.ops import describe, family_names

SOURCE = "trace"
"""Value of `KernelTable.source` for rows taken from a profiler's trace."""


@dataclass(frozen=True)
class Built:
    """A table and what could not become a row of it."""

    table: KernelTable
    unknown: dict[str, int]
    """name of op or kernel -> rows left out because its family or sizes are not known"""
    unmeasured: int
    """rows left out because the trace holds no time for them"""


def table_of(job: Job, source: str = SOURCE, model: str = "") -> Built:
    """One row per measured and described piece of device work (CPU traces: per leaf op).

    The durations are those of the graphs: of the kernel itself on a GPU, of the whole op on a CPU.

    Args:
        job: Graphs with times.
        source: Where the rows come from.
        model: What was run; default: the trace's path.
    """
    parts = [_table_of_graph(graph, source, model) for graph in job.graphs]
    unknown: dict[str, int] = {}
    for part in parts:
        for name, count in part.unknown.items():
            unknown[name] = unknown.get(name, 0) + count
    table = KernelTable.join([part.table for part in parts])
    return Built(table, unknown, sum(part.unmeasured for part in parts))


def _table_of_graph(graph: ExecutionGraph, source: str, model: str) -> Built:
    described = describe(graph)
    duration = graph.nodes.duration_us[described.node]
    measured = np.isfinite(duration) & (duration > 0)
    rows = np.flatnonzero(described.batch.known & measured)
    batch, nodes = described.batch.take(rows), described.node[rows]
    meta = graph.meta
    raw = meta.device or meta.host_cpu or meta.device_type
    hardware = find_hardware(raw)
    families = np.array(family_names())[batch.family].tolist()
    versions = dict(meta.versions)
    table = make_table(
        duration[rows],
        batch.dims,
        peers={},
        device=raw if hardware is None else hardware.name,
        raw_device=raw,
        family=Names.of(families),
        label=Names.of(families),
        dtype=Names.of(np.array(DTYPES)[batch.dtype].tolist()),
        framework="pytorch",
        framework_version=versions.get("torch", ""),
        kernel_source=Names.of([graph.name_of(int(n)) for n in nodes]),
        source=source,
        launch_included=meta.device_type == "cpu",
        file=meta.source,
        row=nodes.astype(np.int64),
        split_group=model or meta.source,
        origin=MODEL_OP,
        model=model or meta.source,
    )
    missing = int((described.batch.known & ~measured).sum())
    return Built(table, described.unknown, missing)


def merged(table: KernelTable) -> KernelTable:
    """The table with equal ops (same family, dimensions, type and name) of a model as one row.

    Its time is their mean, so that the sum over a step is what it was.
    """
    names = (table.model, table.family, table.dtype, table.kernel_source)
    keys = np.column_stack([*(column.codes for column in names), table.dims])
    _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    count = np.bincount(place.reshape(-1))
    total = np.bincount(place.reshape(-1), table.duration_us)
    return replace(table.take(first), duration_us=total / count)
