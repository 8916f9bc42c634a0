"""Works that run side by side share SMs, memory bandwidth and links: piecewise constant rates.

Between two starts or ends on a device the set of running works is fixed, and so is the slowdown
of each. A collective holds as many SMs as it has channels; what is left is shared among the
kernels by water-filling, as is the memory's bandwidth, and the links among the collectives
(max-min fairness). A kernel whose blocks run in waves slows down by its number of waves, another
one in proportion; a kernel bound by memory does not feel missing SMs until they bind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp

import numpy as np

from gnnperf.graph.model import F64, I64, NONE, Bool
from gnnperf.timeline.lanes import Part
from gnnperf.timeline.replay import Result, StepSchedule, durations, solve_step

ROUNDS = 20
"""Times that starts and durations are made consistent with one another, at most."""
SETTLED = 1e-5
"""Change of any duration, as a share of the step, at which they are consistent."""
LARGEST_RESIDUAL = 2.5
"""A learned factor on the slowdown stays between 1 and this."""


@dataclass(frozen=True, eq=False)
class Demand:
    """What the works of one graph ask of their device when nothing else runs, [nodes] each."""

    compute_us: F64
    """time that the arithmetic alone takes on all SMs"""
    memory_us: F64
    """time that the bytes alone take at full bandwidth"""
    blocks: F64
    """blocks over blocks per SM: SMs that the work can use at once; 0 for copies"""
    waves: Bool
    """whether the blocks run in waves (not persistent, not split at will)"""
    channels: F64
    """SMs that a collective holds from its arrival to its end; 0 for all else"""
    link_share: F64
    """share of the links that a collective uses when alone"""
    residual: F64
    """learned logarithm of a further factor, applied only beside other work"""


COLUMNS = (
    "compute_us",
    "memory_us",
    "blocks",
    "waves",
    "channels",
    "link_share",
    "residual",
)
"""Columns of `Demand`, in the order of the fields of `Load` after its own time."""


@dataclass(frozen=True)
class Load:
    """The demand of one running work, as plain numbers."""

    base_us: float
    compute_us: float
    memory_us: float
    blocks: float
    waves: bool
    channels: float
    link_share: float
    residual: float = 0.0
    moving: bool = True
    """False: a collective that waits for other ranks, holding its SMs"""


def fill(wanted: Sequence[float], available: float) -> list[float]:
    """Max-min fair shares: nobody gets more than wanted, the rest is divided evenly."""
    shares = [0.0] * len(wanted)
    left = available
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for count, i in enumerate(order):
        shares[i] = min(wanted[i], max(left, 0.0) / (len(order) - count))
        left -= shares[i]
    return shares


def slowdowns(loads: Sequence[Load], sm_count: int) -> list[float]:
    """How many times longer each of the works takes while exactly these run (at least 1)."""
    if len(loads) == 1:
        return [1.0]
    held = min(sum(load.channels for load in loads), sm_count - 1.0)
    wanted = [0.0 if load.channels else min(load.blocks, float(sm_count)) for load in loads]
    sms = fill(wanted, sm_count - held)
    uses = [
        min(load.memory_us / load.base_us, 1.0) if load.moving and load.base_us > 0 else 0.0
        for load in loads
    ]
    memory = fill(uses, 1.0)
    links = fill([load.link_share if load.moving else 0.0 for load in loads], 1.0)
    found = []
    for i, load in enumerate(loads):
        by_sms = _by_sms(load, wanted[i], sms[i], sm_count)
        by_memory = uses[i] / memory[i] if memory[i] > 0 else 1.0
        by_link = load.link_share / links[i] if links[i] > 0 else 1.0
        bound = max(load.compute_us, load.memory_us)
        if bound > 0:
            slow = max(load.compute_us * by_sms, load.memory_us * by_memory) / bound
        else:
            slow = 1.0
        beside = min(max(exp(load.residual), 1.0), LARGEST_RESIDUAL)
        found.append(max(slow, by_link, 1.0) * beside)
    return found


def _by_sms(load: Load, wanted: float, given: float, sm_count: int) -> float:
    if wanted <= given or given <= 0:
        return 1.0
    if load.waves:
        return ceil(load.blocks / given - 1e-9) / ceil(load.blocks / sm_count - 1e-9)
    return wanted / given


def sweep(
    lane: I64, start_us: F64, hold_us: F64, base_us: F64, loads: Sequence[Load], sm_count: int
) -> F64:
    """[w] durations of works that start when they do and slow one another down.

    Args:
        lane: [w] stream of each work; works of one stream run one after the other.
        start_us: [w] when each work begins to move.
        hold_us: [w] when it takes its SMs (a collective: its arrival), not after `start_us`.
        base_us: [w] duration of each work alone.
        loads: [w] demands.
        sm_count: SMs of the device.
    """
    lanes, starts, holds = lane.tolist(), start_us.tolist(), hold_us.tolist()
    queues: dict[int, list[int]] = {}
    for i in np.lexsort((start_us, lane))[::-1].tolist():
        queues.setdefault(lanes[i], []).append(i)
    begin, left = list(starts), base_us.astype(np.float64).tolist()
    duration = np.full(len(lanes), np.nan)
    running: dict[int, int] = {}
    time = -np.inf
    while True:
        arrival, newcomer = min(
            ((holds[q[-1]], q[-1]) for s, q in queues.items() if q and s not in running),
            default=(np.inf, NONE),
        )
        works = list(running.values())
        slow = slowdowns(_now(loads, works, begin, time), sm_count) if works else []
        finish, leaver = min(
            ((max(begin[r], time) + left[r] * s, r) for r, s in zip(works, slow, strict=True)),
            default=(np.inf, NONE),
        )
        waking = min((begin[r] for r in works if begin[r] > time), default=np.inf)
        upcoming = min(max(arrival, time), waking, finish)
        if upcoming == np.inf:
            return duration
        for r, s in zip(works, slow, strict=True):
            if begin[r] <= time:
                left[r] = max(left[r] - (upcoming - time) / s, 0.0)
        time = upcoming
        if finish <= upcoming:
            duration[leaver] = time - begin[leaver]
            del running[lanes[leaver]]
        elif arrival <= time:
            queues[lanes[newcomer]].pop()
            begin[newcomer] = max(starts[newcomer], time)
            running[lanes[newcomer]] = newcomer


def _now(loads: Sequence[Load], works: list[int], begin: list[float], time: float) -> list[Load]:
    return [loads[r] if begin[r] <= time else replace(loads[r], moving=False) for r in works]


def contend(
    step: StepSchedule,
    device_us: Sequence[F64],
    demands: Sequence[Demand],
    sm_counts: Sequence[int],
) -> Result:
    """Run a step whose works' given durations are those of a device that they have alone.

    Starts and slowdowns are made consistent by turns. Where no works overlap, the result is
    exactly that of `run`.

    Args:
        step: The schedule of the step.
        device_us: For each graph [nodes] durations alone.
        demands: For each graph what its works ask for.
        sm_counts: For each graph the SMs of its device.
    """
    base = durations(step, device_us)
    current = base
    gap = step.schedule.gap_us
    result = solve_step(step, current, gap)
    for _ in range(ROUNDS):
        longer = base.copy()
        for g in range(len(step.job.graphs)):
            rows = np.flatnonzero((step.graph == g) & step.device & (step.part != Part.FIRST))
            longer[rows] = _contended(result, rows, base[rows], demands[g], sm_counts[g])
        joined = step.meeting >= 0
        if joined.any():
            most = np.zeros(int(step.meeting.max()) + 1)
            np.maximum.at(most, step.meeting[joined], longer[joined])
            longer[joined] = most[step.meeting[joined]]
        change = float(np.abs(longer - current).max())
        if change <= SETTLED * max(result.iteration_us, 1.0):
            break
        current = longer
        result = solve_step(step, current, gap)
    return result


def _contended(result: Result, rows: I64, base: F64, demand: Demand, sm_count: int) -> F64:
    """[r] durations of one rank's device works in the last repetition of a result."""
    step, times = result.step, result.times[-1]
    start = times.start_us[rows]
    hold = np.where(step.part[rows] == Part.SECOND, times.start_us[rows - 1], start)
    lane = step.schedule.lane_of[rows]
    end = times.end_us[rows]
    period = result.period_us if np.isfinite(result.period_us) else np.inf
    lapping = _overlapping(lane, hold, end, period)
    if not lapping.any():
        return base
    rows, base_of = rows[lapping], base[lapping]
    columns = (getattr(demand, c)[step.node[rows]].tolist() for c in COLUMNS)
    loads = [Load(*values) for values in zip(base_of.tolist(), *columns, strict=True)]
    lane, start, hold = lane[lapping], start[lapping], hold[lapping]
    longer = base.copy()
    if np.isfinite(period):
        # The repetition before may hang over the beginning of this one.
        start, hold = np.append(start - period, start), np.append(hold - period, hold)
        both = np.tile(base_of, 2)
        longer[lapping] = sweep(np.tile(lane, 2), start, hold, both, loads * 2, sm_count)[
            len(rows) :
        ]
    else:
        longer[lapping] = sweep(lane, start, hold, base_of, loads, sm_count)
    return longer


def _overlapping(lane: I64, begin: F64, end: F64, period: float) -> Bool:
    """[w] works beside which others run, in the same or in adjacent repetitions."""
    shifts = (-period, 0.0, period) if np.isfinite(period) else (0.0,)
    found = np.zeros(len(lane), np.bool_)
    for own in np.unique(lane):
        mine, theirs = np.flatnonzero(lane == own), np.flatnonzero(lane != own)
        from_us = np.concatenate([begin[theirs] + s for s in shifts])
        until_us = np.concatenate([end[theirs] + s for s in shifts])
        order = np.argsort(from_us, kind="stable")
        last = np.append(-np.inf, np.maximum.accumulate(until_us[order]))
        found[mine] = last[np.searchsorted(from_us[order], end[mine])] > begin[mine]
    return found
