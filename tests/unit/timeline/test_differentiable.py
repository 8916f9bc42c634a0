"""Gradients of the timeline against finite differences and the critical path."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.timeline import differentiable
from gnnperf.timeline.critical import binding_events, derivatives, path_to
from gnnperf.timeline.scan import solve
from gnnperf.timeline.schedule import Links, Schedule

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
