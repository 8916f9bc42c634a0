"""Kernel tables from traces: every piece of device work whose sizes and time a trace holds."""

from dataclasses import dataclass

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


def table_of(job: Job) -> Built:
    """One row per measured and described piece of device work (CPU traces: per leaf op).

    The durations are the profiler's: of the kernel itself on a GPU, of the whole op on a CPU.
    """
    parts = [_table_of_graph(graph) for graph in job.graphs]
    unknown: dict[str, int] = {}
    for part in parts:
        for name, count in part.unknown.items():
            unknown[name] = unknown.get(name, 0) + count
    table = KernelTable.join([part.table for part in parts])
    return Built(table, unknown, sum(part.unmeasured for part in parts))


def _table_of_graph(graph: ExecutionGraph) -> Built:
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
        source=SOURCE,
        launch_included=meta.device_type == "cpu",
        file=meta.source,
        row=nodes.astype(np.int64),
        split_group=meta.source,
        origin=MODEL_OP,
        model=meta.source,
    )
    missing = int((described.batch.known & ~measured).sum())
    return Built(table, described.unknown, missing)
