"""Gradients of the timeline against finite differences and the critical path."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.graph import Job, NodeKind
from gnnperf.timeline import differentiable
from gnnperf.timeline.critical import binding_events, derivatives, path_to
from gnnperf.timeline.replay import run, schedule_of
from gnnperf.timeline.scan import solve
from gnnperf.timeline.schedule import Links, Schedule
from gnnperf.traces import read_job

HOME = Path(__file__).parents[3].parent / "shared"
TRACES = Path(os.environ.get("GNNPERF_SHARED", HOME)) / "data" / "traces"
MakeSchedule = Callable[[int], Schedule]


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_gradients_are_finite_differences(make_schedule: MakeSchedule, seed: int) -> None:
    schedule = make_schedule(seed)
    n = schedule.num_nodes
    if not n:
        return
    rng = np.random.default_rng(seed)
    weight = torch.from_numpy(rng.normal(size=2 * n))
    # Irrational offsets: no two dependencies tie, so the derivative exists.
    duration = torch.from_numpy(schedule.duration_us + rng.random(n)).requires_grad_()
    gap = torch.from_numpy(schedule.gap_us + rng.random(n)).requires_grad_()
    lags = len(schedule.links)
    lag = torch.from_numpy(schedule.links.lag_us + rng.random(lags)).requires_grad_()

    def value(d: torch.Tensor, g: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        start, end = differentiable.solve(schedule, d, g, c)
        return start @ weight[0::2] + end @ weight[1::2]

    value(duration, gap, lag).backward()  # type: ignore[no-untyped-call]
    way = [torch.from_numpy(rng.normal(size=k)) for k in (n, n, lags)]
    h = 1e-7
    with torch.no_grad():
        ahead = value(*(p + h * w for p, w in zip((duration, gap, lag), way, strict=True)))
        behind = value(*(p - h * w for p, w in zip((duration, gap, lag), way, strict=True)))
    slope = sum(
        float(p.grad @ w)
        for p, w in zip((duration, gap, lag), way, strict=True)
        if p.grad is not None
    )
    assert slope == pytest.approx(float(ahead - behind) / (2 * h), rel=1e-4, abs=1e-4)


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_gradient_of_an_end_marks_its_critical_path(
    make_schedule: MakeSchedule, seed: int
) -> None:
    schedule = make_schedule(seed)
    if not schedule.num_nodes:
        return
    times = solve(schedule)
    last = int(np.argmax(times.end_us))
    weight = np.zeros(2 * schedule.num_nodes)
    weight[2 * last + 1] = 1.0
    by_duration, by_gap, by_lag = derivatives(schedule, times, weight)
    path = path_to(binding_events(schedule, times)[0], 2 * last + 1)
    ends = path[1:][(path[1:] % 2 == 1) & (path[:-1] == path[1:] - 1)]
    assert set(np.flatnonzero(by_duration)) == set(ends // 2)
    assert set(np.unique(by_duration)) <= {0.0, 1.0}
    # The path's parts add up to the time itself (it starts on a lane at time 0).
    total = (
        by_duration @ schedule.duration_us
        + by_gap @ schedule.gap_us
        + by_lag @ schedule.links.lag_us
    )
    assert total == pytest.approx(times.end_us[last], abs=1e-6)


def test_float32_durations_stay_float32() -> None:
    schedule = Schedule(np.array([0, 2]), np.array([1.0, 2.0]), np.zeros(2), Links.join([]))
    start, end = differentiable.solve(schedule, torch.tensor([1.0, 2.0]))
    assert start.dtype == torch.float32
    assert end.tolist() == [1.0, 3.0]


def _check_step_gradient(job: Job, seed: int, tolerance: float) -> None:
    """The derivative along a random direction against finite differences."""
    rng = np.random.default_rng(seed)
    step = schedule_of(job)
    base, ways = [], []
    for graph in job.graphs:
        device = np.isin(np.arange(graph.num_nodes), graph.device_nodes)
        # Irrational offsets break ties.
        noisy = np.where(device, graph.nodes.duration_us + rng.random(graph.num_nodes), np.nan)
        base.append(noisy)
        ways.append(np.where(device, rng.random(graph.num_nodes), 0.0))
    given = [torch.from_numpy(b).requires_grad_() for b in base]
    time = differentiable.iteration_us(step, given)
    assert float(time.detach()) == pytest.approx(run(step, base).iteration_us)
    time.backward()  # type: ignore[no-untyped-call]
    slope = sum(
        float((g.grad * torch.from_numpy(w)).nan_to_num().sum())
        for g, w in zip(given, ways, strict=True)
        if g.grad is not None
    )
    h = 1e-5
    up, down = (
        run(step, [b + s * w for b, w in zip(base, ways, strict=True)]).iteration_us
        for s in (h, -h)
    )
    assert slope == pytest.approx((up - down) / (2 * h), abs=tolerance)
    assert slope >= 0


@pytest.mark.parametrize("wait", [0.0, 400.0])
def test_the_gradient_of_a_steps_time(programs: SimpleNamespace, wait: float) -> None:
    make = programs.Instruction
    program = [make("launch", 300.0), make("hold", 0.0, 20), make("launch", 200.0, 20)]
    program += [make("item", 5.0, 20), make("gap", wait), make("launch", 45.0), make("gap", 5.0)]
    _check_step_gradient(Job((programs.record(program),)), 0, 1e-3)


def test_the_gradient_of_a_device_bound_step_counts_every_kernel(
    programs: SimpleNamespace,
) -> None:
    graph = programs.record([programs.Instruction("launch", 50.0)] * 20)
    step = schedule_of(Job((graph,)))
    given = torch.from_numpy(graph.nodes.duration_us).requires_grad_()
    differentiable.iteration_us(step, [given]).backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    kernels = torch.from_numpy(graph.nodes.kind == NodeKind.KERNEL)
    assert given.grad[kernels].tolist() == [1.0] * 20
    assert given.grad[~kernels].tolist() == [0.0] * 20


@pytest.mark.parametrize(
    "name", ["hta_torchrec_a100", "torchrec_2rank_tiny", "tracelens_mi300_resnet_ddp"]
)
def test_the_gradient_of_real_steps(name: str) -> None:
    if not (TRACES / name).is_dir():
        pytest.skip(f"no {name} beside the project: the public traces are not here")
    _check_step_gradient(read_job(TRACES / name).of_step(1), 1, 0.02)


def test_the_gradient_of_a_lone_step(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    program = [make("launch", 30.0), make("item", 2.0), make("launch", 90.0), make("gap", 5.0)]
    graph = programs.record(program)
    lone = replace(graph, meta=replace(graph.meta, device_period_us=np.nan))
    _check_step_gradient(Job((lone,)), 2, 1e-3)
