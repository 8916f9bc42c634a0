"""Lanes of steps whose host side was not traced, and of steps that ran on the host alone."""

from dataclasses import dataclass

import numpy as np

from gnnperf.graph.kinds import EdgeKind, NodeKind
from gnnperf.graph.model import F64, I64, NONE, ExecutionGraph
from gnnperf.ops import leaf_ops
from gnnperf.timeline.constants import DeviceConstants
from gnnperf.timeline.host_model import HostSide, HostTimes, host_times
from gnnperf.timeline.lanes import HOST, STREAM, Part, RankLanes
from gnnperf.timeline.schedule import Link, Links

CONCURRENT = 0.05
"""Share of a thread's time beside other threads from which on it is a lane of its own."""


@dataclass(frozen=True)
class HostDefaults:
    """Stated host times in place of the host model's (`host_model`), microseconds."""

    op_us: float = 21.0
    """an op that launches, besides the launches: 25 us in all per op (layer times of multi-GPU
    training, design notes on parallel plans), less one launch"""
    launch_us: float = 4.0
    """one launch call: 10 us as traced, less 6 us of the profiler (Lin et al.'s code, T4)"""
    sync_us: float = 4.0
    """a blocking call besides its waiting: median of the public traces"""


def untraced_lanes(
    graph: ExecutionGraph, known: DeviceConstants, host: HostDefaults | HostSide | None
) -> tuple[RankLanes, list[str]]:
    """Device work without launches: each work gets a launch call, each op its host time.

    Works stand in the order of their rows (of their times where those are known). Data edges
    between ops become edges between works of different streams. Returns also what was assumed.
    """
    nodes = graph.nodes
    device = graph.device_nodes
    time = np.where(np.isfinite(nodes.start_us[device]), nodes.start_us[device], -np.inf)
    device = device[np.argsort(time, kind="stable")]
    count = len(device)
    gap, call, said = _launch_times(graph, device, host)
    streams = device[np.argsort(nodes.lane[device], kind="stable")]
    place = np.full(graph.num_nodes, NONE, np.int64)
    place[streams] = count + np.arange(count)
    call_of = np.full(graph.num_nodes, NONE, np.int64)
    call_of[device] = np.arange(count)
    links = Links.join(
        [
            Links.of(call_of[device], place[device], lag_us=known.launch_latency_us),
            _between_streams(graph, device, place, known),
            _back_to_host(graph, device, place, known),
        ]
    )
    lanes, sizes = np.unique(nodes.lane[streams], return_counts=True)
    duration = np.concatenate([call, nodes.duration_us[streams]])
    rank = RankLanes(
        [count, *sizes.tolist()],
        np.concatenate([np.full(count, NONE, np.int64), streams]),
        np.zeros(2 * count, np.uint8),
        duration,
        np.concatenate([gap, np.full(count, known.queue_gap_us)]),
        links,
        np.zeros(len(links)),
        [HOST, *(f"{STREAM} {int(graph.lanes.number[s])}" for s in lanes)],
    )
    return rank, said


def _launch_times(
    graph: ExecutionGraph, works: I64, host: HostDefaults | HostSide | None
) -> tuple[F64, F64, list[str]]:
    """[w] host time before each launch and of it, and what was assumed."""
    if isinstance(host, HostDefaults):
        op = graph.nodes.op[works]
        new_op = np.append(True, (op[1:] != op[:-1]) | (op[1:] < 0))[: len(works)]
        said = [f"host {host.op_us} us per op, {host.launch_us} us per launch (no host side)"]
        return np.where(new_op, host.op_us, 0.0), np.full(len(works), host.launch_us), said
    times = host_times(graph, works, host)
    gap = times.gap_us.copy()
    gap[:1] += times.tail_us
    return gap, times.launch_us, ["host times by the host model (no host side)", *_unknown(times)]


def _unknown(times: HostTimes) -> list[str]:
    if not times.unknown:
        return []
    names = sorted(times.unknown)
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return [f"default host time of {sum(times.unknown.values())} ops ({shown})"]


def _between_streams(
    graph: ExecutionGraph, device: I64, place: I64, known: DeviceConstants
) -> Links:
    """Waits of one stream for another: by edges between works, or between the works' ops."""
    nodes, edges = graph.nodes, graph.edges
    first = np.full(graph.num_nodes, NONE, np.int64)
    last = np.full(graph.num_nodes, NONE, np.int64)
    owned = device[nodes.op[device] >= 0]
    last[nodes.op[owned]] = owned
    first[nodes.op[owned[::-1]]] = owned[::-1]
    first[device] = last[device] = device
    rows = np.flatnonzero(np.isin(edges.kind, (EdgeKind.DATA, EdgeKind.EVENT_WAIT)))
    src, dst = last[edges.src[rows]], first[edges.dst[rows]]
    real = (src >= 0) & (dst >= 0)
    src, dst = src[real], dst[real]
    order = np.full(graph.num_nodes, NONE, np.int64)
    order[device] = np.arange(len(device))
    apart = (nodes.lane[src] != nodes.lane[dst]) & (order[src] < order[dst])
    pairs = np.unique(np.stack([src[apart], dst[apart]]), axis=1)
    return Links.of(place[pairs[0]], place[pairs[1]], lag_us=known.queue_gap_us)


def _back_to_host(graph: ExecutionGraph, device: I64, place: I64, known: DeviceConstants) -> Links:
    """The next launch after a host op that waits for device work."""
    edges = graph.edges
    rows = np.flatnonzero(edges.kind == EdgeKind.HOST_SYNC)
    rows = rows[place[edges.src[rows]] >= 0]
    issuer = np.where(graph.nodes.op[device] >= 0, graph.nodes.op[device], device)
    order = np.argsort(issuer, kind="stable")
    after = np.searchsorted(issuer[order], edges.dst[rows], side="right")
    rows, after = rows[after < len(device)], after[after < len(device)]
    rank = np.full(graph.num_nodes, NONE, np.int64)
    rank[device] = np.arange(len(device))
    later = rank[edges.src[rows]] < order[after]
    lag = known.return_us["to_host"]
    return Links.of(place[edges.src[rows[later]]], order[after[later]], lag_us=lag)


def host_only_lanes(
    graph: ExecutionGraph, host: HostDefaults | HostSide | None
) -> tuple[RankLanes, list[str]]:
    """A step on the CPU: its leaf ops are the work, what lies between them the host's own gaps.

    Leaf ops are those that `gnnperf.ops` describes; without any, all ops that hold no others.

    Threads that take turns are one chain in time; one that runs beside it is its own lane, which
    begins when it did after the chain's work then last ended. Returns also what was assumed.
    """
    nodes = graph.nodes
    work = leaf_ops(graph)
    if not len(work):
        leaf = np.ones(graph.num_nodes, np.bool_)
        leaf[nodes.parent[nodes.parent >= 0]] = False
        work = np.flatnonzero(leaf & (nodes.kind <= NodeKind.RUNTIME))
    timed = np.isfinite(nodes.start_us[work])
    if not timed.all():
        gap, _, said = _launch_times(graph, work, host)
        return _chains(graph, [work], [gap], Links.of([], [])), said
    work = work[np.argsort(nodes.start_us[work], kind="stable")]
    chain, beside = _taking_turns(graph, work)
    lanes, gaps, links = [chain], [_gaps(graph, chain, graph.meta.host_step_us)], []
    begin = len(chain)
    end = nodes.start_us + nodes.duration_us
    for own in beside:
        at = int(np.searchsorted(nodes.start_us[chain], nodes.start_us[own[0]])) - 1
        if at >= 0:
            lag = float(nodes.start_us[own[0]] - end[chain[at]])
            links.append(Links.of([at], [begin], Link.END_START, lag))
        gap = _gaps(graph, own, np.nan)
        lanes.append(own)
        gaps.append(gap)
        begin += len(own)
    return _chains(graph, lanes, gaps, Links.join(links)), []


def _taking_turns(graph: ExecutionGraph, work: I64) -> tuple[I64, list[I64]]:
    """The works of the threads that run one at a time, and those of each other thread."""
    nodes = graph.nodes
    lanes = np.unique(nodes.lane[work])
    total = [float(nodes.duration_us[work[nodes.lane[work] == t]].sum()) for t in lanes]
    chain = np.zeros(0, np.int64)
    beside = []
    for index in np.argsort(total)[::-1].tolist():
        own = work[nodes.lane[work] == lanes[index]]
        if _shared(graph, chain, own) <= CONCURRENT * max(total[index], 1e-9):
            chain = np.concatenate([chain, own])
            chain = chain[np.argsort(nodes.start_us[chain], kind="stable")]
        else:
            beside.append(own)
    return chain, beside


def _shared(graph: ExecutionGraph, chain: I64, own: I64) -> float:
    """Time during which works of a chain and of a thread run at once."""
    if not len(chain):
        return 0.0
    start, end = graph.nodes.start_us, graph.nodes.start_us + graph.nodes.duration_us
    points = np.concatenate([start[chain], end[chain], start[own], end[own]])
    first = np.repeat([1, -1, 0, 0], [len(chain), len(chain), len(own), len(own)])
    second = np.repeat([0, 0, 1, -1], [len(chain), len(chain), len(own), len(own)])
    order = np.argsort(points, kind="stable")
    both = (np.cumsum(first[order]) > 0) & (np.cumsum(second[order]) > 0)
    return float(np.diff(points[order])[both[:-1]].sum())


def _gaps(graph: ExecutionGraph, chain: I64, period: float) -> F64:
    start = graph.nodes.start_us[chain]
    end = start + graph.nodes.duration_us[chain]
    gap = np.zeros(len(chain))
    gap[1:] = start[1:] - end[:-1]
    if len(chain) and np.isfinite(period):
        gap[0] = start[0] + period - end[-1]
    return gap


def _chains(graph: ExecutionGraph, lanes: list[I64], gaps: list[F64], links: Links) -> RankLanes:
    node = np.concatenate(lanes)
    return RankLanes(
        [len(lane) for lane in lanes],
        node,
        np.full(len(node), Part.WHOLE, np.uint8),
        graph.nodes.duration_us[node],
        np.concatenate(gaps),
        links,
        np.zeros(len(links)),
        [f"thread {i}" for i in range(len(lanes))],
    )
