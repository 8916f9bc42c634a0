"""What waits for what in a trace, beyond the order of threads, streams and launches.

Traces name no dependencies. They are inferred from the runtime calls, their names and the
recorded times: a dependency is kept only where the times agree with it.

- EVENT_WAIT: `StreamWaitEvent` holds back the next work that its thread launches, until the work
  before the event has ended. With event ids in the trace, that is the work issued before the
  event was recorded; without them, the last work issued on each other stream.
- HOST_SYNC: a synchronize, a copy from or to pageable memory, or a freeing of memory blocks its
  thread until device work has ended.
- THREAD: a host thread goes on where another one has stopped (main thread and autograd thread).
"""

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from gnnperf.graph.kinds import EdgeKind, LaneKind, NodeKind
from gnnperf.graph.model import F64, I32, I64, NONE, U8, Bool, Edges, ExecutionGraph

TOLERANCE_US = 1.5
"""Times that contradict an order by less are rounding (old traces have whole microseconds)."""
WAITED_US = 30.0
"""A synchronize that took longer has waited; a free one takes 2 to 20 us."""
PAGEABLE_STAGING_BYTES = 65536
"""Smaller pageable copies to the device are staged and do not block (CUDA runtime API, "API
synchronization behavior")."""
AT_ONCE_US = 5.0
"""A work of a captured graph that begins so soon after another one was waiting for it."""
FALL_BACK = 64
"""How many works back the source of a collective's event is looked for."""


class Call(IntEnum):
    """What a runtime call does to the order of things."""

    OTHER = 0
    LAUNCH = 1
    WAIT_DEVICE = 2
    WAIT_STREAM = 3
    WAIT_EVENT = 4
    HOLD_STREAM = 5
    """StreamWaitEvent"""
    RECORD = 6
    """EventRecord"""
    BLOCKING_COPY = 7
    FREE = 8
    """freeing of memory: waits for the device, and takes time of its own"""


SYNCHRONIZE = (Call.WAIT_DEVICE, Call.WAIT_STREAM, Call.WAIT_EVENT)
"""Calls that do nothing but wait."""
BLOCKING = (*SYNCHRONIZE, Call.FREE)
"""Calls that wait for device work other than their own."""

_PATTERNS: tuple[tuple[Call, re.Pattern[str]], ...] = (
    (Call.WAIT_DEVICE, re.compile(r"(DeviceSynchronize|CtxSynchronize(_v2)?)$")),
    (Call.FREE, re.compile(r"(cudaFree|cudaFreeHost|hipFree|hipHostFree)$")),
    (Call.WAIT_STREAM, re.compile(r"StreamSynchronize(_ptsz)?$")),
    (Call.WAIT_EVENT, re.compile(r"EventSynchronize$")),
    (Call.HOLD_STREAM, re.compile(r"StreamWaitEvent(_ptsz)?$")),
    (Call.RECORD, re.compile(r"EventRecord(WithFlags)?(_ptsz)?$")),
)
_TO_HOST = re.compile(r"DtoH|DeviceToHost", re.IGNORECASE)
_TO_DEVICE = re.compile(r"HtoD|HostToDevice", re.IGNORECASE)
_PINNED = re.compile(r"pinned", re.IGNORECASE)
_PAGEABLE = re.compile(r"pageable", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Waits:
    """Dependencies of one step, and what its runtime calls are."""

    src: I32
    """[w] device work that is waited for (THREAD: a host call)"""
    dst: I32
    """[w] the device work or the host call that waits"""
    kind: U8
    """[w] EdgeKind"""
    back: I32
    """[w] 1 where the source is of the step before, 0 otherwise"""
    call: U8
    """[n] Call of every node (OTHER for those that are no runtime calls)"""

    def of_kind(self, kind: EdgeKind) -> I64:
        """Rows of one kind."""
        return np.flatnonzero(self.kind == kind)


class _Order:
    """The device work of a graph in the order of its launches, per stream."""

    def __init__(self, graph: ExecutionGraph, call: U8) -> None:
        nodes = graph.nodes
        self.start: F64 = nodes.start_us
        self.end: F64 = nodes.start_us + nodes.duration_us
        device = graph.device_nodes
        device = device[(nodes.launch[device] >= 0) & np.isfinite(self.end[device])]
        issued = self.start[nodes.launch[device]]
        order = np.lexsort((self.start[device], issued))
        self.work: I64 = device[order]
        self.issued: F64 = issued[order]
        self.lane: I32 = nodes.lane[self.work]
        self.launch: I32 = nodes.launch[self.work]
        self.thread: I32 = nodes.lane[self.launch]
        self.streams = {int(s): np.flatnonzero(self.lane == s) for s in np.unique(self.lane)}
        self.by_thread = {int(t): np.flatnonzero(self.thread == t) for t in np.unique(self.thread)}
        self.collective: Bool = nodes.kind == NodeKind.COLLECTIVE
        self.period = device_period_us(graph)
        self._stream_issued = {s: self.issued[rows] for s, rows in self.streams.items()}
        self._thread_issued = {t: self.issued[rows] for t, rows in self.by_thread.items()}
        records = np.flatnonzero((nodes.event != NONE) & (nodes.stream != NONE))
        records = records[call[records] == Call.RECORD]
        self.records = records[np.lexsort((nodes.start_us[records], nodes.event[records]))]
        self.recorded: I64 = nodes.event[self.records]

    def before(self, stream: int, time: float, skip: int = 0) -> tuple[int, int]:
        """The last work issued on a stream before a time, and how many steps back it lies.

        `skip` works later than that one are passed over. (NONE, 0) where there is none.
        """
        rows = self.streams[stream]
        place = int(np.searchsorted(self._stream_issued[stream], time)) - 1 - skip
        if place >= 0:
            return int(self.work[rows[place]]), 0
        if np.isfinite(self.period) and place >= -len(rows):
            return int(self.work[rows[place]]), 1
        return NONE, 0

    def next_of_thread(self, thread: int, time: float) -> int:
        """The next work that a thread issues after a time; NONE if there is none."""
        rows = self.by_thread.get(thread)
        if rows is None:
            return NONE
        place = int(np.searchsorted(self._thread_issued[thread], time))
        return int(self.work[rows[place]]) if place < len(rows) else NONE

    def stream_of_thread(self, thread: int, time: float) -> int:
        """The stream of the last work that a thread issued before a time; NONE if none."""
        rows = self.by_thread.get(thread)
        if rows is None:
            return NONE
        place = int(np.searchsorted(self._thread_issued[thread], time)) - 1
        return int(self.lane[rows[place]]) if place >= 0 else NONE

    def end_of(self, work: int, back: int) -> float:
        """End of a work on this step's clock."""
        return float(self.end[work]) - (self.period if back else 0.0)


def device_period_us(graph: ExecutionGraph) -> float:
    """After how long the device's work recurs: its period, else the host's; NaN if unknown."""
    meta = graph.meta
    return meta.device_period_us if np.isfinite(meta.device_period_us) else meta.host_step_us


def done_us(graph: ExecutionGraph, waits: "Waits", rows: I64) -> F64:
    """[r] recorded end of what each wait waits for, on the clock of this step.

    Works of the step before recur after the device's period, or after the host's on a stream that
    keeps up with it: the later end counts.
    """
    nodes = graph.nodes
    source = waits.src[rows]
    least = np.fmin(graph.meta.device_period_us, graph.meta.host_step_us)
    shift = np.where(waits.back[rows] > 0, least, 0.0)
    return np.asarray(nodes.start_us[source] + nodes.duration_us[source] - shift, np.float64)


def classify_calls(graph: ExecutionGraph) -> U8:
    """[n] `Call` of every runtime node, from its name and from what it enqueued."""
    nodes = graph.nodes
    kinds = np.zeros(len(graph.strings), np.uint8)
    synchronous = np.zeros(len(graph.strings), np.bool_)
    for index in np.unique(nodes.name[nodes.kind == NodeKind.RUNTIME]).tolist():
        name = graph.strings[index]
        kinds[index] = next((c for c, p in _PATTERNS if p.search(name)), Call.OTHER)
        synchronous[index] = "emcpy" in name and "Async" not in name
    call = np.where(nodes.kind == NodeKind.RUNTIME, kinds[nodes.name], 0).astype(np.uint8)
    device = graph.device_nodes
    device = device[nodes.launch[device] >= 0]
    launch = nodes.launch[device]
    call[launch] = Call.LAUNCH
    blocking = synchronous[nodes.name[launch]] & (nodes.kind[device] == NodeKind.COPY)
    call[launch[blocking | _blocks(graph, device)]] = Call.BLOCKING_COPY
    return call


def _blocks(graph: ExecutionGraph, device: I64) -> Bool:
    """[d] whether a copy is of a kind that holds its caller."""
    nodes = graph.nodes
    by_name = np.zeros(len(graph.strings), np.int8)
    for index in np.unique(nodes.name[device]).tolist():
        name = graph.strings[index]
        if _PAGEABLE.search(name) and not _PINNED.search(name):
            by_name[index] = 1 if _TO_HOST.search(name) else 2 if _TO_DEVICE.search(name) else 0
    kind = by_name[nodes.name[device]]
    large = nodes.bytes[device] > PAGEABLE_STAGING_BYTES
    return np.asarray((kind == 1) | ((kind == 2) & large), np.bool_)


def find_waits(graph: ExecutionGraph) -> Waits:
    """The dependencies that one step's runtime calls imply; see the module's text."""
    call = classify_calls(graph)
    order = _Order(graph, call)
    rows: list[tuple[int, int, int, int]] = []
    for node in _in_time(graph, np.flatnonzero(call == Call.HOLD_STREAM)):
        rows += [(s, d, EdgeKind.EVENT_WAIT, b) for s, d, b in _held(graph, order, node)]
    for node in _in_time(graph, np.flatnonzero(np.isin(call, BLOCKING))):
        found = _waited_for(graph, order, node, Call(int(call[node])))
        rows += [(s, node, EdgeKind.HOST_SYNC, b) for s, b in found]
    device = graph.device_nodes
    launch = graph.nodes.launch[device]
    copied = device[(launch >= 0) & (call[launch] == Call.BLOCKING_COPY)]
    rows += [(int(c), int(graph.nodes.launch[c]), EdgeKind.HOST_SYNC, 0) for c in copied]
    rows += [(s, d, EdgeKind.EVENT_WAIT, 0) for s, d in _branches(order, graph.num_nodes)]
    rows += [(s, d, EdgeKind.THREAD, 0) for s, d in _woken(graph)]
    table = np.array(sorted(set(rows)), np.int64).reshape(-1, 4)
    return Waits(
        table[:, 0].astype(np.int32),
        table[:, 1].astype(np.int32),
        table[:, 2].astype(np.uint8),
        table[:, 3].astype(np.int32),
        call,
    )


def infer_edges(graph: ExecutionGraph) -> Edges:
    """The dependencies within the step (EVENT_WAIT, HOST_SYNC, THREAD) as edges of the graph."""
    waits = find_waits(graph)
    own = waits.back == 0
    return Edges(waits.src[own], waits.dst[own], waits.kind[own])


def _in_time(graph: ExecutionGraph, nodes: I64) -> list[int]:
    result: list[int] = nodes[np.argsort(graph.nodes.start_us[nodes], kind="stable")].tolist()
    return result


def _recorded(graph: ExecutionGraph, order: _Order, node: int) -> list[tuple[int, int]] | None:
    """What the event of a wait stands for, by its id; None where the trace has no ids."""
    nodes = graph.nodes
    event = int(nodes.event[node])
    if event == NONE:
        return None
    low, high = np.searchsorted(order.recorded, [event, event + 1])
    same = order.records[low:high]
    place = int(np.searchsorted(nodes.start_us[same], nodes.start_us[node])) - 1
    if place < 0:
        return None
    record = int(same[place])
    number = int(nodes.stream[record])
    lanes = [s for s in order.streams if int(graph.lanes.number[s]) == number]
    found = [order.before(s, float(nodes.start_us[record])) for s in lanes]
    return [(w, b) for w, b in found if w != NONE]


def _held(graph: ExecutionGraph, order: _Order, node: int) -> list[tuple[int, int, int]]:
    """(source, destination, steps back) of one StreamWaitEvent."""
    nodes = graph.nodes
    time = float(nodes.start_us[node])
    target = order.next_of_thread(int(nodes.lane[node]), time)
    if target == NONE:
        return []
    known = _recorded(graph, order, node)
    if known is not None:
        return [(w, target, b) for w, b in known if nodes.lane[w] != nodes.lane[target]]
    collective, own = order.collective, int(nodes.lane[target])
    found = []
    for stream in order.streams:
        if stream == own:
            continue
        for skip in range(FALL_BACK):
            work, back = order.before(stream, time, skip)
            if work == NONE:
                break
            if order.end_of(work, back) <= order.start[target] + TOLERANCE_US:
                found.append((work, target, back))
                break
            if not (collective[work] or collective[target]):
                break
    return found


def _waited_for(
    graph: ExecutionGraph, order: _Order, node: int, call: Call
) -> list[tuple[int, int]]:
    """(source, steps back) of one blocking call, as far as the recorded times agree."""
    nodes = graph.nodes
    time, until = float(nodes.start_us[node]), float(order.end[node])
    known = _recorded(graph, order, node) if call == Call.WAIT_EVENT else None
    if known is not None:
        return known
    last = [order.before(stream, time) for stream in order.streams]
    agreeing = [(w, b) for w, b in last if w != NONE and order.end_of(w, b) <= until + TOLERANCE_US]
    running = [p for p in agreeing if order.end_of(*p) > time]
    if call == Call.WAIT_DEVICE:
        return agreeing
    if call == Call.FREE:
        return running
    stream = _named_stream(graph, order, node)
    if call == Call.WAIT_STREAM and stream is None and until - time <= WAITED_US:
        stream = order.stream_of_thread(int(nodes.lane[node]), time)
    if call == Call.WAIT_STREAM and stream is not None:
        return [(w, b) for w, b in agreeing if int(nodes.lane[w]) == stream]
    waited = until - time > WAITED_US and running
    return [max(running, key=lambda p: order.end_of(*p))] if waited else []


def _branches(order: _Order, count: int) -> list[tuple[int, int]]:
    """Between the streams of one captured graph: works that begin where another stream's ended.

    A graph's own edges are in no trace. A work depends on another stream's work of its graph that
    ended last, if it began at once after that and its own stream had been free for longer.
    """
    launch = order.launch
    many = np.bincount(launch, minlength=count)[launch] > 1
    found: list[tuple[int, int]] = []
    for call in np.unique(launch[many]).tolist():
        works = order.work[launch == call]
        lanes = order.lane[launch == call]
        if (lanes == lanes[0]).all():
            continue
        for lane in np.unique(lanes):
            own, other = works[lanes == lane], works[lanes != lane]
            own = own[np.argsort(order.start[own], kind="stable")]
            other = other[np.argsort(order.end[other], kind="stable")]
            begin = order.start[own]
            last = np.searchsorted(order.end[other], begin + TOLERANCE_US) - 1
            free = np.append(-np.inf, order.end[own][:-1])
            ended = np.where(last >= 0, order.end[other[last]], -np.inf)
            real = (begin - ended < AT_ONCE_US) & (ended > free)
            found += list(zip(other[last[real]].tolist(), own[real].tolist(), strict=True))
    return found


def _named_stream(graph: ExecutionGraph, order: _Order, node: int) -> int | None:
    """The lane that a call names by number (NONE: nothing ran there); None if it names none."""
    number = int(graph.nodes.stream[node])
    if number == NONE:
        return None
    return next((s for s in order.streams if int(graph.lanes.number[s]) == number), NONE)


def _woken(graph: ExecutionGraph) -> list[tuple[int, int]]:
    """Calls at which the work passes from one host thread to another, one chain in time."""
    nodes = graph.nodes
    host = graph.lanes.kind[nodes.lane] == LaneKind.THREAD
    launching = np.unique(nodes.launch[graph.device_nodes])
    launching = launching[launching >= 0]
    threads = np.unique(nodes.lane[launching])
    calls = np.flatnonzero(host & (nodes.kind == NodeKind.RUNTIME) & np.isin(nodes.lane, threads))
    calls = calls[np.argsort(nodes.start_us[calls], kind="stable")]
    change = np.flatnonzero(np.diff(nodes.lane[calls]))
    return [(int(calls[i]), int(calls[i + 1])) for i in change]
