"""Steps whose host side was not traced, and steps on the CPU with several threads."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gnnperf.graph import EdgeKind, Edges, ExecutionGraph, GraphMeta, Job, Lanes, NodeKind
from gnnperf.timeline.replay import HostDefaults, run, schedule_of


def untraced(programs: SimpleNamespace, edges: list[tuple[int, int, EdgeKind]]) -> ExecutionGraph:
    """Three ops; the first and the last compute on one stream, the second talks on another."""
    ops = [(f"op{i}", np.nan, np.nan, 7) for i in range(3)]
    works = [(7, 100.0, 0), (20, 300.0, 1), (7, 50.0, 2)]
    work = [(NodeKind.KERNEL, "work", s, 0.0, d, op) for s, d, op in works]
    graph: ExecutionGraph = programs.graph_of(ops, work, 0.0, np.nan, np.nan)
    nodes = graph.nodes
    nodes.kind[:3] = NodeKind.HOST_OP
    columns = tuple(np.array(c) for c in zip(*edges, strict=True)) if edges else ([], [], [])
    src, dst, kind = (np.array(c) for c in columns)
    return replace(
        graph,
        nodes=replace(
            nodes,
            launch=np.full(6, -1, np.int32),
            op=np.array([-1, -1, -1, 0, 1, 2], np.int32),
            start_us=np.full(6, np.nan),
        ),
        edges=Edges(src.astype(np.int32), dst.astype(np.int32), kind.astype(np.uint8)),
        meta=GraphMeta(),
    )


def test_streams_without_edges_run_side_by_side(programs: SimpleNamespace) -> None:
    result = run(schedule_of(Job((untraced(programs, []),))))
    assert result.iteration_us == pytest.approx(300 + 1.2)
    assert result.assumed


@pytest.mark.parametrize(
    "edges",
    [
        [(3, 4, EdgeKind.EVENT_WAIT), (4, 5, EdgeKind.EVENT_WAIT)],
        [(0, 1, EdgeKind.DATA), (1, 2, EdgeKind.DATA)],
    ],
)
def test_edges_between_works_or_between_their_ops_order_the_streams(
    programs: SimpleNamespace, edges: list[tuple[int, int, EdgeKind]]
) -> None:
    result = run(schedule_of(Job((untraced(programs, edges),))))
    assert result.iteration_us == pytest.approx(100 + 300 + 50 + 3 * 1.2)


def test_the_host_waits_where_an_op_needs_a_value(programs: SimpleNamespace) -> None:
    graph = untraced(programs, [(4, 1, EdgeKind.HOST_SYNC)])
    host = HostDefaults(op_us=10.0, launch_us=5.0)
    result = run(schedule_of(Job((graph,)), host=host))
    # Two launches, 300 on the device from 2 after the second, 10 to return, then the third op.
    assert result.iteration_us == pytest.approx(30 + 2 + 300 + 10 + 5, abs=15)
    free = run(schedule_of(Job((untraced(programs, []),)), host=host), kernel_scale=0)
    assert free.iteration_us == pytest.approx(45)


def test_a_cpu_thread_beside_the_others_is_a_lane_of_its_own(programs: SimpleNamespace) -> None:
    calls = [("aten::mm", 0.0, 100.0, 7), ("aten::relu", 110.0, 150.0, 7)]
    calls += [("aten::add", 155.0, 195.0, 7), ("aten::mul", 20.0, 140.0, 7)]
    graph = programs.graph_of(calls, [], 0.0, 200.0, np.nan)
    graph.nodes.kind[:] = NodeKind.HOST_OP
    # The third op takes its turn on a second thread, the fourth runs beside on a third.
    graph.nodes.lane[2:] = [1, 2]
    lanes = Lanes(
        np.zeros(3, np.uint8), np.full(3, -1, np.int32), np.arange(3), np.zeros(3, np.int32)
    )
    result = run(schedule_of(Job((replace(graph, lanes=lanes),))))
    assert result.iteration_us == pytest.approx(200.0)
    start, end = result.node_times(0)
    assert start.tolist() == pytest.approx([0, 110, 155, 20])
    assert end[3] == pytest.approx(140)
