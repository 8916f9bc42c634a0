"""Works that run side by side share SMs, memory bandwidth and links: piecewise constant rates.

Between two starts or ends on a device the set of running works is fixed, and so is the slowdown
of each. A collective holds as many SMs as it has channels; what is left is shared among the
kernels by water-filling, as is the memory's bandwidth, and the links among the collectives
(max-min fairness). A kernel whose blocks run in waves slows down by its number of waves, another
one in proportion; a kernel bound by memory does not feel missing SMs until they bind it.
Starts (the exact scan) and durations (the segments between events) are made consistent by turns;
where no works overlap nothing is computed and nothing changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from gnnperf.graph.model import F64, I64, Bool
from gnnperf.timeline.lanes import Part
from gnnperf.timeline.replay import Result, StepSchedule, solve_step

ROUNDS = 12
"""Times that starts and durations are made consistent with one another, at most."""
DAMPED = 8
"""Rounds after which a duration moves only half of its way: what swings comes to rest."""
SETTLED = 1e-4
"""Change of any duration, as a share of the step, at which they are consistent."""


@dataclass(frozen=True, eq=False)
class Demand:
    """What works ask of their device when nothing else runs, [nodes of a graph] each."""

    compute_us: F64
    """time that the arithmetic alone takes on all SMs"""
    memory_us: F64
    """time that the bytes alone take at the bandwidth that streams reach"""
    latency_us: F64
    """part of the time that nothing beside it changes: what a kernel of no work lasts"""
    blocks: F64
    """blocks over blocks per SM: SMs that the work can use at once; 0 for copies"""
    waves: Bool
    """whether the blocks run in waves (not persistent, not split at will)"""
    channels: F64
    """SMs that a collective holds from its arrival to its end; 0 for all else"""
    link_share: F64
    """share of the links that a collective uses when alone"""
    settled: Bool
    """whether the duration already holds what ran beside the work: it slows others, not itself"""

    def take(self, rows: I64) -> "Demand":
        """The given rows (of any shape)."""
        return Demand(*(getattr(self, f.name)[rows] for f in fields(self)))

    def scaled(self, factor: float) -> "Demand":
        """The same works, each taking `factor` times as long alone."""
        times = {name: getattr(self, name) * factor for name in _TIMES}
        return replace(self, **times)


_TIMES = ("compute_us", "memory_us", "latency_us")


@dataclass(frozen=True, eq=False)
class Contended:
    """A step whose works slowed one another down."""

    result: Result
    factor: tuple[F64, ...]
    """for every graph [nodes] duration beside the others over duration alone, 1 where alone"""
    alone_us: float
    """time of the step with every work as fast as alone"""
    rest_us: float
    """largest change of a duration in the last round: 0 where starts and durations agree"""

    @property
    def added_us(self) -> float:
        """What the contention adds to the step."""
        return max(self.result.iteration_us - self.alone_us, 0.0)


def fill(wanted: F64, available: F64) -> F64:
    """Max-min fair shares, [s, l]: nobody gets more than wanted, the rest is divided evenly.

    Args:
        wanted: [s, l] wishes of l works in s situations.
        available: [s] what there is to share.
    """
    order = np.argsort(wanted, axis=1, kind="stable")
    ranked = np.take_along_axis(wanted, order, axis=1)
    shares = np.zeros_like(wanted)
    left = available.astype(np.float64)
    count = wanted.shape[1]
    for k in range(count):
        given = np.minimum(ranked[:, k], np.maximum(left, 0.0) / (count - k))
        np.put_along_axis(shares, order[:, k : k + 1], given[:, None], axis=1)
        left = left - given
    return shares


def slowdowns(load: Demand, base_us: F64, running: Bool, moving: Bool, sm_count: int) -> F64:
    """How many times longer each work takes while exactly these run: [s, l], at least 1.

    Args:
        load: Demands of l works in s situations, [s, l] each.
        base_us: [s, l] their durations alone.
        running: [s, l] which of them run.
        moving: [s, l] False for a collective that waits for other ranks, holding its SMs.
        sm_count: SMs of the device.
    """
    held = np.minimum((load.channels * running).sum(axis=1), sm_count - 1.0)
    computes = running & (load.channels == 0)
    wanted = np.where(computes, np.minimum(load.blocks, float(sm_count)), 0.0)
    by_sms = _by_sms(load, wanted, fill(wanted, sm_count - held), sm_count)
    active = running & moving & (base_us > 0)
    uses = np.where(active, np.minimum(load.memory_us / np.where(active, base_us, 1.0), 1.0), 0.0)
    by_memory = _over(uses, fill(uses, np.ones(len(uses))))
    links = np.where(active, load.link_share, 0.0)
    by_link = _over(links, fill(links, np.ones(len(links))))
    bound = np.maximum(load.compute_us, load.memory_us)
    worst = np.maximum(load.compute_us * by_sms, load.memory_us * by_memory)
    slow = np.maximum(np.where(bound > 0, worst / np.where(bound > 0, bound, 1.0), 1.0), by_link)
    fixed = np.where(active, np.minimum(load.latency_us / np.where(active, base_us, 1.0), 1.0), 1.0)
    slow = np.maximum(fixed + (1.0 - fixed) * slow, 1.0)
    alone = running.sum(axis=1, keepdims=True) <= 1
    return np.where(alone | load.settled | ~running, 1.0, slow)


def _over(wanted: F64, given: F64) -> F64:
    return np.where(given > 0, wanted / np.where(given > 0, given, 1.0), 1.0)


def _by_sms(load: Demand, wanted: F64, given: F64, sm_count: int) -> F64:
    short = (wanted > given * (1 + 1e-12)) & (given > 0)
    have = np.where(short, given, 1.0)
    waves = np.ceil(load.blocks / have - 1e-9) / np.maximum(np.ceil(load.blocks / sm_count), 1.0)
    return np.where(short, np.where(load.waves, waves, wanted / have), 1.0)


@dataclass(frozen=True, eq=False)
class Works:
    """Works of one device in the order of a schedule, [w] each."""

    lane: I64
    """stream; works of one stream run one after the other"""
    hold_us: F64
    """when it takes its SMs: its start, or the arrival of a collective that waits"""
    start_us: F64
    """when it begins to move"""
    duration_us: F64
    """from `start_us` on"""


def stretched(works: Works, base_us: F64, load: Demand, sm_count: int, period_us: float) -> F64:
    """[w] durations at which each work does all of its work, if starts and rates stay.

    Args:
        works: When they run.
        base_us: [w] their durations alone.
        load: [w] their demands.
        sm_count: SMs of the device.
        period_us: After which all of it recurs; infinite for a single step.
    """
    begin, start = works.hold_us, works.start_us
    end = start + works.duration_us
    points = np.unique(np.concatenate([begin, start, end]))
    shifts = [0.0]
    if np.isfinite(period_us):
        shifts = [0.0, -period_us, period_us]
        events = np.concatenate([begin, start, end])
        other = np.concatenate([events - period_us, events + period_us])
        other = other[(other > points[0]) & (other < points[-1])]
        points = np.unique(np.concatenate([points, other]))
    middle, length = (points[1:] + points[:-1]) / 2, np.diff(points)
    lanes = np.unique(works.lane)
    which, own = (np.zeros((len(middle), len(lanes)), t) for t in (np.int64, np.bool_))
    running, moving = np.zeros_like(own), np.zeros_like(own)
    for column, lane in enumerate(lanes.tolist()):
        member = np.flatnonzero(works.lane == lane)
        row = np.concatenate([member for _ in shifts])
        shift = np.repeat(shifts, len(member))
        order = np.argsort(begin[row] + shift, kind="stable")
        row, shift = row[order], shift[order]
        at = np.searchsorted(begin[row] + shift, middle, side="right") - 1
        here, moved = row[np.maximum(at, 0)], shift[np.maximum(at, 0)]
        which[:, column] = here
        running[:, column] = (at >= 0) & (middle < end[here] + moved)
        moving[:, column] = middle >= start[here] + moved
        own[:, column] = running[:, column] & moving[:, column] & (moved == 0)
    busy = running.sum(axis=1) > 1
    which, own, length = which[busy], own[busy], length[busy]
    slow = slowdowns(load.take(which), base_us[which], running[busy], moving[busy], sm_count)
    idle = np.where(own, length[:, None] * (1.0 - 1.0 / slow), 0.0)
    lost = np.bincount(which.ravel(), idle.ravel(), len(base_us))
    # What is missing at the end (or too much) is done at the last rate.
    last = np.ones(len(base_us))
    touched = own & (end[which] <= (points[1:][busy])[:, None])
    last[which[touched]] = slow[touched]
    missing = base_us - (works.duration_us - lost)
    return np.maximum(works.duration_us + missing * last, base_us)


def overlaps(result: Result) -> bool:
    """Whether any works of one device run at the same time."""
    for g in range(len(result.step.job.graphs)):
        _, lane, hold, end = _device_works(result, g)
        if _overlapping(lane, hold, end, _period(result)).any():
            return True
    return False


def contend(
    alone: Result, demands: Sequence[Demand], sm_counts: Sequence[int], kernel_scale: float = 1.0
) -> Contended:
    """Run a step again whose works were given durations of a device that they have alone.

    Args:
        alone: The step as it would be with these durations.
        demands: For each graph what its works ask for.
        sm_counts: For each graph the SMs of its device.
        kernel_scale: Factor on all device work that `alone` was run with: demands grow as well.
    """
    step, result = alone.step, alone
    base, gap = alone.schedule.duration_us, alone.schedule.gap_us
    demands = [demand.scaled(kernel_scale) for demand in demands]
    current, change = base, 0.0
    for count in range(ROUNDS):
        longer = base.copy()
        for g, demand in enumerate(demands):
            rows, values = _contended(result, g, base, (demand, sm_counts[g]))
            longer[rows] = values
        _join(step, longer)
        change = float(np.abs(longer - current).max(initial=0.0))
        if change <= SETTLED * max(result.iteration_us, 1.0):
            break
        current = (current + longer) / 2 if count >= DAMPED else longer
        result = solve_step(step, current, gap)
    factor = []
    ratio = np.where(base > 0, current / np.where(base > 0, base, 1.0), 1.0)
    for g, graph in enumerate(step.job.graphs):
        own = np.flatnonzero((step.graph == g) & step.is_work & step.device & (step.node >= 0))
        values = np.ones(graph.num_nodes)
        values[step.node[own]] = ratio[own]
        factor.append(values)
    return Contended(result, tuple(factor), alone.iteration_us, change)


def _join(step: StepSchedule, duration: F64) -> None:
    """A transfer takes on all of its ranks what it takes on the slowest."""
    joined = step.meeting >= 0
    if joined.any():
        most = np.zeros(int(step.meeting.max()) + 1)
        np.maximum.at(most, step.meeting[joined], duration[joined])
        duration[joined] = most[step.meeting[joined]]


def _period(result: Result) -> float:
    return result.period_us if np.isfinite(result.period_us) else np.inf


def _device_works(result: Result, graph: int) -> tuple[I64, I64, F64, F64]:
    """Works of one rank: node of the schedule, lane, when it takes its SMs, when it ends."""
    step, times = result.step, result.times[-1]
    rows = np.flatnonzero((step.graph == graph) & step.device & (step.part != Part.FIRST))
    start = times.start_us[rows]
    hold = np.where(step.part[rows] == Part.SECOND, times.start_us[rows - 1], start)
    return rows, step.schedule.lane_of[rows], hold, times.end_us[rows]


def _contended(result: Result, graph: int, base: F64, how: tuple[Demand, int]) -> tuple[I64, F64]:
    """Works of one rank that overlap others in the last repetition, and their durations."""
    step, (demand, sm_count), period = result.step, how, _period(result)
    rows, lane, hold, end = _device_works(result, graph)
    lapping = np.flatnonzero(_overlapping(lane, hold, end, period))
    rows = rows[lapping]
    if not len(rows):
        return rows, base[rows]
    duration = result.schedule.duration_us[rows]
    works = Works(lane[lapping], hold[lapping], result.times[-1].start_us[rows], duration)
    load = demand.take(step.node[rows].astype(np.int64))
    return rows, stretched(works, base[rows], load, sm_count, period)


def _overlapping(lane: I64, begin: F64, end: F64, period: float) -> Bool:
    """[w] works beside which others run, in the same or in adjacent repetitions."""
    found = np.zeros(len(lane), np.bool_)
    if not len(lane) or lane.min() == lane.max():
        return found
    shifts = (-period, 0.0, period) if np.isfinite(period) else (0.0,)
    for own in np.unique(lane):
        mine, theirs = np.flatnonzero(lane == own), np.flatnonzero(lane != own)
        from_us = np.concatenate([begin[theirs] + s for s in shifts])
        until_us = np.concatenate([end[theirs] + s for s in shifts])
        order = np.argsort(from_us, kind="stable")
        last = np.append(-np.inf, np.maximum.accumulate(until_us[order]))
        found[mine] = last[np.searchsorted(from_us[order], end[mine])] > begin[mine]
    return found
