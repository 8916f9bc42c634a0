"""Replay against a machine that runs the recorded program, with other kernel times too."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.errors import GnnperfError
from gnnperf.graph import ExecutionGraph, Job, NodeKind, Rendezvous
from gnnperf.timeline.hostless import HostDefaults
from gnnperf.timeline.replay import RULES, Result, run, schedule_of, typical_step


def replayed(graph: ExecutionGraph, **options: Any) -> Result:  # noqa: ANN401
    return run(schedule_of(Job((graph,))), **options)


def random_program(programs: SimpleNamespace, seed: int) -> list[Any]:
    """Some tens of launches on two streams, with gaps, event waits, syncs and copies."""
    rng = np.random.default_rng(seed)
    make = programs.Instruction
    mean = float(rng.choice([2.0, 20.0, 60.0]))
    program = [make("launch", 3.0), make("gap", 40.0)]
    for _ in range(int(rng.integers(3, 40))):
        stream = int(rng.choice([7, 7, 20]))
        choice = rng.random()
        if choice < 0.1:
            program.append(make("sync", 0.0, stream))
        elif choice < 0.15:
            program.append(make("item", 2.0, stream))
        else:
            if choice < 0.3:
                program.append(make("hold", 0.0, stream))
            program.append(make("launch", float(np.round(rng.exponential(mean), 2)), stream))
        program.append(make("gap", float(np.round(rng.exponential(15.0), 2))))
    return program


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.0, 1.0, 3.0, 10.0]))
def test_replays_what_the_machine_would_do(
    programs: SimpleNamespace, seed: int, scale: float
) -> None:
    program = random_program(programs, seed)
    result = replayed(programs.record(program), kernel_scale=scale)
    # At scale 0 a sync's own cost shows, and the trace has few syncs that did not wait at all.
    exact = pytest.approx(programs.period_of(program, scale), rel=1e-2 if scale == 0 else 1e-6)
    assert result.iteration_us == exact


def test_a_step_by_hand(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    program = [make("launch", 5.0), make("gap", 20.0), make("launch", 15.0), make("gap", 20.0)]
    result = replayed(programs.record(program))
    # The host takes 8 + 20 + 8 + 20; the kernels start 2 after their launches, at 10 and 38.
    assert result.iteration_us == pytest.approx(56.0)
    start, end = result.node_times(0)
    assert start[2:].tolist() == pytest.approx([0.0, 28.0])
    assert end[2:].tolist() == pytest.approx([5.0, 43.0])
    slow = replayed(programs.record(program), kernel_scale=10)
    # The device takes 50 + 1.2 + 150 + 1.2.
    assert slow.iteration_us == pytest.approx(202.4)


def _stretched(programs: SimpleNamespace, wait: float) -> ExecutionGraph:
    """A trace in which a copy back to the host is recorded to begin `wait` later than it could."""
    calls: list[tuple[str, float, float, int]] = []
    work: list[tuple[NodeKind, str, int, float, float, int]] = []
    time = 0.0
    for _ in range(10):
        work.append((NodeKind.KERNEL, "kernel", 7, time + 10, time + 15, len(calls)))
        calls.append(("cudaLaunchKernel", time, time + 8, 7))
        time += 30
    begin = time + 10 + wait
    work.append((NodeKind.COPY, "Memcpy DtoH (Device -> Pageable)", 7, begin, begin + 2, 10))
    calls.append(("cudaMemcpyAsync", time, begin + 12, 7))
    calls.append(("cudaStreamSynchronize", begin + 13, begin + 17 + wait, 7))
    time = begin + 17 + wait + 20
    graph: ExecutionGraph = programs.graph_of(calls, work, 0.0, time, time)
    return graph


def test_no_recorded_wait_or_idle_time_is_work(programs: SimpleNamespace) -> None:
    plain = replayed(_stretched(programs, 0.0)).iteration_us
    for wait in (100.0, 5000.0):
        graph = _stretched(programs, wait)
        assert graph.meta.device_period_us == pytest.approx(plain + 2 * wait, abs=15)
        # Of a sync that waited for nothing in the trace at most 30 us stay.
        assert replayed(graph).iteration_us == pytest.approx(plain, abs=30.0)


@pytest.mark.parametrize("seed", range(8))
def test_kernel_times_move_only_what_depends_on_them(programs: SimpleNamespace, seed: int) -> None:
    graph = programs.record(random_program(programs, seed))
    step = schedule_of(Job((graph,)))
    one, ten = (run(step, kernel_scale=s, steps=2).times[0] for s in (1.0, 10.0))
    schedule = step.schedule
    reached = set((2 * np.flatnonzero(step.device) + 1).tolist())
    follow: dict[int, list[int]] = {}
    first = set(schedule.first_of_lane.tolist())
    for node in range(schedule.num_nodes):
        follow.setdefault(2 * node, []).append(2 * node + 1)
        if node not in first:
            follow.setdefault(2 * node - 1, []).append(2 * node)
    for a, b in zip(schedule.links.source_event, schedule.links.target_event, strict=True):
        follow.setdefault(int(a), []).append(int(b))
    todo = list(reached)
    while todo:
        for event in follow.get(todo.pop(), []):
            if event not in reached:
                reached.add(event)
                todo.append(event)
    free = [e for e in range(2 * schedule.num_nodes) if e not in reached]
    assert free
    np.testing.assert_array_equal(one.event_us[free], ten.event_us[free])


def test_a_full_queue_blocks_the_host(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    program = [make("launch", 50.0)] * 1500
    graph = programs.record(program, steps=2)
    step = schedule_of(Job((graph,)))
    times = run(step, steps=3).times[0]
    kernels = np.flatnonzero(step.device)
    calls = np.flatnonzero(~step.device)
    # The launch that finds 1,021 before it not begun returns when the first of them begins.
    assert times.end_us[calls[1400]] == pytest.approx(times.start_us[kernels[1400 - 1021]])
    free = schedule_of(Job((graph,)), rules=[r for r in RULES if r != "queue_depth"])
    assert run(free, steps=3).times[0].end_us[calls[1400]] == pytest.approx(8 * 1401)


def test_a_kernel_waits_for_the_last_wave_of_another_stream(programs: SimpleNamespace) -> None:
    calls = [("cudaLaunchKernel", t, t + 8.0, 7) for t in (0.0, 20.0, 500.0)]
    # 10 waves of 108 SMs x 2 blocks of 1,024 threads take 400 us; a small kernel is held by them.
    work = [
        (NodeKind.KERNEL, "large", 7, 10.0, 410.0, 0),
        (NodeKind.KERNEL, "small", 20, 371.0, 376.0, 1),
        (NodeKind.KERNEL, "later", 7, 510.0, 520.0, 2),
    ]
    graph = programs.graph_of(calls, work, 0.0, 600.0, 600.0)
    graph.nodes.grid_blocks[3], graph.nodes.block_threads[3] = 2160, 1024
    graph.nodes.grid_blocks[4], graph.nodes.block_threads[4] = 1, 32
    start, _ = replayed(graph).node_times(0)
    assert start[4] - start[3] == pytest.approx(400 * 0.9)
    start, _ = replayed(graph, kernel_scale=10).node_times(0)
    assert start[4] - start[3] == pytest.approx(4000 * 0.9)


def test_ranks_meet_in_their_collective(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    reduce = make("launch", 40.0, 20, NodeKind.COLLECTIVE)
    fast = programs.record([make("launch", 5.0), reduce, make("gap", 100.0)], rank=0)
    slow = programs.record([make("launch", 300.0), make("hold", 0.0, 20), reduce], rank=1)
    slow.nodes.duration_us[-1] = 25.0
    both = Rendezvous(np.array([0, 2]), np.array([0, 1], np.int32), np.array([3, 4], np.int32))
    job = Job((fast, slow), both)
    result = run(schedule_of(job))
    alone = run(schedule_of(job, rules=[r for r in RULES if r != "rendezvous"]))
    # Rank 1 needs 300 + 1.2 for its kernel, and the transfer takes what its fastest rank saw.
    assert alone.iteration_us == pytest.approx(301.2, abs=1.0)
    assert result.iteration_us == pytest.approx(301.2, abs=1.0)
    start, end = result.node_times(0)
    assert end[3] - start[3] > 150
    ends = [result.times[-1].end_us[m] for m in np.flatnonzero(result.step.meeting == 0)]
    assert ends[0] == pytest.approx(ends[1])
    assert set(result.schedule.duration_us[result.step.meeting == 0]) == {25.0}


def test_works_of_earlier_steps_are_left_out_and_said(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    graph = programs.record([make("launch", 5.0), make("gap", 20.0), make("launch", 5.0)])
    graph.nodes.launch[2] = -1
    result = replayed(graph)
    assert np.isnan(result.node_times(0)[0][2])
    assert any("1 works of earlier steps" in said for said in result.assumed)


def test_a_step_without_its_host_side_uses_stated_times(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    graph = programs.record([make("launch", 5.0), make("launch", 500.0)])
    graph.nodes.launch[:] = -1
    step = schedule_of(Job((graph,)), host=HostDefaults())
    assert run(step).iteration_us == pytest.approx(505 + 2 * 1.2)
    assert "21.0 us per op" in " ".join(run(step).assumed)
    assert run(step, kernel_scale=0).iteration_us == pytest.approx(2 * (21 + 4))


def test_work_without_a_duration_is_refused_until_one_is_given(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    graph = programs.record([make("launch", 5.0), make("launch", 500.0)])
    graph.nodes.launch[:] = -1
    graph.nodes.duration_us[2] = np.nan
    step = schedule_of(Job((graph,)))
    with pytest.raises(GnnperfError, match="1 works have no measured duration"):
        run(step)
    given = np.array([np.nan, np.nan, 700.0, np.nan])
    assert run(step, [given]).iteration_us == pytest.approx(1200 + 2 * 1.2)


def test_a_launched_work_without_a_duration_is_refused_too(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    graph = programs.record([make("launch", 5.0), make("launch", 500.0)])
    graph.nodes.duration_us[3] = np.nan
    step = schedule_of(Job((graph,)))
    with pytest.raises(GnnperfError, match="the first: kernel"):
        run(step)
    given = np.array([np.nan, np.nan, np.nan, 700.0])
    assert run(step, [given]).iteration_us == pytest.approx(705 + 2 * 1.2, abs=0.1)


def test_a_step_on_the_cpu_is_its_leaf_ops_and_the_gaps_between(
    programs: SimpleNamespace,
) -> None:
    calls = [("aten::linear", 0.0, 100.0, 7), ("aten::addmm", 10.0, 90.0, 7)]
    calls.append(("aten::relu", 120.0, 150.0, 7))
    graph = programs.graph_of(calls, [], 0.0, 160.0, np.nan)
    graph.nodes.kind[:] = NodeKind.HOST_OP
    graph.nodes.parent[:] = [-1, 0, -1]
    assert replayed(graph).iteration_us == pytest.approx(160.0)
    assert replayed(graph, kernel_scale=2).iteration_us == pytest.approx(160 + 80 + 30)
    assert replayed(graph, host_scale=0).iteration_us == pytest.approx(80 + 30)


def test_a_lone_step_is_the_span_of_its_device_work(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    graph = programs.record([make("launch", 5.0), make("gap", 50.0), make("launch", 20.0)])
    lone = replace(graph, meta=replace(graph.meta, device_period_us=np.nan))
    result = replayed(lone)
    assert result.iteration_us == pytest.approx(58 + 20)
    assert "only step" in result.how


def test_many_steps_are_refused(programs: SimpleNamespace) -> None:
    graph = programs.record([programs.Instruction("launch", 5.0)])
    later = replace(graph, meta=replace(graph.meta, step=1))
    with pytest.raises(GnnperfError, match="one step"):
        schedule_of(Job((graph, later)))


def test_the_typical_step_is_the_median_of_the_replays(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    graphs = []
    for number, gap in enumerate((500.0, 100.0, 300.0, 200.0, 400.0)):
        graph = programs.record([make("launch", 5.0), make("gap", gap)])
        graphs.append(replace(graph, meta=replace(graph.meta, step=number)))
    assert typical_step(Job(tuple(graphs)), [0, 1, 2, 3, 4]) == 2
    assert typical_step(Job(tuple(graphs)), [1, 3]) == 1


def test_branches_of_a_captured_graph_fork_and_join(programs: SimpleNamespace) -> None:
    # One launch call of 100 us; a, then b and c side by side, then d after both.
    calls = [("cudaGraphLaunch", 0.0, 100.0, 7)]
    works = [("a", 7, 12, 62), ("b", 7, 63, 113), ("c", 20, 64, 264), ("d", 7, 266, 276)]
    work = [(NodeKind.KERNEL, n, s, float(b), float(e), 0) for n, s, b, e in works]
    graph = programs.graph_of(calls, work, 0.0, 500.0, 500.0)
    start, _ = replayed(graph).node_times(0)
    assert (start[1:] - start[1]).tolist() == pytest.approx([0, 51.2, 51.2, 252.4])
    start, _ = replayed(graph, kernel_scale=2).node_times(0)
    assert (start[1:] - start[1]).tolist() == pytest.approx([0, 101.2, 101.2, 502.4])
