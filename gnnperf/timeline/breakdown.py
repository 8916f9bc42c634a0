"""Where the time of a replayed step goes: its breakdown, its critical path, the slack of nodes."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gnnperf.graph.kinds import NodeKind
from gnnperf.graph.model import F64, I32, I64, NONE, U8, Bool
from gnnperf.timeline.critical import binding_events
from gnnperf.timeline.lanes import Part
from gnnperf.timeline.replay import Result, solve_step
from gnnperf.timeline.scan import Scan, Times
from gnnperf.timeline.schedule import Schedule

BREAKDOWN = (
    "compute",
    "communication",
    "exposed_communication",
    "host_bound_idle",
    "copy",
    "overlap",
)


def breakdown(result: Result) -> dict[str, float]:
    """Microseconds of one step by what the device did, the mean over the ranks.

    compute: some kernel runs; communication: some collective runs (its waiting for other ranks
    included); exposed_communication: a collective runs and no kernel does; copy: only copies run;
    overlap: kernels run beside collectives or copies; host_bound_idle: nothing runs. So compute,
    exposed_communication, copy and host_bound_idle add up to the step.
    """
    rows = []
    for g, graph in enumerate(result.step.job.graphs):
        works, start, end = works_of(result, g)
        rows.append(_of_rank(start, end, graph.nodes.kind[works], result.period_us))
    mean = np.mean(rows, axis=0)
    return dict(zip(BREAKDOWN, mean.tolist(), strict=True))


def works_of(result: Result, graph: int) -> tuple[I64, F64, F64]:
    """The works of a rank (of a step on the CPU: all on its lanes), their starts and ends."""
    start, end = result.node_times(graph)
    device = result.step.job.graphs[graph].device_nodes
    if not len(device):
        device = np.unique(result.step.node[result.step.graph == graph]).astype(np.int64)
        device = device[device >= 0]
    device = device[np.isfinite(start[device]) & np.isfinite(end[device])]
    return device, start[device], end[device]


def segments(start: F64, end: F64, period: float) -> tuple[F64, I64, I64]:
    """A rank's works cut at every start and end, the repeating step folded on one period.

    Returns:
        [s] lengths of the pieces between events; and for the events, ascending [s + 1], which
        work each is of and whether it starts (1) or ends (-1).
    """
    which = np.arange(len(start))
    if np.isfinite(period):
        start, end, which = _fold(start, end, period)
    points = np.concatenate([start, end])
    order = np.argsort(points, kind="stable")
    change = np.repeat([1, -1], len(start))[order]
    return np.diff(points[order]), np.concatenate([which, which])[order], change


def _of_rank(start: F64, end: F64, kind: U8, period: float) -> list[float]:
    total = period
    if not np.isfinite(period):
        total = float(end.max() - start.min()) if len(start) else 0.0
    lengths, which, change = segments(start, end, period)
    kinds = kind[which]
    classes = ((NodeKind.COLLECTIVE,), (NodeKind.COPY,))
    comm, copy = (np.cumsum(change * np.isin(kinds, c))[:-1] > 0 for c in classes)
    compute = np.cumsum(change * ~np.isin(kinds, (NodeKind.COLLECTIVE, NodeKind.COPY)))[:-1] > 0

    def length(where: Bool) -> float:
        return float(lengths[where].sum())

    return [
        length(compute),
        length(comm),
        length(comm & ~compute),
        max(total - length(compute | comm | copy), 0.0),
        length(copy & ~compute & ~comm),
        length(compute & (comm | copy)),
    ]


def _fold(start: F64, end: F64, period: float) -> tuple[F64, F64, I64]:
    """Intervals of a repeating step on one period, and which work each is of.

    What hangs over the end of the period is at its start.
    """
    length = np.minimum(end - start, period)
    start = np.mod(start, period)
    end = start + length
    over = end > period
    return (
        np.concatenate([start, np.zeros(int(over.sum()))]),
        np.concatenate([np.minimum(end, period), end[over] - period]),
        np.concatenate([np.arange(len(start)), np.flatnonzero(over)]),
    )


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The chain of work that fixes the time of a step, the earliest first."""

    graph: I32
    """[p] graph of the job"""
    node: I32
    """[p] node of that graph; NONE for a call that the graph does not hold"""
    issued: I32
    """[p] that node, or the work that such a call launches"""
    start_us: F64
    """[p] on the clock of the repetitions"""
    own_us: F64
    """[p] time that the path spends in the node"""
    before_us: F64
    """[p] time that passes before it starts: launch latency, gap, the host's own work"""


def critical_path(result: Result) -> CriticalPath:
    """The critical path over one period, or over the whole of a single step.

    Where work starts before what it waits for has ended (in its last wave, during its launch),
    the path leaves that one early.
    """
    step = result.step
    last = len(result.times) - 1
    begin = -np.inf
    if np.isfinite(result.period_us):
        event = 2 * result.sink
        begin = float(result.times[-2].start_us[result.sink])
    else:
        event = 2 * result.sink + 1
    rows: list[tuple[int, float, float, float]] = []
    early = 0.0
    for source, source_time, target, time, _ in walk_back(result, last, event):
        if time <= begin:
            break
        since = max(source_time, begin)
        spent = time - since - early
        early, spent = max(-spent, 0.0), max(spent, 0.0)
        own = target % 2 == 1 and source == target - 1
        inside, before = 0.0, 0.0
        if rows and rows[-1][0] == target // 2:
            _, _, inside, before = rows.pop()
        inside, before = (inside + spent, before) if own else (inside, before + spent)
        rows.append((target // 2, since if own else time, inside, before))
    rows.reverse()
    at = np.array([r[0] for r in rows], np.int64)
    return CriticalPath(
        step.graph[at],
        step.node[at],
        _issued(result)[at],
        np.array([r[1] for r in rows]),
        np.array([r[2] for r in rows]),
        np.array([r[3] for r in rows]),
    )


def _issued(result: Result) -> I32:
    """[m] node of the graph that each is; for calls without one the work that they launch."""
    step, links = result.step, result.schedule.links
    launches = (step.node[links.src] == NONE) & step.device[links.dst] & (links.back == 0)
    issued = step.node.copy()
    issued[links.src[launches]] = step.node[links.dst[launches]]
    return issued


class Hop(NamedTuple):
    """One step back along what binds."""

    source: int
    """the event that binds"""
    source_us: float
    target: int
    """the event that is bound"""
    time_us: float
    row: int
    """the row of the schedule's links that carries it; NONE: the lane, or the own duration"""


def walk_back(result: Result, count: int, event: int) -> list[Hop]:
    """From an event of a repetition back to where nothing binds, through all repetitions."""
    path = []
    binders: dict[int, tuple[list[int], list[int]]] = {}
    while count >= 0:
        if count not in binders:
            binder, edge = binding_events(result.schedule, result.times[count])
            binders[count] = binder.tolist(), edge.tolist()
        time = float(result.times[count].event_us[event])
        source, row, where = binders[count][0][event], binders[count][1][event], count
        if source == NONE:
            source, where = _over_steps(result, count, event)
        if source == NONE:
            break
        path.append(Hop(source, float(result.times[where].event_us[source]), event, time, row))
        event, count = source, where
    return path


def _over_steps(result: Result, count: int, event: int) -> tuple[int, int]:
    """The event of an earlier repetition that binds an event, and that repetition."""
    schedule = result.schedule
    time = result.times[count].event_us[event]
    best, found = -np.inf, (NONE, count)
    lane = int(np.searchsorted(schedule.lane_ptr, event // 2, side="right")) - 1
    if event == 2 * int(schedule.lane_ptr[lane]) and count > 0:
        source = 2 * int(schedule.lane_ptr[lane + 1]) - 1
        best = float(result.times[count - 1].event_us[source] + schedule.gap_us[event // 2])
        found = (source, count - 1)
    links = schedule.links
    rows = np.flatnonzero((links.back > 0) & (links.back <= count) & (links.dst == event // 2))
    for row in rows[links.target_event[rows] == event].tolist():
        source, where = int(links.source_event[row]), count - int(links.back[row])
        value = float(result.times[where].event_us[source] + links.lag_us[row])
        if value > best:
            best, found = value, (source, where)
    return found if best >= time - 1e-6 else (NONE, count)


def slack(result: Result) -> list[F64]:
    """How much longer each node may take, for every graph [nodes], NaN where off the timeline.

    Of a repeated step: by how much it may end later in one repetition without delay to the first
    device work two repetitions later, and no more than its lane has to spare in every one (a
    node that grows each time may meet narrower circles through several lanes). Of a single
    step: without delay to its last device work.
    """
    step, schedule = result.step, result.schedule
    mirrored = Scan(schedule.reversed())
    n = schedule.num_nodes
    periodic = np.isfinite(result.period_us)
    sinks = 2 * np.unique(np.append(step.marker, result.sink))
    if not periodic:
        sinks = 2 * np.flatnonzero(step.device) + 1
    ahead = min(len(result.times), 3) if periodic else 1
    least = np.full(2 * n, -np.inf)
    limit = float(result.times[-1].event_us[sinks].max())
    aim = result.times[-1].event_us[sinks] if periodic else np.full(len(sinks), limit)
    least[2 * n - 1 - sinks] = -aim
    history = [mirrored.solve(least, np.full(len(schedule.lane_ptr) - 1, -np.inf))]
    for _ in range(ahead - 1):
        history.append(_step_back(schedule, mirrored, history))
    latest = -history[-1].event_us[::-1]
    room = (latest - result.times[-ahead].event_us)[1::2]
    lanes = schedule.lane_of
    load = np.bincount(lanes, schedule.duration_us + schedule.gap_us)[lanes]
    room = np.clip(room, 0.0, np.maximum(result.period_us - load, 0.0) if periodic else limit)
    found = []
    for g, graph in enumerate(step.job.graphs):
        values = np.full(graph.num_nodes, np.nan)
        own = np.flatnonzero((step.graph == g) & (step.part != Part.FIRST))
        values[step.node[own]] = room[own]
        found.append(values)
    return found


def _step_back(schedule: Schedule, mirrored: Scan, history: list[Times]) -> Times:
    """The mirrored times of the repetition before those of `history`, the last of all first."""
    links = mirrored.schedule.links
    ptr = mirrored.schedule.lane_ptr
    filled = np.diff(ptr) > 0
    ready = np.full(len(ptr) - 1, -np.inf)
    # In mirrored time the lane's gap over the step's edge belongs to the node that comes later.
    ready[filled] = history[-1].end_us[ptr[1:][filled] - 1]
    least = np.full(2 * schedule.num_nodes, -np.inf)
    for back in np.unique(links.back[(links.back > 0) & (links.back <= len(history))]).tolist():
        rows = np.flatnonzero(links.back == back)
        value = history[-back].event_us[links.source_event[rows]] + links.lag_us[rows]
        np.maximum.at(least, links.target_event[rows], value)
    return mirrored.solve(least, ready)


def saving(result: Result, free: Bool) -> float:
    """What the step would lose if some nodes took no time: it is solved again without that time.

    A collective that joins ranks is free on all of them.

    Args:
        result: The step.
        free: [m] nodes of its schedule.
    """
    step = result.step
    meeting = np.unique(step.meeting[free])
    free = free | np.isin(step.meeting, meeting[meeting >= 0])
    duration = np.where(free & step.is_work, 0.0, result.schedule.duration_us)
    without = solve_step(step, duration, result.schedule.gap_us, len(result.times))
    return max(result.iteration_us - without.iteration_us, 0.0)
