"""Breakdown, critical path and slack of replayed programs."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gnnperf.graph import Job, NodeKind
from gnnperf.timeline.breakdown import breakdown, critical_path, saving, slack
from gnnperf.timeline.export import to_chrome
from gnnperf.timeline.replay import run, schedule_of, solve_step


def test_the_parts_of_a_step_by_hand(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    program = [
        make("launch", 30.0),
        make("launch", 50.0, 20, NodeKind.COLLECTIVE),
        make("gap", 84.0),
    ]
    result = run(schedule_of(Job((programs.record(program),))))
    parts = breakdown(result)
    # The kernel runs from 10 to 40, the collective from 18 to 68 of 100 us.
    assert result.iteration_us == pytest.approx(100)
    assert parts == pytest.approx(
        {
            "compute": 30,
            "communication": 50,
            "exposed_communication": 28,
            "host_bound_idle": 42,
            "copy": 0,
            "overlap": 22,
        }
    )


@pytest.mark.parametrize("scale", [0.2, 1.0, 8.0])
def test_the_parts_add_up_even_where_steps_overlap(programs: SimpleNamespace, scale: float) -> None:
    make = programs.Instruction
    program = [make("launch", 30.0), make("hold", 0.0, 20)]
    program += [make("launch", 50.0, 20, NodeKind.COLLECTIVE), make("gap", 60.0)]
    program += [make("item", 5.0), make("launch", 25.0, 20), make("gap", 10.0)]
    result = run(schedule_of(Job((programs.record(program),))), kernel_scale=scale)
    parts = breakdown(result)
    whole = ("compute", "exposed_communication", "copy", "host_bound_idle")
    assert sum(parts[p] for p in whole) == pytest.approx(result.iteration_us)


def test_the_critical_path_covers_the_period(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    program = [make("launch", 300.0), make("hold", 0.0, 20), make("launch", 200.0, 20)]
    program += [make("sync", 0.0, 20), make("gap", 50.0), make("launch", 5.0), make("gap", 5.0)]
    result = run(schedule_of(Job((programs.record(program),))))
    path = critical_path(result)
    assert (path.own_us + path.before_us).sum() == pytest.approx(result.iteration_us)
    graph = result.step.job.graphs[0]
    device = path.own_us[np.isin(path.node, graph.device_nodes)].sum()
    assert device == pytest.approx(500.0)
    long = int(path.node[np.argmax(path.own_us)])
    # Without it the second kernel begins 19 after the step, not 11.2 after the first one would.
    assert saving(result, result.step.node == long) == pytest.approx(300 - 7.8)


def test_slack_is_what_a_node_may_grow(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    program = [make("launch", 30.0), make("gap", 40.0), make("launch", 10.0, 20), make("gap", 60.0)]
    program += [make("sync", 0.0, 20), make("launch", 70.0), make("gap", 30.0)]
    step = schedule_of(Job((programs.record(program),)))
    result = run(step)
    spare = slack(result)[0]
    for node in step.job.graphs[0].device_nodes.tolist():
        own = (step.node == node) & step.is_work
        for extra, grows in ((spare[node] * 0.98, 0.0), (spare[node] + 50.0, 40.0)):
            duration = result.schedule.duration_us + np.where(own, extra, 0.0)
            longer = solve_step(step, duration, result.schedule.gap_us).iteration_us
            assert longer - result.iteration_us >= grows - 1e-6
            if not grows:
                assert longer == pytest.approx(result.iteration_us, abs=1e-6)


def test_the_exported_timeline_has_every_work_once(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    program = [make("launch", 30.0), make("item", 2.0), make("gap", 10.0), make("launch", 9.0, 20)]
    result = run(schedule_of(Job((programs.record(program),))))
    trace = to_chrome(result)
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert sorted(e["name"] for e in slices if e["cat"] == "device") == [
        "Memcpy DtoH (Device -> Pageable)",
        "kernel",
        "kernel",
    ]
    assert len([e for e in slices if e["cat"] == "host"]) == 3
    waited = next(e for e in slices if e["name"] == "cudaMemcpyAsync")
    assert waited["args"]["waited_us"] > 20
    tracks = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert tracks == {"host", "stream 7", "stream 20"}


@pytest.mark.parametrize("early", [0.0, 8.0, 40.0])
def test_a_path_through_work_that_starts_early_spends_no_time_twice(
    programs: SimpleNamespace, early: float
) -> None:
    make = programs.Instruction
    program = [make("launch", 30.0), make("gap", 60.0), make("launch", 20.0), make("gap", 40.0)]
    step = schedule_of(Job((programs.record(program),)))
    links = step.schedule.links
    sooner = replace(step.schedule, links=replace(links, lag_us=links.lag_us - early))
    result = run(replace(step, schedule=sooner))
    path = critical_path(result)
    assert path.own_us.min() >= 0
    assert path.before_us.min() >= 0
    assert (path.own_us + path.before_us).sum() == pytest.approx(result.iteration_us)
