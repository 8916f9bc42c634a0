"""Shares of phases and scopes, by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gnnperf.graph import ExecutionGraph, Job, NodeKind, Phase
from gnnperf.timeline.breakdown import breakdown, critical_path
from gnnperf.timeline.replay import Result, run, schedule_of
from gnnperf.timeline.shares import Share, by_phase, by_scope


def labelled(
    graph: ExecutionGraph, scopes: dict[int, str], phases: dict[int, Phase]
) -> ExecutionGraph:
    """The graph with the scope and the phase of its nth work (and of the call that launched it)."""
    scope, phase = graph.nodes.scope.copy(), graph.nodes.phase.copy()
    strings = list(graph.strings)
    device = graph.device_nodes
    for n, text in scopes.items():
        strings.append(text)
        scope[[device[n], graph.nodes.launch[device[n]]]] = len(strings) - 1
    for n, value in phases.items():
        phase[[device[n], graph.nodes.launch[device[n]]]] = value
    return replace(
        graph, strings=tuple(strings), nodes=replace(graph.nodes, scope=scope, phase=phase)
    )


@pytest.fixture
def step(programs: SimpleNamespace) -> Result:
    """Kernels from 10 to 40 and 41.2 to 61.2, a collective from 18 to 68, in a step of 108 us."""
    make = programs.Instruction
    program = [
        make("launch", 30.0),
        make("launch", 50.0, 20, NodeKind.COLLECTIVE),
        make("launch", 20.0),
        make("gap", 84.0),
    ]
    scopes = {0: "Net_0.Linear_0", 1: "Net_0.Linear_0", 2: "Net_0.ReLU_0"}
    phases = {0: Phase.FORWARD, 1: Phase.BACKWARD, 2: Phase.BACKWARD}
    graph = labelled(programs.record(program), scopes, phases)
    return run(schedule_of(Job((graph,))))


def test_phases_by_hand(step: Result) -> None:
    found = {s.name: s for s in by_phase(step, critical_path(step))}
    assert step.iteration_us == pytest.approx(108)
    assert list(found) == ["forward", "backward"]
    forward, backward = found["forward"], found["backward"]
    # The forward kernel is alone from 10 to 18; the backward from 40 to 68.
    assert (forward.count, forward.device_us) == (1, pytest.approx(30))
    assert forward.exposed_us == pytest.approx(8)
    assert (backward.count, backward.device_us) == (2, pytest.approx(70))
    assert backward.exposed_us == pytest.approx(28)
    # The host is the critical path: three calls of 8 us and 84 us before the first of them, counted
    # from the first kernel on, which starts 2 us (the launch latency) into the second call.
    assert sum(s.path_us for s in found.values()) == pytest.approx(108)
    assert (forward.path_us, backward.path_us) == pytest.approx((94, 14))


def test_scopes_hold_what_lies_inside_them(step: Result) -> None:
    found = by_scope(step, critical_path(step))
    assert [s.name for s in found] == ["Net_0", "Net_0.Linear_0", "Net_0.ReLU_0"]
    whole, linear, relu = found
    assert whole.device_us == pytest.approx(100)
    # 10 to 68: everything that runs is inside.
    assert whole.exposed_us == pytest.approx(58)
    # Both of the first layer's works are alone from 10 to 41.2, and from 61.2 to 68.
    assert linear.device_us == pytest.approx(80)
    assert linear.exposed_us == pytest.approx(31.2 + 6.8, abs=0.5)
    assert relu.exposed_us == pytest.approx(0)
    assert relu.path_us == pytest.approx(8)


def test_a_trace_without_scopes_has_none(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    result = run(schedule_of(Job((programs.record([make("launch", 30.0), make("gap", 50.0)]),))))
    assert by_scope(result, critical_path(result)) == ()
    (other,) = by_phase(result, critical_path(result))
    assert other.name == "other"


def test_annotations_are_nested_by_slashes(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    graph = programs.record([make("launch", 30.0), make("launch", 20.0), make("gap", 50.0)])
    graph = labelled(graph, {0: "/Optimizer.step#SGD.step", 1: "/f/g"}, {})
    result = run(schedule_of(Job((graph,))))
    names = [s.name for s in by_scope(result, critical_path(result))]
    assert names == ["/Optimizer.step#SGD.step", "/f", "/f/g"]


@pytest.mark.parametrize("scale", [0.3, 1.0, 6.0])
def test_exposed_times_are_what_a_grid_of_points_tells(
    programs: SimpleNamespace, scale: float
) -> None:
    rng = np.random.default_rng(5)
    make = programs.Instruction
    program = []
    for _ in range(30):
        stream = int(rng.choice([7, 20, 22]))
        program += [make("launch", float(rng.exponential(20)), stream)]
        program += [make("gap", float(rng.exponential(5)))]
    phases = {n: Phase(int(rng.integers(0, 5))) for n in range(30)}
    graph = labelled(programs.record([*program, make("sync", 0.0, 7)]), {}, phases)
    result = run(schedule_of(Job((graph,))), kernel_scale=scale)
    shares = by_phase(result, critical_path(result))
    start, end = result.node_times(0)
    device = graph.device_nodes
    grid = (np.arange(200_000) + 0.5) / 200_000 * result.period_us
    running = np.zeros((5, len(grid)), np.bool_)
    for node in device.tolist():
        for turn in range(-2, 3):
            at = turn * result.period_us
            inside = (grid >= start[node] + at) & (grid < end[node] + at)
            running[graph.nodes.phase[node]] |= inside
    names = {"other": 0, "forward": 1, "backward": 2, "optimizer": 3, "data loading": 4}
    for share in shares:
        mine = running[names[share.name]] & (running.sum(axis=0) == 1)
        assert share.exposed_us == pytest.approx(mine.mean() * result.period_us, abs=0.2)
    busy = breakdown(result)["compute"]
    assert sum(s.exposed_us for s in shares) <= busy + 1e-6
    assert isinstance(shares[0], Share)
