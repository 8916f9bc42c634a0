"""The few device constants of a replay, estimated from the trace's own records.

Each is a middle value over all records of its kind in the step; none is fitted to the time of
the step. Where a step has no such record the stated default stands, and is named in `assumed`.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gnnperf.graph.kinds import EdgeKind, NodeKind
from gnnperf.graph.model import F64, I32, I64, Bool, ExecutionGraph
from gnnperf.traces.dependencies import SYNCHRONIZE, WAITED_US, Call, Waits, done_us

CUDA_QUEUE_DEPTH = 1021
"""Launches that a CUDA stream takes before the host blocks (met in public V100 traces)."""
FREE_AFTER_US = 5.0
"""A stream that ended so long before a launch began was free for it."""
LONGEST_US = {
    "launch_latency_us": (-100.0, 20.0),
    "queue_gap_us": (0.0, 20.0),
    "queue_gap_beside_us": (0.0, 20.0),
    "graph_start_us": (-100.0, 5000.0),
    "copy_start_us[to_host]": (-100.0, 50.0),
    "copy_start_us[to_device]": (-100.0, 300.0),
    "return_us[to_host]": (-50.0, 100.0),
    "return_us[to_device]": (-300.0, 100.0),
    "return_us[stream]": (-50.0, 100.0),
    "return_us[device]": (-50.0, 100.0),
}
"""Records outside of these bounds have another cause than the constant and are not looked at.

They leave room for a GPU clock that runs up to 100 us before the host's: latencies then come out
too small and returns too large by the same time, which cancels.
"""


@dataclass(frozen=True)
class DeviceConstants:
    """Times between host and device, microseconds."""

    launch_latency_us: float = 2.0
    """end of the launch call to start of the kernel on a free stream"""
    queue_gap_us: float = 1.2
    """end of a kernel to the start of the next one, when that was queued"""
    queue_gap_beside_us: float = 1.2
    """the same while another stream runs: hardware queues take turns"""
    copy_start_us: dict[str, float] = field(
        default_factory=lambda: {"to_host": 10.0, "to_device": 10.0}
    )
    """start of a blocking copy's call to the start of the copy"""
    graph_start_us: float = 10.0
    """start of a call that launches many works (a captured graph) to the start of the first"""
    call_us: float = 8.0
    """host work of a launch"""
    sync_us: float = 4.0
    """host work of a blocking call that finds its work done"""
    return_us: dict[str, float] = field(
        default_factory=lambda: {"to_host": 10.0, "to_device": -90.0, "stream": 5.0, "device": 7.0}
    )
    """end of the device work to the end of the call that waited for it, by kind of call"""
    queue_depth: int | None = CUDA_QUEUE_DEPTH
    """None where the runtime shows no limit (HIP)"""
    assumed: tuple[str, ...] = ()
    """constants that the trace does not show, so that the default stands"""


def copy_side(graph: ExecutionGraph, copies: I64 | I32) -> NDArray[np.str_]:
    """[c] "to_device" or "to_host" of each blocking copy."""
    to_device = np.zeros(len(graph.strings), np.bool_)
    for index in np.unique(graph.nodes.name[copies]).tolist():
        name = graph.strings[index]
        to_device[index] = "HtoD" in name or "HostToDevice" in name
    return np.where(to_device[graph.nodes.name[copies]], "to_device", "to_host")


def copy_starts(graph: ExecutionGraph, known: "DeviceConstants", copies: I64) -> F64:
    """[c] start of each blocking copy after the start of its call."""
    side = copy_side(graph, copies)
    to_device, to_host = known.copy_start_us["to_device"], known.copy_start_us["to_host"]
    return np.where(side == "to_device", to_device, to_host)


def wait_class(graph: ExecutionGraph, waits: Waits) -> tuple[I64, NDArray[np.str_]]:
    """Rows of `waits` that block the host, and the key of `return_us` of each."""
    rows = waits.of_kind(EdgeKind.HOST_SYNC)
    call = waits.call[waits.dst[rows]]
    whole = np.isin(call, (Call.WAIT_DEVICE, Call.FREE))
    key = np.where(whole, "device", "stream")
    copies = call == Call.BLOCKING_COPY
    return rows, np.where(copies, copy_side(graph, waits.src[rows]), key)


def runs_beside(graph: ExecutionGraph, works: I64) -> Bool:
    """[w] whether a work of another stream was running when each work is recorded to begin."""
    nodes = graph.nodes
    lane, begin = nodes.lane[works], nodes.start_us[works]
    end = begin + nodes.duration_us[works]
    found = np.zeros(len(works), np.bool_)
    for own in np.unique(lane):
        mine, others = np.flatnonzero(lane == own), np.flatnonzero(lane != own)
        others = others[np.argsort(begin[others], kind="stable")]
        latest = np.append(-np.inf, np.maximum.accumulate(end[others]))
        found[mine] = latest[np.searchsorted(begin[others], begin[mine])] > begin[mine]
    return found


class _Records:
    """The device work of a step in stream order, with what came before each. [d] each."""

    def __init__(self, graph: ExecutionGraph, waits: Waits) -> None:
        nodes = graph.nodes
        device = graph.device_nodes
        device = device[np.lexsort((nodes.start_us[device], nodes.lane[device]))]
        end = nodes.start_us + nodes.duration_us
        launch, lane = nodes.launch[device], nodes.lane[device]
        self.linked: Bool = launch >= 0
        self.follows: Bool = np.append(False, lane[1:] == lane[:-1])[: len(device)]
        """whether work of its stream came before it in the step"""
        self.before: F64 = np.where(self.follows, np.append(0.0, end[device])[:-1], -np.inf)
        """end of that work"""
        self.begin: F64 = nodes.start_us[device]
        self.called, self.returned = nodes.start_us[launch], end[launch]
        held = np.isin(device, waits.dst[waits.kind == EdgeKind.EVENT_WAIT])
        call = np.where(self.linked, waits.call[launch], Call.OTHER)
        talks = nodes.kind[device] == NodeKind.COLLECTIVE
        self.plain: Bool = (call == Call.LAUNCH) & ~held & ~talks
        """kernels and copies that only their launch and their stream hold back"""
        self.copies: Bool = call == Call.BLOCKING_COPY
        self.alone_copies: Bool = self.copies & ~held & self.follows & (self.before < self.called)
        counts = np.bincount(launch[self.linked], minlength=graph.num_nodes)
        self.many: Bool = self.linked & (counts[launch] > 1)
        """works of calls that launch many"""
        self.opening: Bool = np.append(True, launch[1:] != launch[:-1])[: len(device)]
        self.side = copy_side(graph, device)
        self.free: Bool = self.plain & (self.before < self.called - FREE_AFTER_US)
        queued = self.returned + FREE_AFTER_US < self.before
        self.queued: Bool = self.plain & self.follows & queued
        self.beside: Bool = runs_beside(graph, device)
        self.single_calls = np.unique(launch[self.linked & ~self.many])


def estimate(graph: ExecutionGraph, waits: Waits) -> DeviceConstants:
    """The constants of one step of one rank."""
    default, found, at = DeviceConstants(), _Found(), _Records(graph, waits)
    one = at.plain & ~at.many
    latency = at.begin - at.returned
    in_call = at.begin - at.called
    starts = {}
    for side, value in default.copy_start_us.items():
        mine = at.side == side
        name = f"copy_start_us[{side}]"
        starts[side] = found.middle(name, in_call, at.alone_copies & mine, value, at.copies & mine)
    pause = at.begin - at.before
    gap = found.mean(
        "queue_gap_us", pause, at.queued & ~at.beside, default.queue_gap_us, at.follows & ~at.beside
    )
    calls = graph.nodes.duration_us[at.single_calls]
    returns, sync = _returns(graph, waits, default, found)
    called = graph.nodes.launch[graph.device_nodes]
    names = np.unique(graph.nodes.name[called[called >= 0]]).tolist()
    hip = any(graph.strings[i].startswith("hip") for i in names)
    return DeviceConstants(
        launch_latency_us=found.middle(
            "launch_latency_us",
            latency,
            at.free & at.follows & ~at.many,
            default.launch_latency_us,
            one,
        ),
        queue_gap_us=gap,
        queue_gap_beside_us=found.mean(
            "queue_gap_beside_us", pause, at.queued & at.beside, gap, at.follows & at.beside
        ),
        copy_start_us=starts,
        graph_start_us=found.middle(
            "graph_start_us",
            in_call,
            at.free & at.many & at.opening,
            default.graph_start_us,
            at.many,
        ),
        call_us=float(np.median(calls)) if len(calls) else default.call_us,
        return_us=returns,
        sync_us=sync,
        queue_depth=None if hip else CUDA_QUEUE_DEPTH,
        assumed=tuple(found.absent),
    )


def _returns(
    graph: ExecutionGraph, waits: Waits, default: DeviceConstants, found: "_Found"
) -> tuple[dict[str, float], float]:
    nodes = graph.nodes
    end = nodes.start_us + nodes.duration_us
    rows, keys = wait_class(graph, waits)
    call = waits.dst[rows]
    done = done_us(graph, waits, rows)
    truly = (done > nodes.start_us[call] + default.sync_us) & (waits.back[rows] == 0)
    values = {
        key: found.middle(
            f"return_us[{key}]", end[call] - done, truly & (keys == key), value, keys == key
        )
        for key, value in default.return_us.items()
    }
    waiting = np.isin(waits.call, SYNCHRONIZE)
    waiting[call[done > nodes.start_us[call]]] = False
    idle = nodes.duration_us[waiting & (nodes.duration_us < WAITED_US)]
    return values, float(np.median(idle)) if len(idle) else default.sync_us


class _Found:
    """Constants as they are found in the records, and the names of those that are not."""

    def __init__(self) -> None:
        self.absent: list[str] = []

    def middle(self, name: str, values: F64, where: Bool, default: float, used: Bool) -> float:
        """The median of the records, or the default."""
        chosen = self._plausible(name, values[where], used)
        return float(np.median(chosen)) if len(chosen) else default

    def mean(self, name: str, values: F64, where: Bool, default: float, used: Bool) -> float:
        """The mean of the records, or the default."""
        chosen = self._plausible(name, values[where], used)
        return float(chosen.mean()) if len(chosen) else default

    def _plausible(self, name: str, values: F64, used: Bool) -> F64:
        low, high = LONGEST_US[name]
        chosen = values[(values >= low) & (values <= high)]
        if not len(chosen) and used.any():
            self.absent.append(name)
        return chosen
