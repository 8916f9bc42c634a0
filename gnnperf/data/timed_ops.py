"""Timed single ops into a kernel table: what each op was comes from a trace of one call of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnperf.data.tables import KERNEL_TABLE, KernelTable, Names, make_table
from gnnperf.graph import DTYPES, ExecutionGraph, dtype_index
from gnnperf.graph.model import I64
from gnnperf.ops import describe, family_names
from gnnperf.traces import read_trace


@dataclass(frozen=True)
class Origin:
    """Where the ops were timed."""

    device: str
    """name in the hardware catalogue"""
    raw_device: str
    threads: int
    torch_version: str
    file: str


def table_of_ops(
    trace: str | Path, mark: str, labels: Sequence[str], duration_us: Sequence[float], at: Origin
) -> tuple[KernelTable, int]:
    """The table, and how many cases were left out: other than one op, or an unknown one.

    Args:
        trace: A profiler trace in which case k lies inside an annotation `mark` + str(k).
        mark: As above.
        labels: Of each case.
        duration_us: Of each case, measured without a profiler.
        at: Where.
    """
    graph = read_trace(trace)
    described = describe(graph)
    batch = described.batch
    case = _enclosing_case(graph, described.node, mark)
    counts = np.bincount(case[case >= 0], minlength=len(labels))
    rows = np.flatnonzero((case >= 0) & batch.known & (counts[case] == 1))
    # The profiler names no element type for lists of tensors; the cases are float32.
    dtype = np.where(batch.dtype > 0, batch.dtype, dtype_index("float32"))[rows]
    case = case[rows]
    families = family_names()
    table = make_table(
        np.asarray(duration_us, np.float64)[case],
        batch.dims[rows],
        peers={},
        device=at.device,
        raw_device=at.raw_device,
        family=Names.of([families[f] for f in batch.family[rows]]),
        label=Names.of([labels[c] for c in case]),
        dtype=Names.of([DTYPES[d] for d in dtype]),
        layout=f"threads={at.threads}",
        framework="pytorch",
        framework_version=at.torch_version,
        kernel_source=Names.of([graph.name_of(int(n)) for n in described.node[rows]]),
        source="gnnperf",
        launch_included=True,
        file=at.file,
        row=case.astype(np.int64),
        split_group=Names.of([f"case {c}" for c in case]),
        origin=KERNEL_TABLE,
    )
    return table, len(labels) - len(case)


def _enclosing_case(graph: ExecutionGraph, nodes: I64, mark: str) -> I64:
    """[n] number of the annotation around each node, -1 for none."""
    marks = {i: int(s[len(mark) :]) for i, s in enumerate(graph.strings) if s.startswith(mark)}
    number = np.full(len(graph.strings) + 1, -1, np.int64)
    number[list(marks)] = list(marks.values())
    table = graph.nodes
    at = np.flatnonzero(number[table.name] >= 0)
    at = at[np.argsort(table.start_us[at])]
    start, end = table.start_us[at], table.start_us[at] + table.duration_us[at]
    position = np.searchsorted(start, table.start_us[nodes], side="right") - 1
    inside = (position >= 0) & (table.start_us[nodes] <= end[np.maximum(position, 0)])
    found: I64 = np.where(inside, number[table.name[at[np.maximum(position, 0)]]], -1)
    return found
