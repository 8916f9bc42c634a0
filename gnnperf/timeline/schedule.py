"""A timeline as a max-plus problem: lanes of nodes in order, and edges between their events.

Every node has two events, its start and its end. With the node before it on its lane, its own
duration `d`, the lane's gap `g` and the edges that point at it they obey

    start[i] = max(end[i-1] + g[i], every edge into the start: time[source event] + lag)
    end[i]   = max(start[i] + d[i], every edge into the end:   time[source event] + lag)

so a host call that waits for the device is an edge from the end of the work to the end of the
call, and a collective is a pair of nodes (`Schedule.meet`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from gnnperf.errors import GnnperfError
from gnnperf.graph.model import F64, I32, I64, U8


class Link(IntEnum):
    """Which event of the source bounds which event of the destination."""

    END_START = 0
    START_START = 1
    END_END = 2
    START_END = 3


@dataclass(frozen=True, eq=False)
class Links:
    """Edges between events of nodes (one row each)."""

    src: I64
    dst: I64
    kind: U8
    """[e] Link"""
    lag_us: F64
    """[e] added to the source's time; may be negative"""
    back: I32
    """[e] how many steps before the destination's step the source lies; 0: in the same one"""

    @staticmethod
    def of(
        src: Sequence[int] | I64,
        dst: Sequence[int] | I64,
        kind: Link = Link.END_START,
        lag_us: float | F64 = 0.0,
        back: int | I32 = 0,
    ) -> "Links":
        """Edges of one kind, scalars repeated."""
        sources, targets = np.asarray(src, np.int64), np.asarray(dst, np.int64)
        shape = sources.shape
        return Links(
            sources,
            targets,
            np.full(shape, int(kind), np.uint8),
            np.broadcast_to(np.asarray(lag_us, np.float64), shape).copy(),
            np.broadcast_to(np.asarray(back, np.int32), shape).copy(),
        )

    @staticmethod
    def join(parts: Sequence["Links"]) -> "Links":
        """All rows of several tables, in order."""
        if not parts:
            return Links.of([], [])
        return Links(
            np.concatenate([p.src for p in parts]),
            np.concatenate([p.dst for p in parts]),
            np.concatenate([p.kind for p in parts]),
            np.concatenate([p.lag_us for p in parts]),
            np.concatenate([p.back for p in parts]),
        )

    @staticmethod
    def meet(arrive: I64, transfer: I64) -> "Links":
        """One collective: no member's transfer starts before every member has arrived.

        Args:
            arrive: [m] nodes of duration 0, each the lane's predecessor of its transfer.
            transfer: [m] nodes of equal duration; they start together at the latest arrival.
        """
        gather = Links.of(arrive[1:], np.full(len(arrive) - 1, transfer[0], np.int64))
        spread = Links.of(
            np.full(len(arrive) - 1, transfer[0], np.int64), transfer[1:], Link.START_START
        )
        return Links.join([gather, spread])

    def __len__(self) -> int:
        return len(self.src)

    @property
    def source_event(self) -> I64:
        """[e] 2 * node for its start, 2 * node + 1 for its end."""
        return 2 * self.src + 1 - (self.kind & 1)

    @property
    def target_event(self) -> I64:
        """[e] 2 * node for its start, 2 * node + 1 for its end."""
        return 2 * self.dst + (self.kind >> 1)

    def take(self, rows: I64) -> "Links":
        """The given rows."""
        return Links(
            self.src[rows], self.dst[rows], self.kind[rows], self.lag_us[rows], self.back[rows]
        )


@dataclass(frozen=True, eq=False)
class Schedule:
    """Lanes, their nodes one lane after the other, and the edges between nodes' events."""

    lane_ptr: I64
    """[l + 1] lane -> its nodes, in the order in which they run"""
    duration_us: F64
    """[n]"""
    gap_us: F64
    """[n] least time between the end of the node before it on its lane and its start"""
    links: Links

    def __post_init__(self) -> None:
        n = len(self.duration_us)
        if self.lane_ptr[0] != 0 or self.lane_ptr[-1] != n or len(self.gap_us) != n:
            raise GnnperfError("the lanes of a schedule do not cover its nodes")
        ends = np.concatenate([self.links.src, self.links.dst])
        if len(ends) and (ends.min() < 0 or ends.max() >= n):
            raise GnnperfError("an edge of a schedule points outside of its nodes")
        if not np.isfinite(self.duration_us).all() or (self.duration_us < 0).any():
            raise GnnperfError("a duration of a schedule is negative or not a number")

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.duration_us)

    @property
    def lane_of(self) -> I64:
        """[n] lane of each node."""
        return np.repeat(np.arange(len(self.lane_ptr) - 1), np.diff(self.lane_ptr))

    @property
    def first_of_lane(self) -> I64:
        """First node of each lane that has any."""
        return self.lane_ptr[:-1][np.diff(self.lane_ptr) > 0]

    def with_durations(self, duration_us: F64) -> "Schedule":
        """The same problem with other durations."""
        return replace(self, duration_us=duration_us)

    def reversed(self) -> "Schedule":
        """The problem in mirrored time: node i becomes n - 1 - i, starts become ends.

        Its end times are the longest ways from a node's start to the end of everything.
        """
        n = self.num_nodes
        gap = np.zeros(n)
        gap[:-1] = self.gap_us[1:]
        gap[self.lane_ptr[1:][np.diff(self.lane_ptr) > 0] - 1] = self.gap_us[self.first_of_lane]
        kind = self.links.kind
        flipped = np.where((kind == Link.START_START) | (kind == Link.END_END), 3 - kind, kind)
        links = Links(
            n - 1 - self.links.dst,
            n - 1 - self.links.src,
            flipped.astype(np.uint8),
            self.links.lag_us,
            self.links.back,
        )
        return Schedule(n - self.lane_ptr[::-1], self.duration_us[::-1], gap[::-1], links)
