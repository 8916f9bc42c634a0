"""The exact solution of a schedule in O(n) vectorized work.

Between two synchronization points a lane is a Lindley recursion, which is solved at once:
with c = gap + duration and C = cumsum(c), the ends are C + cummax(reach - C), where reach is what
the edges alone ask of an end. The lanes advance in turn, each as far as the sources of its edges
are known, so that the Python loop runs once per synchronization point, not once per node.
"""

from dataclasses import dataclass

import numpy as np

from gnnperf.errors import GnnperfError
from gnnperf.graph.model import F64, I32
from gnnperf.timeline.schedule import Schedule

SEGMENT = 8192
"""Longest piece of a lane solved at once: the sums start anew, so that no digits are lost."""
PROBE = 64
"""Nodes looked at first when searching how far a lane can advance."""


@dataclass(frozen=True, eq=False)
class Times:
    """When the nodes of a schedule run."""

    event_us: F64
    """[2 n] start and end of node 0, start and end of node 1, ..."""

    @property
    def start_us(self) -> F64:
        """Microseconds of each node, [n]."""
        return self.event_us[0::2]

    @property
    def end_us(self) -> F64:
        """Microseconds of each node, [n]."""
        return self.event_us[1::2]


class Scan:
    """Solves one schedule, as often as asked (for each step of an unrolled one)."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        links = schedule.links
        within = np.flatnonzero(links.back == 0)
        within = within[np.argsort(links.src[within], kind="stable")]
        self._links = links.take(within)
        self._source, self._target = self._links.source_event, self._links.target_event
        n = schedule.num_nodes
        self._out = np.searchsorted(self._links.src, np.arange(n + 1))
        self._waiting = np.bincount(self._links.dst, minlength=n).astype(np.int32)
        self._target_lane = schedule.lane_of[self._links.dst]

    def solve(self, least_us: F64 | None = None, ready_us: F64 | None = None) -> Times:
        """All event times.

        Args:
            least_us: [2 n] the earliest time of each event (-inf: no bound).
            ready_us: [l] end of what ran on each lane before (-inf: nothing did). Without both,
                every lane starts at time 0.

        Raises:
            GnnperfError: The edges form a circle.
        """
        schedule = self.schedule
        n, lanes = schedule.num_nodes, len(schedule.lane_ptr) - 1
        least = np.full(2 * n, -np.inf) if least_us is None else least_us.copy()
        if least_us is None and ready_us is None:
            least[2 * schedule.first_of_lane] = 0.0
        ready = np.full(lanes, -np.inf) if ready_us is None else ready_us.copy()
        times = np.full(2 * n, -np.inf)
        waiting = self._waiting.copy()
        place, stop = schedule.lane_ptr[:-1].tolist(), schedule.lane_ptr[1:].tolist()
        todo = list(range(lanes))
        queued = [True] * lanes
        while todo:
            lane = todo.pop()
            queued[lane] = False
            begin = place[lane]
            end = _advance(waiting, begin, min(stop[lane], begin + SEGMENT))
            if end == begin:
                continue
            ready[lane] = self._segment(begin, end, float(ready[lane]), least, times)
            place[lane] = end
            woken = self._release(begin, end, times, least, waiting)
            if end < stop[lane]:
                woken.append(lane)
            for other in woken:
                if not queued[other]:
                    queued[other] = True
                    todo.append(other)
        if place != stop:
            stuck = next(p for p, s in zip(place, stop, strict=True) if p != s)
            raise GnnperfError(f"the timeline's dependencies form a circle at node {stuck}")
        return Times(times)

    def _segment(self, begin: int, end: int, ready: float, least: F64, times: F64) -> float:
        duration = self.schedule.duration_us[begin:end]
        gap = self.schedule.gap_us[begin:end]
        sums = np.cumsum(gap + duration)
        start_bound, end_bound = least[2 * begin : 2 * end : 2], least[2 * begin + 1 : 2 * end : 2]
        reach = np.maximum(start_bound + duration, end_bound) - sums
        reach[0] = max(reach[0], ready)
        ends = sums + np.maximum.accumulate(reach)
        starts = times[2 * begin : 2 * end : 2]
        starts[0] = ready + gap[0]
        np.add(ends[:-1], gap[1:], out=starts[1:])
        np.maximum(starts, start_bound, out=starts)
        times[2 * begin + 1 : 2 * end : 2] = ends
        return float(ends[-1])

    def _release(self, begin: int, end: int, times: F64, least: F64, waiting: I32) -> list[int]:
        rows = slice(self._out[begin], self._out[end])
        if rows.start == rows.stop:
            return []
        value = times[self._source[rows]] + self._links.lag_us[rows]
        np.maximum.at(least, self._target[rows], value)
        np.subtract.at(waiting, self._links.dst[rows], 1)
        lanes: list[int] = np.flatnonzero(np.bincount(self._target_lane[rows])).tolist()
        return lanes


def _advance(waiting: I32, begin: int, limit: int) -> int:
    """First node from `begin` on that still waits for a source, or `limit`."""
    size = PROBE
    while begin < limit:
        part = waiting[begin : min(begin + size, limit)]
        blocked = int(np.argmax(part > 0)) if len(part) else 0
        if len(part) and part[blocked] > 0:
            return begin + blocked
        begin += len(part)
        size *= 4
    return limit


def solve(schedule: Schedule) -> Times:
    """All event times of a schedule whose lanes start at time 0 (edges over steps left out)."""
    return Scan(schedule).solve()
