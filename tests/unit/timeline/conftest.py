"""Random schedules, and an event simulator that shares no code and no idea with the scan."""

import heapq
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from gnnperf.timeline.schedule import Link, Links, Schedule

Simulate = Callable[[Schedule], tuple[list[float], list[float]]]
MakeSchedule = Callable[[int], Schedule]


def simulate(schedule: Schedule) -> tuple[list[float], list[float]]:
    """Start and end of every node: events fire in order of time from a heap."""
    n = schedule.num_nodes
    duration, gap = schedule.duration_us.tolist(), schedule.gap_us.tolist()
    after: dict[tuple[str, int], list[tuple[str, int, float]]] = {}
    missing: dict[tuple[str, int], int] = {}
    for i in range(n):
        missing["start", i] = 0
        missing["end", i] = 1
        after.setdefault(("start", i), []).append(("end", i, duration[i]))
    bounds = schedule.lane_ptr.tolist()
    for begin, end in itertools.pairwise(bounds):
        for i in range(begin + 1, end):
            after.setdefault(("end", i - 1), []).append(("start", i, gap[i]))
            missing["start", i] += 1
    links = schedule.links
    for row in range(len(links)):
        kind = Link(int(links.kind[row]))
        first = "start" if kind in (Link.START_START, Link.START_END) else "end"
        second = "end" if kind in (Link.END_END, Link.START_END) else "start"
        target = (second, int(links.dst[row]))
        after.setdefault((first, int(links.src[row])), []).append(
            (*target, float(links.lag_us[row]))
        )
        missing[target] += 1
    best = dict.fromkeys(missing, float("-inf"))
    for begin, end in itertools.pairwise(bounds):
        if begin < end:
            best["start", begin] = 0.0
    heap = [(max(best[e], 0.0), e) for e, count in missing.items() if count == 0]
    heapq.heapify(heap)
    fired: dict[tuple[str, int], float] = {}
    while heap:
        _, event = heapq.heappop(heap)
        fired[event] = best[event]
        for kind_name, node, lag in after.get(event, []):
            target = (kind_name, node)
            best[target] = max(best[target], best[event] + lag)
            missing[target] -= 1
            if missing[target] == 0:
                heapq.heappush(heap, (best[target], target))
    assert len(fired) == 2 * n, "circle"
    return [fired["start", i] for i in range(n)], [fired["end", i] for i in range(n)]


def random_schedule(seed: int, most: int = 40) -> Schedule:
    """Lanes of any length and edges of all kinds that point forward in a random order."""
    rng = np.random.default_rng(seed)
    lanes = int(rng.integers(1, 6))
    sizes = rng.integers(0, most // lanes + 2, lanes)
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(ptr[-1])
    duration = np.round(rng.exponential(5.0, n), 3) * (rng.random(n) < 0.8)
    gap = np.round(rng.exponential(1.0, n), 3) * (rng.random(n) < 0.5)
    rank = rng.random(n)
    for begin, end in itertools.pairwise(ptr):
        rank[begin:end].sort()
    parts = []
    for _ in range(int(rng.integers(0, 2 * n + 1)) if n > 1 else 0):
        a, b = rng.choice(n, 2, replace=False)
        src, dst = (a, b) if rank[a] < rank[b] else (b, a)
        kind = Link(int(rng.integers(0, 4)))
        parts.append(Links.of([src], [dst], kind, float(np.round(rng.normal(1.0, 2.0), 3))))
    return Schedule(ptr, duration, gap, Links.join(parts))


@pytest.fixture(scope="session")
def brute_force() -> Simulate:
    return simulate


@pytest.fixture(scope="session")
def make_schedule() -> MakeSchedule:
    return random_schedule
