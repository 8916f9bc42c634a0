"""The few device constants of a replay, estimated from the trace's own records.

Each is a middle value over all records of its kind in the step; none is fitted to the time of
the step. Where a step has no such record the stated default stands, and is named in `assumed`.
"""

from dataclasses import dataclass, field

import numpy as np

from gnnperf.graph.kinds import EdgeKind, NodeKind
from gnnperf.graph.model import F64, I64, Bool, ExecutionGraph
from gnnperf.traces.dependencies import SYNCHRONIZE, Call, Waits

CUDA_QUEUE_DEPTH = 1021
"""Launches that a CUDA stream takes before the host blocks (met in public V100 traces)."""
FREE_AFTER_US = 5.0
"""A stream that ended so long before a launch began was free for it."""
LONGEST_GAP_US = 20.0
"""A pause between queued kernels that is longer has another cause than the queue."""


@dataclass(frozen=True)
class DeviceConstants:
    """Times between host and device, microseconds."""

    launch_latency_us: float = 2.0
    """end of the launch call to start of the kernel on a free stream"""
    queue_gap_us: float = 1.2
    """end of a kernel to the start of the next one, when that was queued"""
    copy_start_us: float = 10.0
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


def wait_class(graph: ExecutionGraph, waits: Waits) -> tuple[I64, list[str]]:
    """Rows of `waits` that block the host, and the key of `return_us` of each."""
    rows = waits.of_kind(EdgeKind.HOST_SYNC)
    keys = []
    for row in rows.tolist():
        call = waits.call[waits.dst[row]]
        if call == Call.BLOCKING_COPY:
            name = graph.name_of(int(waits.src[row]))
            keys.append("to_device" if "HtoD" in name or "HostToDevice" in name else "to_host")
        else:
            keys.append("device" if call in (Call.WAIT_DEVICE, Call.FREE) else "stream")
    return rows, keys


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
    latency = _middle(start[device] - returned, free)
    queued = plain & follows & (returned + 5.0 < before)
    pause = start[device] - before
    queued &= (pause >= 0) & (pause < LONGEST_GAP_US)
    gap = float(pause[queued].mean()) if queued.any() else None
    copy = has & (waits.call[launch] == Call.BLOCKING_COPY) & (before < called) & ~held
    found = {
        "launch_latency_us": latency,
        "queue_gap_us": gap,
        "copy_start_us": _middle(start[device] - called, copy),
        "call_us": _middle(nodes.duration_us, waits.call == Call.LAUNCH),
    }
    default = DeviceConstants()
    returns, sync, absent = _returns(graph, waits, default)
    hip = any(graph.strings[i].startswith("hip") for i in np.unique(nodes.name[launch[has]]))
    return DeviceConstants(
        launch_latency_us=default.launch_latency_us if latency is None else latency,
        queue_gap_us=default.queue_gap_us if gap is None else gap,
        copy_start_us=found["copy_start_us"] or default.copy_start_us,
        call_us=found["call_us"] or default.call_us,
        return_us=returns,
        sync_us=default.sync_us if sync is None else sync,
        queue_depth=None if hip else CUDA_QUEUE_DEPTH,
        assumed=tuple(key for key, value in found.items() if value is None) + absent,
    )


def _returns(
    graph: ExecutionGraph, waits: Waits, defaults: DeviceConstants
) -> tuple[dict[str, float], float | None, tuple[str, ...]]:
    nodes = graph.nodes
    end = nodes.start_us + nodes.duration_us
    rows, keys = wait_class(graph, waits)
    source, call = waits.src[rows], waits.dst[rows]
    shift = np.where(waits.back[rows] > 0, graph.meta.host_step_us, 0.0)
    done = end[source] - shift
    truly = done > nodes.start_us[call]
    kinds = np.array(keys, dtype=object)
    values = dict(defaults.return_us)
    absent = []
    for key in values:
        here = kinds == key
        middle = _middle(end[call] - done, here & truly)
        if middle is not None:
            values[key] = middle
        elif here.any():
            absent.append(f"return_us[{key}]")
    waiting = np.isin(waits.call, SYNCHRONIZE)
    waiting[call[truly]] = False
    return values, _middle(nodes.duration_us, waiting), tuple(absent)


def _middle(values: F64, where: Bool) -> float | None:
    chosen = values[where]
    return float(np.median(chosen)) if chosen.size else None
