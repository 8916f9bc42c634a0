"""Replay of a step: only durations are given, every start time comes out of dependencies.

The step of every rank becomes lanes (its host chain, its streams), the collectives join the
ranks, and the step is repeated until its period is steady. docs/replay.md states the rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.errors import GnnperfError
from gnnperf.graph.job import Job
from gnnperf.graph.model import F64, I32, I64, NONE, U8, Bool, ExecutionGraph
from gnnperf.timeline.constants import DeviceConstants, estimate
from gnnperf.timeline.lanes import HOST, RULES, Part, RankLanes, rank_lanes
from gnnperf.timeline.scan import Scan, Times
from gnnperf.timeline.schedule import Links, Schedule
from gnnperf.traces.dependencies import find_waits

STEPS = 12
"""Repetitions of the step after which a period counts as steady (a backlog may still grow)."""
COMMON_CLOCK_US = 1e6
"""Ranks whose steps begin further apart are not on one clock."""
STEADY = 1e-9
"""Relative difference of two periods that counts as none."""


@dataclass(frozen=True, eq=False)
class StepSchedule:
    """The schedule of one step of a job, and what its nodes stand for."""

    job: Job
    schedule: Schedule
    graph: I32
    """[m] graph of the job"""
    node: I32
    """[m] node of that graph"""
    device: Bool
    """[m] whether it is device work"""
    part: U8
    """[m] Part: which part of that node it is"""
    meeting: I32
    """[m] row of the job's rendezvous; NONE for all that is no transfer of one"""
    tail: F64
    """[e] share of the source's duration by which an edge of the schedule comes early"""
    release_us: F64
    """[l] when each lane begins: the ranks' own starts where the step is not repeated"""
    lane_graph: I32
    """[l] graph of each lane"""
    lane_names: tuple[str, ...]
    marker: I64
    """[graphs] the first device work launched in the step"""
    periodic: bool
    """whether the step is repeated: its trace tells its period"""
    constants: tuple[DeviceConstants, ...]
    assumed: tuple[str, ...]

    @property
    def is_work(self) -> Bool:
        """[m] whether the duration of its graph node is spent there."""
        idle = np.where(self.device, Part.FIRST, Part.SECOND)
        return np.asarray(self.part != idle, np.bool_)


def schedule_of(job: Job, *, rules: Sequence[str] = RULES) -> StepSchedule:
    """The schedule of a job of one step.

    Args:
        job: One graph per rank, all of one step (`Job.of_step`).
        rules: Which of `RULES` hold; leaving one out shows what it is worth.

    Raises:
        GnnperfError: More than one step, or no work at all.
    """
    if len(job.steps) != 1:
        raise GnnperfError(f"a replay takes one step, not {len(job.steps)}; use Job.of_step")
    waits = [find_waits(g) for g in job.graphs]
    known = tuple(estimate(g, w) for g, w in zip(job.graphs, waits, strict=True))
    lanes = [
        rank_lanes(g, w, k, tuple(rules)) for g, w, k in zip(job.graphs, waits, known, strict=True)
    ]
    return _assemble(job, lanes, known, "rendezvous" in rules)


def _assemble(
    job: Job, lanes: list[RankLanes], known: tuple[DeviceConstants, ...], meet: bool
) -> StepSchedule:
    meeting = [np.full(len(r.node), NONE, np.int64) for r in lanes]
    if meet:
        sizes = np.diff(job.rendezvous.ptr)
        row_of = np.repeat(np.arange(len(sizes)), sizes)
        for g, rank in enumerate(lanes):
            place = np.full(job.graphs[g].num_nodes, NONE, np.int64)
            place[rank.node] = np.arange(len(rank.node))
            own = (job.rendezvous.graph == g) & (sizes[row_of] > 1)
            at = place[job.rendezvous.node[own]]
            meeting[g][at[at >= 0]] = row_of[own][at >= 0]
    parts = [_split(r, m) for r, m in zip(lanes, meeting, strict=True)]
    base = np.concatenate([[0], np.cumsum([len(p.node) for p in parts])])
    tail = [r.tail for r in lanes]
    links = [
        replace(p.links, src=p.links.src + b, dst=p.links.dst + b)
        for p, b in zip(parts, base[:-1], strict=True)
    ]
    transfer = np.concatenate([p.transfer for p in parts])
    for row in np.unique(transfer[transfer >= 0]).tolist():
        at = np.flatnonzero(transfer == row)
        if len(at) > 1:
            links.append(Links.meet(at - 1, at))
    lane_sizes = [s for p in parts for s in p.sizes]
    schedule = Schedule(
        np.concatenate([[0], np.cumsum(lane_sizes)]).astype(np.int64),
        np.concatenate([p.duration_us for p in parts]),
        np.concatenate([p.gap_us for p in parts]),
        Links.join(links),
    )
    graph = np.repeat(np.arange(len(parts)), [len(p.node) for p in parts]).astype(np.int32)
    node = np.concatenate([p.node for p in parts]).astype(np.int32)
    device = np.zeros(len(node), np.bool_)
    for g in range(len(parts)):
        device[graph == g] = np.isin(node[graph == g], job.graphs[g].device_nodes)
    return StepSchedule(
        job,
        schedule,
        graph,
        node,
        device,
        np.concatenate([p.part for p in parts]),
        transfer.astype(np.int32),
        np.concatenate([*tail, np.zeros(len(schedule.links) - sum(map(len, tail)))]),
        _starts(job, lanes),
        np.repeat(np.arange(len(parts)), [len(p.sizes) for p in parts]).astype(np.int32),
        tuple(n for r in lanes for n in r.names),
        _markers(job, graph, node, device),
        all(_repeats(g) for g in job.graphs),
        known,
        tuple(sorted({a for k in known for a in k.assumed})),
    )


@dataclass(frozen=True, eq=False)
class _Part:
    sizes: list[int]
    node: I64
    duration_us: F64
    gap_us: F64
    links: Links
    part: U8
    transfer: I64


def _split(rank: RankLanes, meeting: I64) -> _Part:
    """Every collective of a meeting becomes an arrival and a transfer."""
    member = meeting >= 0
    count = 1 + member.astype(np.int64)
    after = np.cumsum(count) - 1
    before = after - member
    origin = np.repeat(np.arange(len(member)), count)
    part = rank.part[origin]
    part[before[member]], part[after[member]] = Part.FIRST, Part.SECOND
    arrival = np.zeros(len(origin), np.bool_)
    arrival[before[member]] = True
    transfer = np.where(arrival, NONE, meeting[origin])
    links = rank.links
    from_start, into_end = (links.kind & 1) == 1, links.kind >> 1 == 1
    moved = replace(
        links,
        src=np.where(from_start, before[links.src], after[links.src]),
        dst=np.where(into_end, after[links.dst], before[links.dst]),
    )
    lane = np.repeat(np.arange(len(rank.sizes)), rank.sizes)
    sizes = np.bincount(lane, weights=count, minlength=len(rank.sizes)).astype(int).tolist()
    gap = rank.gap_us[origin].copy()
    gap[after[member]] = 0.0
    return _Part(
        sizes,
        rank.node[origin],
        np.where(arrival, 0.0, rank.duration_us[origin]),
        gap,
        moved,
        part,
        transfer,
    )


def _starts(job: Job, lanes: list[RankLanes]) -> F64:
    """[l] the ranks' starts on their common clock; 0 where their clocks have nothing in common."""
    start = np.array([g.meta.step_start_us for g in job.graphs])
    start = start - start.min()
    if start.max() > COMMON_CLOCK_US:
        start = np.zeros(len(start))
    released = []
    for graph, rank, begin in zip(job.graphs, lanes, start.tolist(), strict=True):
        first = float(graph.nodes.start_us[rank.node[0]]) if rank.sizes[0] else 0.0
        released += [begin + first] + [begin] * (len(rank.sizes) - 1)
    return np.array(released)


def _repeats(graph: ExecutionGraph) -> bool:
    """Whether the trace tells the period of the step."""
    meta = graph.meta
    known = meta.device_period_us if len(graph.device_nodes) else meta.host_step_us
    return bool(np.isfinite(known) and np.isfinite(meta.host_step_us))


def _markers(job: Job, graph: I32, node: I32, device: Bool) -> I64:
    """The node whose repetition tells the period of each graph: its first device work."""
    found = []
    for g, each in enumerate(job.graphs):
        own = np.flatnonzero((graph == g) & device)
        if not len(own):
            own = np.flatnonzero(graph == g)
            if not len(own):
                raise GnnperfError(f"rank {each.meta.rank} has no work to put on a timeline")
            found.append(int(own[0]))
            continue
        launch = each.nodes.launch[node[own]]
        issued = np.where(launch >= 0, each.nodes.start_us[launch], np.inf)
        found.append(int(own[np.argmin(issued)]))
    return np.array(found, np.int64)


@dataclass(frozen=True, eq=False)
class Result:
    """A replayed step."""

    step: StepSchedule
    schedule: Schedule
    """with the durations that were run"""
    iteration_us: float
    how: str
    """what `iteration_us` is: the period of the repeated step, or the span of a single one"""
    times: tuple[Times, ...]
    """of each repetition, the last one last"""
    period_us: float
    """NaN for a single step"""
    assumed: tuple[str, ...]

    def node_times(self, graph: int) -> tuple[F64, F64]:
        """Start and end of every node of a graph in the last repetition, NaN where not on a lane.

        Times are microseconds from the start of that repetition's first device work of the rank.
        """
        step = self.step
        count = step.job.graphs[graph].num_nodes
        start, end = np.full(count, np.nan), np.full(count, np.nan)
        own = np.flatnonzero(step.graph == graph)
        last = self.times[-1]
        origin = last.start_us[step.marker[graph]]
        begins = own[step.part[own] != Part.SECOND]
        start[step.node[begins]] = last.start_us[begins] - origin
        ends = own[step.part[own] != Part.FIRST]
        end[step.node[ends]] = last.end_us[ends] - origin
        return start, end


def durations(
    step: StepSchedule,
    device_us: Sequence[F64] | None = None,
    host_scale: float = 1.0,
    kernel_scale: float = 1.0,
) -> F64:
    """[m] durations of the schedule's nodes with replacements and scales put in.

    Args:
        step: The schedule of the step.
        device_us: For each graph [nodes] durations that replace the measured ones, of host nodes
            too; NaN keeps the measured one.
        host_scale: Factor on host calls (their gaps: see `run`).
        kernel_scale: Factor on all device work.
    """
    result = step.schedule.duration_us.copy()
    if device_us is not None:
        for g, given in enumerate(device_us):
            own = np.flatnonzero((step.graph == g) & step.is_work)
            value = np.asarray(given, np.float64)[step.node[own]]
            result[own] = np.where(np.isfinite(value), value, result[own])
    result *= np.where(step.device, kernel_scale, host_scale)
    joined = step.meeting >= 0
    if joined.any():
        least = np.full(int(step.meeting.max()) + 1, np.inf)
        np.minimum.at(least, step.meeting[joined], result[joined])
        result[joined] = least[step.meeting[joined]]
    return result


def run(
    step: StepSchedule,
    device_us: Sequence[F64] | None = None,
    *,
    host_scale: float = 1.0,
    kernel_scale: float = 1.0,
    steps: int = STEPS,
) -> Result:
    """Run a step's schedule: see `durations` for the replacements and scales.

    `host_scale` also scales the host's own gaps. The step is repeated until all of it recurs
    after the same time, at most `steps` times.
    """
    lane = step.schedule.lane_of
    host = np.array([n == HOST for n in step.lane_names])[lane]
    gap = np.where(host, step.schedule.gap_us * host_scale, step.schedule.gap_us)
    duration = durations(step, device_us, host_scale, kernel_scale)
    return solve_step(step, duration, gap, steps)


def solve_step(step: StepSchedule, duration_us: F64, gap_us: F64, steps: int = STEPS) -> Result:
    """Run a step's schedule with the given durations and gaps, [m] each."""
    old = step.schedule.links
    schedule = replace(
        step.schedule,
        duration_us=duration_us,
        links=replace(old, lag_us=old.lag_us - step.tail * duration_us[old.src]),
        gap_us=gap_us,
    )
    if not step.periodic:
        return _single(step, schedule)
    history = repeat(schedule, steps)
    shift = history[-1].start_us[step.marker] - history[-2].start_us[step.marker]
    period = float(shift.max())
    how = f"period of the first device work, step repeated {len(history)} times"
    return Result(step, schedule, period, how, tuple(history), period, step.assumed)


def _single(step: StepSchedule, schedule: Schedule) -> Result:
    """A step that is not repeated: how long its device work takes, the median over the ranks."""
    least = np.full(2 * schedule.num_nodes, -np.inf)
    least[2 * schedule.first_of_lane] = step.release_us[np.diff(schedule.lane_ptr) > 0]
    times = Scan(schedule).solve(least)
    spans = []
    for g in range(len(step.job.graphs)):
        own = np.flatnonzero((step.graph == g) & step.device)
        own = own if len(own) else np.flatnonzero(step.graph == g)
        spans.append(float(times.end_us[own].max() - times.start_us[own].min()))
    how = "first to last device work of the only step, the median over the ranks"
    return Result(
        step, schedule, float(np.median(spans)), how, (times,), float("nan"), step.assumed
    )


def repeat(schedule: Schedule, steps: int) -> list[Times]:
    """The times of one repetition after the other, until every node recurs after one period."""
    scan = Scan(schedule)
    rows = np.flatnonzero(schedule.links.back > 0)
    links = schedule.links.take(rows)
    last = schedule.lane_ptr[1:] - 1
    filled = np.diff(schedule.lane_ptr) > 0
    history: list[Times] = []
    for count in range(max(steps, 2)):
        least = np.full(2 * schedule.num_nodes, -np.inf)
        ready = np.full(len(last), -np.inf)
        if history:
            ready[filled] = history[-1].end_us[last[filled]]
        else:
            least[2 * schedule.first_of_lane] = 0.0
        for back in np.unique(links.back[links.back <= count]).tolist():
            here = np.flatnonzero(links.back == back)
            value = history[count - back].event_us[links.source_event[here]] + links.lag_us[here]
            np.maximum.at(least, links.target_event[here], value)
        history.append(scan.solve(least, ready))
        if len(history) > 2 and _steady(history):
            break
    return history


def _steady(history: list[Times]) -> bool:
    shift = history[-1].event_us - history[-2].event_us
    low, high = float(shift.min()), float(shift.max())
    return high - low <= STEADY * max(high, 1.0)
