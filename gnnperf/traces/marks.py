"""Finds what delimits the steps of a trace."""

import re

import numpy as np

from gnnperf.graph import NodeKind
from gnnperf.graph.model import F64, I64
from gnnperf.traces.table import StepMarks, TraceTable

_PROFILER_STEP = re.compile(r"ProfilerStep\s*#?\s*(\d+)?")
_OPTIMIZER = re.compile(r"Optimizer\.step")
_ANNOTATION = re.compile(
    r"^(execute|iteration|iter|train_?step|training_?step|step|## ?step)", re.I
)


def is_step_mark(name: str) -> bool:
    """Whether an annotation is a step itself, and no op."""
    return name.startswith("ProfilerStep")


def find_marks(table: TraceTable) -> list[StepMarks]:
    """Candidates to delimit steps, best first; the last is always the whole trace."""
    host = np.flatnonzero((table.kind == NodeKind.HOST_OP) & np.isfinite(table.start_us))
    names = table.names
    used = np.unique(table.name[host])
    found: list[StepMarks] = []
    steps = _rows(table, host, [i for i in used if is_step_mark(names[i])])
    if len(steps):
        found.append(_windows("profiler_step", table, steps, names))
    marked = _rows(table, host, [i for i in used if _ANNOTATION.match(names[i])])
    if len(marked):
        found.append(_windows("annotation", table, marked, names))
    optimizers = [i for i in used if _OPTIMIZER.match(names[i])]
    if optimizers:
        counts = [int((table.name[host] == i).sum()) for i in optimizers]
        rows = _rows(table, host, [optimizers[int(np.argmax(counts))]])
        if len(rows) > 1:
            found.append(_start_to_start(table, rows))
    return [*found, _whole(table)]


def _rows(table: TraceTable, host: I64, names: list[int]) -> I64:
    rows = host[np.isin(table.name[host], names)]
    return rows[np.argsort(table.start_us[rows], kind="stable")]


def _windows(delimiter: str, table: TraceTable, rows: I64, names: list[str]) -> StepMarks:
    """Each annotation from its start to the next one's start (the last: to its own end).

    One whose end is not known ends no other.
    """
    starts = table.start_us[rows]
    ends = starts + np.nan_to_num(table.duration_us[rows])
    outer = np.ones(len(rows), np.bool_)
    outer[1:] = starts[1:] >= np.maximum.accumulate(ends)[:-1] - 1.0
    rows, starts, ends = rows[outer], starts[outer], ends[outer]
    labels = tuple(names[i] for i in table.name[rows])
    return StepMarks(delimiter, labels, starts, np.append(starts[1:], ends[-1:]))


def _start_to_start(table: TraceTable, rows: I64) -> StepMarks:
    starts: F64 = table.start_us[rows]
    labels = tuple(f"optimizer step {i}" for i in range(len(rows) - 1))
    return StepMarks("optimizer", labels, starts[:-1], starts[1:])


def _whole(table: TraceTable) -> StepMarks:
    known = np.isfinite(table.start_us)
    ends = (table.start_us + table.duration_us)[known]
    end = float(ends.max()) if len(ends) else 0.0
    return StepMarks("whole", ("whole",), np.array([-np.inf]), np.array([max(end, 0.0)]))
