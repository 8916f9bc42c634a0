"""The schedule of one step of a job: the lanes of its ranks, joined by their collectives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.errors import GnnperfError
from gnnperf.graph.job import Job
from gnnperf.graph.model import F64, I32, I64, NONE, U8, Bool, ExecutionGraph
from gnnperf.timeline.constants import DeviceConstants, estimate
from gnnperf.timeline.host_model import HostSide
from gnnperf.timeline.hostless import HostDefaults, host_only_lanes, untraced_lanes
from gnnperf.timeline.lanes import HOST, RULES, Part, RankLanes, rank_lanes
from gnnperf.timeline.schedule import Links, Schedule
from gnnperf.traces.dependencies import find_waits

COMMON_CLOCK_US = 1e6
"""Ranks whose steps begin further apart are not on one clock."""


@dataclass(frozen=True, eq=False)
class StepSchedule:
    """The schedule of one step of a job, and what its nodes stand for."""

    job: Job
    schedule: Schedule
    graph: I32
    """[m] graph of the job"""
    node: I32
    """[m] node of that graph; NONE for a call that the graph does not hold"""
    device: Bool
    """[m] whether it is work of the device (of a step on the CPU: its leaf ops)"""
    part: U8
    """[m] Part: which part of that node it is"""
    unknown: Bool
    """[m] whether its duration is in no record and must be given"""
    meeting: I32
    """[m] row of the job's rendezvous; NONE for all that is no transfer of one"""
    tail: F64
    """[e] share of the source's duration by which an edge of the schedule comes early"""
    release_us: F64
    """[l] when each lane begins: the ranks' own starts where the step is not repeated"""
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


def schedule_of(
    job: Job, *, rules: Sequence[str] = RULES, host: HostDefaults | HostSide | None = None
) -> StepSchedule:
    """The schedule of a job of one step.

    Args:
        job: One graph per rank, all of one step (`Job.of_step`).
        rules: Which of `RULES` hold; leaving one out shows what it is worth.
        host: For graphs without a host side: the host that they are put on (default: the typical
            one of the host model), or stated times in place of that model.

    Raises:
        GnnperfError: More than one step, or no work at all.
    """
    if len(job.steps) != 1:
        raise GnnperfError(f"a replay takes one step, not {len(job.steps)}; use Job.of_step")
    lanes, known, assumed = [], [], set[str]()
    for graph in job.graphs:
        rank, constants, said = _lanes_of(graph, tuple(rules), host)
        lanes.append(rank)
        known.append(constants)
        assumed |= set(said)
    return _assemble(job, lanes, "rendezvous" in rules, (tuple(known), tuple(sorted(assumed))))


def _lanes_of(
    graph: ExecutionGraph, rules: tuple[str, ...], host: HostDefaults | HostSide | None
) -> tuple[RankLanes, DeviceConstants, list[str]]:
    """Lanes of one graph, its constants, and what had to be assumed."""
    device = graph.device_nodes
    if not len(device):
        rank, said = host_only_lanes(graph, host)
        return rank, DeviceConstants(), said
    if not (graph.nodes.launch[device] >= 0).any():
        rank, said = untraced_lanes(graph, DeviceConstants(), host)
        return rank, DeviceConstants(), said
    waits = find_waits(graph)
    known = estimate(graph, waits)
    rank = rank_lanes(graph, waits, known, rules)
    said = [f"default {name}" for name in known.assumed]
    if rank.left_out:
        said.append(f"rank {graph.meta.rank}: {rank.left_out} works of earlier steps left out")
    return rank, known, said


def _assemble(
    job: Job,
    lanes: list[RankLanes],
    meet: bool,
    known: tuple[tuple[DeviceConstants, ...], tuple[str, ...]],
) -> StepSchedule:
    meeting = [np.full(len(r.node), NONE, np.int64) for r in lanes]
    if meet:
        sizes = np.diff(job.rendezvous.ptr)
        row_of = np.repeat(np.arange(len(sizes)), sizes)
        for g, rank in enumerate(lanes):
            place = np.full(job.graphs[g].num_nodes, NONE, np.int64)
            held = np.flatnonzero(rank.node >= 0)
            place[rank.node[held]] = held
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
    given = np.concatenate([p.duration_us for p in parts])
    schedule = Schedule(
        np.concatenate([[0], np.cumsum(lane_sizes)]).astype(np.int64),
        np.nan_to_num(given),
        np.concatenate([p.gap_us for p in parts]),
        Links.join(links),
    )
    graph = np.repeat(np.arange(len(parts)), [len(p.node) for p in parts]).astype(np.int32)
    node = np.concatenate([p.node for p in parts]).astype(np.int32)
    names = tuple(n for r in lanes for n in r.names)
    device = np.array([n != HOST for n in names], np.bool_)[schedule.lane_of]
    return StepSchedule(
        job=job,
        schedule=schedule,
        graph=graph,
        node=node,
        device=device,
        part=np.concatenate([p.part for p in parts]),
        unknown=np.isnan(given),
        meeting=transfer.astype(np.int32),
        tail=np.concatenate([*tail, np.zeros(len(schedule.links) - sum(map(len, tail)))]),
        release_us=_starts(job, lanes),
        lane_names=names,
        marker=_markers(job, graph, node, device),
        periodic=all(_repeats(g) for g in job.graphs),
        constants=known[0],
        assumed=known[1],
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
        known = rank.sizes[0] > 0 and rank.node[0] >= 0
        first = float(np.nan_to_num(graph.nodes.start_us[rank.node[0]])) if known else 0.0
        released += [begin + first] + [begin] * (len(rank.sizes) - 1)
    return np.array(released)


def _repeats(graph: ExecutionGraph) -> bool:
    """Whether the period of the step is known, or its host side is one by defaults."""
    meta = graph.meta
    device = graph.device_nodes
    if not np.isfinite(graph.nodes.start_us).all() and not len(device):
        return True
    if len(device) and not (graph.nodes.launch[device] >= 0).any():
        return True
    known = meta.device_period_us if len(device) else meta.host_step_us
    return bool(np.isfinite(known) and np.isfinite(meta.host_step_us))


def _markers(job: Job, graph: I32, node: I32, device: Bool) -> I64:
    """The node whose repetition tells the period of each graph: its first device work."""
    found = []
    for g, each in enumerate(job.graphs):
        own = np.flatnonzero((graph == g) & device)
        if not len(own):
            raise GnnperfError(f"rank {each.meta.rank} has no work to put on a timeline")
        launch = each.nodes.launch[node[own]]
        issued = np.where(launch >= 0, each.nodes.start_us[launch], np.inf)
        found.append(int(own[np.argmin(issued)]))
    return np.array(found, np.int64)
