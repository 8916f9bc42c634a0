"""Kernels of one stream that find the SMs taken by another stream's kernel of many waves.

Blocks are handed out in the order in which kernels start: a kernel that comes while another
one still has blocks to hand out begins when that one is in its last wave.
"""

from dataclasses import dataclass

import numpy as np

from gnnperf.graph.kinds import EdgeKind, NodeKind
from gnnperf.graph.model import F64, I32, I64, NONE, ExecutionGraph
from gnnperf.hardware import Hardware, find_hardware
from gnnperf.timeline.constants import DeviceConstants, copy_starts
from gnnperf.traces.dependencies import Call, Waits

LATE_US = 3.0
"""A kernel that begins no later than this after it could has not been held."""
AGREES_US = 5.0
"""How much before the reckoned last wave a held kernel may be recorded to begin."""


@dataclass(frozen=True, eq=False)
class Held:
    """Kernels that begin only with the last wave of another one."""

    src: I32
    """[h] the kernel with many waves"""
    dst: I32
    """[h] the kernel that waits"""
    share: F64
    """[h] last wave's share of the source's duration"""


def waves(graph: ExecutionGraph, rows: I64) -> F64:
    """[r] waves of kernels on their device: blocks over those that run at once (1 if unknown)."""
    nodes = graph.nodes
    known = find_hardware(graph.meta.device) if graph.meta.device else None
    if known is None or known.kind != "gpu":
        return np.ones(len(rows))
    at_once = blocks_per_sm(graph, rows, known) * known.sm_count
    blocks = nodes.grid_blocks[rows].astype(np.float64)
    sized = (blocks > 0) & (nodes.block_threads[rows] > 0)
    return np.where(sized, np.maximum(np.ceil(blocks / at_once), 1.0), 1.0)


def blocks_per_sm(graph: ExecutionGraph, rows: I64, known: Hardware) -> F64:
    """[r] blocks of each kernel that fit on one SM at once, at least 1 (CUDA occupancy)."""
    return np.maximum(np.floor(1.0 / sm_share(graph, rows, known) + 1e-9), 1.0)


def sm_share(graph: ExecutionGraph, rows: I64, known: Hardware) -> F64:
    """[r] share of one SM that one block of each kernel takes, at most 1.

    Of its threads, its places for blocks, its registers or its shared memory, whatever is most;
    what the trace does not tell counts nothing.
    """
    nodes = graph.nodes
    threads = np.maximum(nodes.block_threads[rows], 1).astype(np.float64)
    registers = np.maximum(nodes.registers[rows], 0) * threads * 4.0
    shared = np.maximum(nodes.shared_memory[rows], 0).astype(np.float64)
    shares = (
        np.full(len(rows), 1.0 / (known.max_blocks_per_sm or 32)),
        threads / (known.max_threads_per_sm or 2048),
        registers / ((known.register_file_kb_per_sm or 256.0) * 1024),
        shared / ((known.shared_memory_kb_per_sm or 64.0) * 1024),
    )
    share: F64 = np.minimum(np.max(shares, axis=0), 1.0)
    return share


def ready_times(graph: ExecutionGraph, waits: Waits, known: DeviceConstants, device: I64) -> F64:
    """[d] when each work could have begun by the recorded times of what it depends on.

    Args:
        graph: The step.
        waits: Its dependencies.
        known: Its device constants.
        device: Its device work, stream after stream in order.
    """
    nodes = graph.nodes
    end = nodes.start_us + nodes.duration_us
    launch = nodes.launch[device]
    ready = np.where(launch >= 0, end[launch] + known.launch_latency_us, -np.inf)
    early = (launch >= 0) & (waits.call[launch] == Call.BLOCKING_COPY)
    ready[early] = nodes.start_us[launch[early]] + copy_starts(graph, known, device[early])
    follows = np.flatnonzero(nodes.lane[device][1:] == nodes.lane[device][:-1]) + 1
    ready[follows] = np.maximum(ready[follows], end[device[follows - 1]] + known.queue_gap_us)
    place = np.full(graph.num_nodes, NONE, np.int64)
    place[device] = np.arange(len(device))
    rows = np.flatnonzero((waits.kind == EdgeKind.EVENT_WAIT) & (waits.back == 0))
    rows = rows[place[waits.dst[rows]] >= 0]
    np.maximum.at(ready, place[waits.dst[rows]], end[waits.src[rows]] + known.queue_gap_us)
    return ready


def find_held(graph: ExecutionGraph, waits: Waits, known: DeviceConstants, device: I64) -> Held:
    """Kernels that the records show late, with another stream's kernel of many waves running."""
    nodes = graph.nodes
    end = nodes.start_us + nodes.duration_us
    ready = ready_times(graph, waits, known, device)
    kind, lane = nodes.kind[device], nodes.lane[device]
    computes = kind != NodeKind.COPY
    late = np.flatnonzero(computes & (nodes.start_us[device] > ready + LATE_US))
    number = waves(graph, device)
    found: list[tuple[I64, I64, F64]] = []
    for stream in np.unique(lane):
        many = np.flatnonzero((lane == stream) & (kind == NodeKind.KERNEL) & (number > 1))
        many = many[np.argsort(nodes.start_us[device[many]], kind="stable")]
        other = late[lane[late] != stream]
        if not len(many) or not len(other):
            continue
        at = np.searchsorted(nodes.start_us[device[many]], nodes.start_us[device[other]]) - 1
        other, holder = other[at >= 0], many[at[at >= 0]]
        share = 1.0 / number[holder]
        free = end[device[holder]] - nodes.duration_us[device[holder]] * share
        begin = nodes.start_us[device[other]]
        true = (free > ready[other]) & (begin >= free - AGREES_US)
        found.append((device[holder[true]], device[other[true]], share[true]))
    if not found:
        return Held(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))
    src, dst, share = (np.concatenate(column) for column in zip(*found, strict=True))
    return Held(src.astype(np.int32), dst.astype(np.int32), share)
