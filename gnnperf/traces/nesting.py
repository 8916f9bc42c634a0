"""Which call encloses which on a thread, without a loop over the calls."""

import numpy as np
from numpy.typing import NDArray

from gnnperf.graph.model import F64, I32, I64, NONE


def enclosing(
    lane: I32, start_us: F64, end_us: F64, tie: I64, tolerance_us: float
) -> tuple[I64, I64]:
    """Parent of every interval: the innermost one of its lane that is open when it starts.

    Intervals of one lane are nested up to `tolerance_us`: where one starts within the tolerance
    of another's end, it follows that one. Clocks are coarse, so many start at the same time:
    those are taken in ascending order of `tie` (the order in which calls were made), and one of
    no length that starts where others end, with none of that time before it, lies in those.

    Returns:
        parent [n] (NONE at top level) and depth [n] (0 at top level).
    """
    n = len(lane)
    parent, depths = np.full(n, NONE, np.int64), np.zeros(n, np.int64)
    if n == 0:
        return parent, depths
    order = np.lexsort((-end_us, tie, start_us, lane))
    lanes, starts, ends = lane[order].astype(np.int64), start_us[order], end_us[order]
    depth = _depth(lanes, starts, np.maximum(ends - tolerance_us, starts))
    parent[order] = _last_of_depth(lanes, depth, order)
    depths[order] = depth
    return parent, depths


def _depth(lanes: I64, starts: F64, closing: F64) -> I64:
    """How many intervals of its lane are open when each starts (rows sorted by lane, start)."""
    n = len(lanes)
    instant = closing <= starts
    early = instant & ~_follows_longer(lanes, starts, ~instant)
    # ties in time: early instants, then what closes, then what opens (instants open and close)
    opening_rank = np.where(early, 0, 2).astype(np.int8)
    closing_rank = np.where(instant, opening_rank, 1).astype(np.int8)
    row = np.arange(n)
    position = np.lexsort(
        (
            np.concatenate([row, row]),
            np.concatenate([opening_rank, closing_rank]),
            np.concatenate([starts, closing]),
            np.concatenate([lanes, lanes]),
        )
    )
    opens = position < n
    level = np.cumsum(np.where(opens, 1, -1))
    depth = np.empty(n, np.int64)
    depth[position[opens]] = level[opens] - 1
    return depth


def _follows_longer(lanes: I64, starts: F64, longer: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether a longer interval that starts at the same time stands in an earlier row."""
    new = np.ones(len(lanes), np.bool_)
    new[1:] = (lanes[1:] != lanes[:-1]) | (starts[1:] != starts[:-1])
    before: I64 = np.cumsum(longer) - longer
    at_first: I64 = before[np.flatnonzero(new)]
    return np.asarray(before > at_first[np.cumsum(new) - 1])


def _last_of_depth(lanes: I64, depth: I64, order: I64) -> I64:
    """The last row before each that lies one level higher in the same lane; NONE at level 0."""
    n = len(lanes)
    row = np.arange(n)
    by_depth = np.argsort(depth, kind="stable")
    key = depth[by_depth] * n + by_depth
    found = by_depth[np.maximum(np.searchsorted(key, (depth - 1) * n + row) - 1, 0)]
    usable = (depth > 0) & (found < row) & (lanes[found] == lanes) & (depth[found] == depth - 1)
    return np.where(usable, order[found], NONE)


def nearest_marked(parent: I32, marked: NDArray[np.bool_]) -> I64:
    """The nearest of a node and its ancestors that is marked; NONE if none is.

    Pointer doubling: as many rounds as the logarithm of the depth.
    """
    n = len(parent)
    jump = np.append(np.where(marked, np.arange(n), np.where(parent < 0, n, parent)), n)
    while True:
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        jump = further
    return np.where(jump[:n] == n, NONE, jump[:n])
