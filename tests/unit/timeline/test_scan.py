"""The scan against an event simulator, on thousands of random schedules."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.errors import GnnperfError
from gnnperf.timeline.scan import SEGMENT, Scan, solve
from gnnperf.timeline.schedule import Link, Links, Schedule

Simulate = Callable[[Schedule], tuple[list[float], list[float]]]
MakeSchedule = Callable[[int], Schedule]


@settings(max_examples=2000, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_equals_the_event_simulator(
    brute_force: Simulate, make_schedule: MakeSchedule, seed: int
) -> None:
    schedule = make_schedule(seed)
    times = solve(schedule)
    start, end = brute_force(schedule)
    np.testing.assert_allclose(times.start_us, start, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(times.end_us, end, rtol=1e-12, atol=1e-9)


def test_one_lane_by_hand() -> None:
    # Host: calls of 3 us at 0, 3, 6. Device: 10 us kernels, launched at 3, 6, 9, gap 1.
    schedule = Schedule(
        np.array([0, 3, 6]),
        np.array([3.0, 3, 3, 10, 1, 1]),
        np.array([0.0, 0, 0, 1, 1, 1]),
        Links.of([0, 1, 2], [3, 4, 5], lag_us=2.0),
    )
    times = solve(schedule)
    assert times.start_us.tolist() == [0, 3, 6, 5, 16, 18]
    assert times.end_us.tolist() == [3, 6, 9, 15, 17, 19]


def test_a_blocking_call_ends_with_the_device() -> None:
    # A launch (2 us), a synchronize of 1 us that returns 4 us after the 50 us kernel.
    schedule = Schedule(
        np.array([0, 3, 4]),
        np.array([2.0, 1, 1, 50]),
        np.zeros(4),
        Links.join([Links.of([0], [3], lag_us=1.0), Links.of([3], [1], Link.END_END, 4.0)]),
    )
    assert solve(schedule).end_us.tolist() == [2, 57, 58, 53]


def test_a_collective_starts_with_its_last_rank() -> None:
    # Three ranks compute 5, 20 and 7 us; the transfer takes 3 us from the last arrival on.
    arrive, transfer = np.array([1, 4, 7]), np.array([2, 5, 8])
    schedule = Schedule(
        np.array([0, 3, 6, 9]),
        np.array([5.0, 0, 3, 20, 0, 3, 7, 0, 3]),
        np.zeros(9),
        Links.meet(arrive, transfer),
    )
    times = solve(schedule)
    assert times.start_us[arrive].tolist() == [5, 20, 7]
    assert times.end_us[transfer].tolist() == [23, 23, 23]


def test_long_lanes_keep_their_digits() -> None:
    n = 20 * SEGMENT
    duration = np.full(n, 0.1)
    schedule = Schedule(np.array([0, n]), duration, np.zeros(n), Links.join([]))
    exact = np.arange(1, n + 1) / 10
    assert np.abs(solve(schedule).end_us - exact).max() < 1e-8


def test_steps_follow_one_another() -> None:
    schedule = Schedule(np.array([0, 2]), np.array([1.0, 2]), np.array([5.0, 0]), Links.join([]))
    scan = Scan(schedule)
    first = scan.solve()
    second = scan.solve(np.full(4, -np.inf), first.end_us[[1]])
    assert first.end_us.tolist() == [1, 3]
    assert second.start_us.tolist() == [8, 9]


def test_a_circle_is_named() -> None:
    schedule = Schedule(np.array([0, 2, 4]), np.ones(4), np.zeros(4), Links.of([1, 3], [2, 0]))
    with pytest.raises(GnnperfError, match="circle"):
        solve(schedule)


def test_the_mirrored_problem_gives_the_longest_way_to_the_end(make_schedule: MakeSchedule) -> None:
    for seed in range(200):
        schedule = make_schedule(seed)
        if not schedule.num_nodes:
            continue
        mirrored = Scan(schedule.reversed())
        least = np.full(2 * schedule.num_nodes, -np.inf)
        sink = int(np.argmax(solve(schedule).end_us))
        least[2 * (schedule.num_nodes - 1 - sink)] = 0.0
        way = mirrored.solve(least).end_us[::-1]
        total = solve(schedule).end_us[sink]
        ahead = solve(schedule).start_us + way
        assert ahead.max() == pytest.approx(total)
