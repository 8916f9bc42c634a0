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
    copy_start_us: dict[str, float] = field(
        default_factory=lambda: {"to_host": 10.0, "to_device": 10.0}
    )
    """start of a blocking copy's call to the start of the copy"""
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


def estimate(graph: ExecutionGraph, waits: Waits) -> DeviceConstants:
    """The constants of one step of one rank."""
    nodes = graph.nodes
    start, end = nodes.start_us, nodes.start_us + nodes.duration_us
    device = graph.device_nodes
    device = device[np.lexsort((start[device], nodes.lane[device]))]
    launch = nodes.launch[device]
    has = launch >= 0
    follows = (
        np.append(False, nodes.lane[device][1:] == nodes.lane[device][:-1]) if len(device) else has
    )
    before = np.where(follows, np.append(np.nan, end[device][:-1])[: len(device)], -np.inf)
    called, returned = start[launch], end[launch]
    held = np.isin(device, waits.dst[waits.kind == EdgeKind.EVENT_WAIT])
    plain = (
        has
        & ~held
        & (nodes.kind[device] != NodeKind.COLLECTIVE)
        & (waits.call[launch] == Call.LAUNCH)
    )
    free = plain & follows & (before < called - FREE_AFTER_US)
    queued = plain & follows & (returned + FREE_AFTER_US < before)
    copy = has & follows & (waits.call[launch] == Call.BLOCKING_COPY) & (before < called) & ~held
    side = copy_side(graph, device)
    default = DeviceConstants()
    found = _Found()
    begin = start[device]
    latency = found.middle("launch_latency_us", begin - returned, free, default.launch_latency_us)
    starts = {
        key: found.middle(f"copy_start_us[{key}]", begin - called, copy & (side == key), value)
        for key, value in default.copy_start_us.items()
    }
    gap = found.mean("queue_gap_us", begin - before, queued, default.queue_gap_us)
    calls = nodes.duration_us[waits.call == Call.LAUNCH]
    returns, sync = _returns(graph, waits, default, found)
    hip = any(graph.strings[i].startswith("hip") for i in np.unique(nodes.name[launch[has]]))
    return DeviceConstants(
        launch_latency_us=latency,
        queue_gap_us=gap,
        copy_start_us=starts,
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
        key: found.middle(f"return_us[{key}]", end[call] - done, truly & (keys == key), value)
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

    def middle(self, name: str, values: F64, where: Bool, default: float) -> float:
        """The median of the records, or the default."""
        chosen = self._plausible(name, values[where])
        return float(np.median(chosen)) if len(chosen) else default

    def mean(self, name: str, values: F64, where: Bool, default: float) -> float:
        """The mean of the records, or the default."""
        chosen = self._plausible(name, values[where])
        return float(chosen.mean()) if len(chosen) else default

    def _plausible(self, name: str, values: F64) -> F64:
        low, high = LONGEST_US[name]
        chosen = values[(values >= low) & (values <= high)]
        if not len(chosen):
            self.absent.append(name)
        return chosen
