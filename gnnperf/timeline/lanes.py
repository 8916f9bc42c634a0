"""One step of one traced rank as lanes of a schedule: its host chain and its streams."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from gnnperf.graph.kinds import EdgeKind
from gnnperf.graph.model import F64, I64, NONE, U8, Bool, ExecutionGraph
from gnnperf.timeline.constants import DeviceConstants, copy_starts, runs_beside, wait_class
from gnnperf.timeline.schedule import Link, Links
from gnnperf.timeline.waves import find_held
from gnnperf.traces.dependencies import (
    BLOCKING,
    SYNCHRONIZE,
    WAITED_US,
    Call,
    Waits,
    device_period_us,
    done_us,
)

RULES = ("events", "host_waits", "queue_depth", "last_wave", "rendezvous")
"""The rules of a replay that can be left out, one at a time (docs/replay.md)."""
HOST = "host"
"""Name of the host chain's lane."""
STREAM = "stream"
"""What the names of the lanes of the device begin with."""
NEARLY_FULL = 0.9
"""Share of the queue's depth from which on a slow launch counts as one that was held up."""


class Part(IntEnum):
    """Which part of a graph's node a node of the schedule is."""

    WHOLE = 0
    FIRST = 1
    """its start: the own work of a call that waits, the arrival at a collective"""
    SECOND = 2
    """its end: the return of a call, the transfer of a collective"""


@dataclass(frozen=True, eq=False)
class RankLanes:
    """Lanes of one graph; nodes numbered from 0, lane after lane.

    A call that waits is two: its own work, and its return when what it waits for is over.
    """

    sizes: list[int]
    node: I64
    """[m] node of the graph; NONE for a call that the graph does not hold"""
    part: U8
    """[m] Part"""
    duration_us: F64
    gap_us: F64
    links: Links
    tail: F64
    """[e] share of the source's duration that an edge's lag falls short of (a last wave)"""
    names: list[str]
    left_out: int = 0
    """device work that the step did not launch"""


def host_chain(graph: ExecutionGraph, waits: Waits) -> I64:
    """The runtime calls that matter for the device, in order of time over all threads."""
    nodes = graph.nodes
    calls = np.flatnonzero(np.isin(waits.call, (Call.LAUNCH, Call.BLOCKING_COPY, *BLOCKING)))
    launching = np.unique(
        nodes.lane[calls[np.isin(waits.call[calls], (Call.LAUNCH, Call.BLOCKING_COPY))]]
    )
    calls = calls[np.isin(nodes.lane[calls], launching)]
    return calls[np.argsort(nodes.start_us[calls], kind="stable")]


def stream_order(graph: ExecutionGraph) -> I64:
    """Device work, stream after stream, in the order of its launches.

    Work whose launch the trace lacks stands where it ran; what came before all work that was
    launched in the step is a backlog of earlier steps and left out.
    """
    nodes = graph.nodes
    device = graph.device_nodes
    device = device[np.lexsort((nodes.start_us[device], nodes.lane[device]))]
    launch = nodes.launch[device]
    known = np.where(launch >= 0, np.arange(len(device)), 0)
    nearest = launch[np.maximum.accumulate(known)] if len(device) else launch
    same = nodes.lane[device] == nodes.lane[device[np.maximum.accumulate(known)]]
    issued = np.where((nearest >= 0) & same, nodes.start_us[nearest], -np.inf)
    order = device[np.lexsort((issued, nodes.lane[device]))]
    return order[~_backlog(graph, order)]


def _backlog(graph: ExecutionGraph, order: I64) -> Bool:
    """[d] unlinked work before the first linked one of its stream, given stream after stream."""
    linked = graph.nodes.launch[order] >= 0
    lane = graph.nodes.lane[order]
    _, first, which = np.unique(lane, return_index=True, return_inverse=True)
    so_far = np.cumsum(linked)
    begun = so_far - (so_far[first] - linked[first])[which] > 0
    ever = np.bincount(which, linked) > 0
    return np.asarray(~begun & ever[which], np.bool_)


def own_cost(graph: ExecutionGraph, waits: Waits, chain: I64, known: DeviceConstants) -> F64:
    """[c] host work of each call of the chain: never the time it waited.

    A call that waited, or that a full queue held up, costs what such calls cost otherwise.
    """
    nodes = graph.nodes
    cost = nodes.duration_us[chain].copy()
    call = waits.call[chain]
    rows = waits.of_kind(EdgeKind.HOST_SYNC)
    late = done_us(graph, waits, rows) > nodes.start_us[waits.dst[rows]]
    waited = np.isin(chain, waits.dst[rows][late])
    copies = call == Call.BLOCKING_COPY
    blocking = np.isin(call, SYNCHRONIZE)
    cost[blocking] = np.minimum(cost[blocking], WAITED_US)
    cost[waited & ~copies] = np.minimum(cost[waited & ~copies], known.sync_us)
    cost[copies] = np.minimum(cost[copies], known.call_us)
    if known.queue_depth is not None:
        held = (call == Call.LAUNCH) & (
            _outstanding(graph, chain) > NEARLY_FULL * known.queue_depth
        )
        free = (call == Call.LAUNCH) & ~held
        usual = float(np.median(cost[free])) if free.any() else known.call_us
        cost[held] = np.minimum(cost[held], usual)
    return cost


def _outstanding(graph: ExecutionGraph, chain: I64) -> I64:
    """[c] works launched and not begun when each call returns, at most over the streams."""
    nodes = graph.nodes
    most = np.zeros(len(chain), np.int64)
    returned = nodes.start_us[chain] + nodes.duration_us[chain]
    device = graph.device_nodes
    device = device[nodes.launch[device] >= 0]
    period = device_period_us(graph)
    for lane in np.unique(nodes.lane[device]):
        own = device[nodes.lane[device] == lane]
        issued = np.sort(nodes.start_us[nodes.launch[own]])
        begun = np.sort(nodes.start_us[own])
        ahead = np.searchsorted(issued, returned) - np.searchsorted(begun, returned)
        if np.isfinite(period):
            late = np.sort(begun - period)
            ahead = ahead + len(late) - np.searchsorted(late, returned)
        most = np.maximum(most, ahead)
    return most


def rank_lanes(
    graph: ExecutionGraph, waits: Waits, known: DeviceConstants, rules: tuple[str, ...]
) -> RankLanes:
    """The lanes of one graph with host and device side."""
    nodes = graph.nodes
    chain = host_chain(graph, waits)
    device = stream_order(graph)
    cost = own_cost(graph, waits, chain, known)
    returns = np.isin(chain, waits.dst[waits.of_kind(EdgeKind.HOST_SYNC)])
    node = np.concatenate([np.repeat(chain, 1 + returns), device])
    part = np.zeros(len(node), np.uint8)
    first = np.arange(len(chain)) + np.cumsum(returns) - returns
    part[first[returns]], part[first[returns] + 1] = Part.FIRST, Part.SECOND
    place = np.full(graph.num_nodes, NONE, np.int64)
    place[node] = np.arange(len(node))
    place[chain] = first
    duration, gap = np.zeros(len(node)), np.full(len(node), known.queue_gap_us)
    duration[first], duration[len(node) - len(device) :] = cost, nodes.duration_us[device]
    beside = runs_beside(graph, device)
    gap[len(node) - len(device) :][beside] = known.queue_gap_beside_us
    gap[: len(node) - len(device)] = 0.0
    gap[first] = _host_gaps(graph, chain)
    streams, counts = np.unique(nodes.lane[device], return_counts=True)
    parts = [_launches(graph, waits, device, place, known)]
    parts += _waits(graph, waits, place, known, rules)
    if "queue_depth" in rules and known.queue_depth is not None:
        parts += _queue(graph, device, place, known.queue_depth)
    links = Links.join(parts)
    tail = np.zeros(len(links))
    if "last_wave" in rules:
        held = find_held(graph, waits, known, device)
        links = Links.join([links, Links.of(place[held.src], place[held.dst])])
        tail = np.append(tail, held.share)
    names = [HOST] + [f"{STREAM} {int(graph.lanes.number[s])}" for s in streams]
    sizes = [len(node) - len(device), *counts.tolist()]
    return RankLanes(
        sizes, node, part, duration, gap, links, tail, names, len(graph.device_nodes) - len(device)
    )


def _host_gaps(graph: ExecutionGraph, chain: I64) -> F64:
    start = graph.nodes.start_us[chain]
    end = start + graph.nodes.duration_us[chain]
    gap = np.zeros(len(chain))
    if len(chain):
        gap[1:] = start[1:] - end[:-1]
        period = graph.meta.host_step_us
        gap[0] = start[0] + (period - end[-1]) if np.isfinite(period) else 0.0
    return gap


def _launches(
    graph: ExecutionGraph, waits: Waits, device: I64, place: I64, known: DeviceConstants
) -> Links:
    """From the end of a call to its work; from its start where the work begins during the call.

    The latter holds for blocking copies and for calls that launch many works (captured graphs).
    """
    launch = graph.nodes.launch[device]
    linked = device[(launch >= 0) & (place[launch] >= 0)]
    launch = graph.nodes.launch[linked]
    copy = waits.call[launch] == Call.BLOCKING_COPY
    many = (np.bincount(launch, minlength=graph.num_nodes)[launch] > 1) & ~copy
    return Links.join(
        [
            Links.of(place[launch[rows]], place[linked[rows]], kind, lag)
            for rows, kind, lag in (
                (~copy & ~many, Link.END_START, known.launch_latency_us),
                (copy, Link.START_START, copy_starts(graph, known, linked[copy])),
                (many, Link.START_START, known.graph_start_us),
            )
        ]
    )


def _waits(
    graph: ExecutionGraph, waits: Waits, place: I64, known: DeviceConstants, rules: tuple[str, ...]
) -> list[Links]:
    parts = []
    if "events" in rules:
        rows = waits.of_kind(EdgeKind.EVENT_WAIT)
        rows = rows[(place[waits.src[rows]] >= 0) & (place[waits.dst[rows]] >= 0)]
        parts.append(
            Links.of(
                place[waits.src[rows]],
                place[waits.dst[rows]],
                lag_us=known.queue_gap_us,
                back=waits.back[rows],
            )
        )
    if "host_waits" in rules:
        rows, keys = wait_class(graph, waits)
        lag = np.array([known.return_us[str(k)] for k in keys], np.float64)
        keep = (place[waits.src[rows]] >= 0) & (place[waits.dst[rows]] >= 0)
        rows, lag = rows[keep], lag[keep]
        parts.append(
            Links.of(
                place[waits.src[rows]],
                place[waits.dst[rows]] + 1,
                Link.END_START,
                lag,
                waits.back[rows],
            )
        )
    return parts


def _queue(graph: ExecutionGraph, device: I64, place: I64, depth: int) -> list[Links]:
    """A launch returns only when the work `depth` launches before it on its stream has begun."""
    nodes = graph.nodes
    parts = []
    device = device[(nodes.launch[device] >= 0) & (place[nodes.launch[device]] >= 0)]
    for lane in np.unique(nodes.lane[device]):
        own = device[nodes.lane[device] == lane]
        entry = own[np.append(True, nodes.launch[own][1:] != nodes.launch[own][:-1])]
        index = np.arange(len(entry)) - depth
        source = place[entry[index % len(entry)]]
        back = (-(index // len(entry))).astype(np.int32)
        parts.append(Links.of(source, place[nodes.launch[entry]], Link.START_END, 0.0, back))
    return parts
