"""Cuts a linked trace into steps and makes one execution graph of each."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gnnperf.graph import Edges, ExecutionGraph, GraphMeta, NodeKind, Nodes
from gnnperf.graph.model import F64, I64, NONE
from gnnperf.traces.collectives import graph_collectives
from gnnperf.traces.csr import select_arguments
from gnnperf.traces.dependencies import infer_edges
from gnnperf.traces.edges import data_edges, join_edges, no_edges, order_edges
from gnnperf.traces.table import StepMarks, TraceTable, full, no_tensors

COVERAGE = 0.5
"""Marks that hold a smaller share of the host's nodes do not delimit the steps."""


def build_graphs(table: TraceTable) -> list[ExecutionGraph]:
    """One graph per step of a linked trace, in the order of steps."""
    marks, step = choose_marks(table)
    depth_tie = np.where(table.parent >= 0, 1, 0)
    order = np.lexsort((depth_tie, table.start_us))
    cut = _StepTimes(table, marks, step)
    strings = tuple(table.strings)
    return [
        _graph(table, order[step[order] == i], strings, cut.meta(i))
        for i in range(len(marks.start_us))
        if (step == i).any()
    ]


def choose_marks(table: TraceTable) -> tuple[StepMarks, I64]:
    """The first marks that hold enough of the host's nodes, and the step of every event."""
    step = full(len(table))
    for marks in table.marks:
        step = _steps(table, marks)
        host = table.kind <= NodeKind.RUNTIME
        watched = host if host.any() else ~host
        if (step[watched] >= 0).mean() >= COVERAGE:
            return marks, step
    return table.marks[-1], step


def _steps(table: TraceTable, marks: StepMarks) -> I64:
    """Step of every event; NONE outside of all. Device work belongs to its launch's step."""
    start = np.where(np.isfinite(table.start_us), table.start_us, 0.0)
    step = np.searchsorted(marks.start_us, start, side="right").astype(np.int64) - 1
    last = len(marks.start_us) - 1
    outside = (step < 0) | (start > marks.end_us[np.maximum(step, 0)])
    device = table.kind >= NodeKind.KERNEL
    by_time = np.where(device, np.clip(step, 0, last), np.where(outside, NONE, step))
    launched = device & (table.launch >= 0)
    return np.where(launched, by_time[table.launch], by_time)


class _StepTimes:
    """What was measured of the steps."""

    def __init__(self, table: TraceTable, marks: StepMarks, step: I64) -> None:
        self.table, self.marks, self.step = table, marks, step
        count = len(marks.start_us)
        working = np.isin(table.kind, (NodeKind.KERNEL, NodeKind.COLLECTIVE))
        launched = table.launch >= 0
        if not launched.any():
            launched = table.kind >= NodeKind.KERNEL
        self.first = _extreme(np.minimum, table.start_us, step, working & launched, count)
        device = (table.kind >= NodeKind.KERNEL) & launched
        self.begin = _extreme(np.minimum, table.start_us, step, device, count)
        ends = table.start_us + table.duration_us
        self.end = _extreme(np.maximum, ends, step, device, count)
        self.unlinked = np.bincount(
            step[
                (table.kind >= NodeKind.KERNEL) & (table.launch < 0) & (table.op < 0) & (step >= 0)
            ],
            minlength=count,
        )

    def meta(self, i: int) -> GraphMeta:
        """The description of step i."""
        marks, table = self.marks, self.table
        begin = float(marks.start_us[i])
        if not np.isfinite(begin):
            begin = 0.0
        length = float(marks.end_us[i]) - begin
        warnings = [*table.meta.warnings, *(f"{n} {what}" for what, n in table.counts.items())]
        if self.unlinked[i]:
            warnings.append(f"{self.unlinked[i]} kernels and copies without a launch in the trace")
        return replace(
            table.meta,
            step=i,
            step_name=marks.names[i],
            step_delimiter=marks.delimiter,
            step_start_us=table.origin_us + begin,
            host_step_us=length if table.timed and np.isfinite(length) else np.nan,
            device_period_us=self._period(i),
            device_span_us=float(self.end[i] - self.begin[i]),
            warnings=tuple(warnings),
            notes=(*table.meta.notes, ("nodes_outside_of_steps", str(int((self.step < 0).sum())))),
        )

    def _period(self, i: int) -> float:
        """First work of step i to that of the next; NaN where none follows, or not later."""
        if i + 1 == len(self.first):
            return float("nan")
        period = float(self.first[i + 1] - self.first[i])
        return period if period > 0 else float("nan")


def _extreme(
    function: np.ufunc, values: F64, step: I64, rows: NDArray[np.bool_], count: int
) -> F64:
    """[count] least or greatest value of each step; NaN for a step without rows."""
    result = np.full(count, np.inf if function is np.minimum else -np.inf)
    used = rows & (step >= 0) & np.isfinite(values)
    function.at(result, step[used], values[used])
    result[~np.isfinite(result)] = np.nan
    return result


def _graph(
    table: TraceTable, rows: I64, strings: tuple[str, ...], meta: GraphMeta
) -> ExecutionGraph:
    new = full(len(table) + 1)
    new[rows] = np.arange(len(rows))
    zero = meta.step_start_us - table.origin_us
    nodes = Nodes(
        kind=table.kind[rows],
        name=table.name[rows],
        lane=table.lane[rows],
        start_us=table.start_us[rows] - zero if table.timed else np.full(len(rows), np.nan),
        duration_us=table.duration_us[rows] if table.timed else np.full(len(rows), np.nan),
        parent=new[table.parent[rows]].astype(np.int32),
        op=new[table.op[rows]].astype(np.int32),
        launch=new[table.launch[rows]].astype(np.int32),
        scope=table.scope[rows],
        phase=table.phase[rows],
        bytes=table.bytes[rows],
        grid_blocks=table.grid_blocks[rows],
        block_threads=table.block_threads[rows],
        registers=table.registers[rows],
        shared_memory=table.shared_memory[rows],
        event=table.event[rows],
        stream=table.stream[rows],
    )
    arguments, inputs = select_arguments(table.signatures, table.signature[rows])
    output_ptr, outputs = np.zeros(len(rows) + 1, np.int64), no_tensors()
    if len(table.output_signature):
        put_out, outputs = select_arguments(table.signatures, table.output_signature[rows])
        output_ptr = put_out.tensor_ptr[put_out.ptr]
    graph = ExecutionGraph(
        strings=strings,
        nodes=nodes,
        arguments=arguments,
        inputs=inputs,
        outputs=outputs,
        output_ptr=output_ptr,
        edges=_edges(table, new, nodes),
        lanes=table.lanes,
        collectives=graph_collectives(table, new),
        meta=meta,
    )
    tensors = data_edges(arguments, inputs, output_ptr, outputs)
    inferred = infer_edges(graph) if table.timed else no_edges()
    return replace(graph, edges=join_edges(tensors, graph.edges, inferred))


def _edges(table: TraceTable, new: I64, nodes: Nodes) -> Edges:
    """Those that the trace states, else the order of lanes and the launches."""
    if table.edges is None:
        return order_edges(nodes)
    src, dst = new[table.edges.src], new[table.edges.dst]
    inside = (src >= 0) & (dst >= 0)
    return Edges(
        src[inside].astype(np.int32), dst[inside].astype(np.int32), table.edges.kind[inside]
    )
