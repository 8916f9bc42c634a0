"""Device time of rows of work on a device from its data sheet, without anything measured.

`total = launch + max(arithmetic, memory) / efficiency`, the efficiency from tiles and waves
(products, convolutions, attention) or from how a family's kernels stream (the rest). Measured
kernels have their launch gap taken off: `launch` is only what a kernel of no work lasts.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnperf.analytic.collectives import collective_time_us
from gnnperf.analytic.formulas import FORMULAS, State, stream
from gnnperf.analytic.peaks import Machine, peaks
from gnnperf.hardware import Hardware, Platform, platform_of
from gnnperf.ops import OpBatch, batch_cost, element_bytes, family_names
from gnnperf.ops.base import F64, distinct_rows_of

UNKNOWN_US = 5.0
"""stated floor of a kernel of which not even bytes are known"""


@dataclass(frozen=True, eq=False)
class DeviceTime:
    """Times of the rows of a batch, each [n] in us."""

    total_us: F64
    launch_us: F64
    """what a kernel of no work lasts"""
    compute_us: F64
    """arithmetic at the rate that the shapes allow"""
    memory_us: F64
    """traffic at the bandwidth that the shapes allow; of a collective all of its time"""
    bound_us: F64
    """lower bound: arithmetic at the peak, or bytes at the full bandwidth of where they lie"""
    efficiency: F64
    """bound / (total - launch), in (0, 1]"""
    floored: NDArray[np.bool_]
    """rows that got the stated floor, since not even their bytes are known"""
    substitutes: dict[str, int]
    """rate taken for a type that the device states none for -> rows"""


def device_time(
    batch: OpBatch, hardware: Hardware, *, cold: bool = False, platform: Platform | None = None
) -> DeviceTime:
    """Predict every row on a device.

    Args:
        batch: The work; equal rows are computed once.
        hardware: The device (GPU or CPU).
        cold: Nothing that a kernel reads lies in the last cache.
        platform: Links for collectives; default: the node that the device usually sits in.

    Raises:
        InputError: The device lacks a figure that the formulas need.
    """
    example, inverse = distinct_rows_of(batch)
    rows = batch.take(example)
    cost = batch_cost(rows)
    rate = peaks(rows, cost, hardware)
    machine = Machine.of(hardware)
    state = State(rows, cost, rate, machine, cold)
    names = family_names()
    for index in np.unique(rows.family).tolist():
        member = np.flatnonzero(rows.family == index)
        if names[index] == "collective":
            state.total[member] = _collectives(rows.take(member), platform or platform_of(hardware))
            state.memory[member] = state.total[member]
            state.launch[member] = 0.0
        else:
            FORMULAS.get(names[index], stream)(state, member, names[index])
    return _result(state, inverse)


def _result(state: State, inverse: NDArray[np.int64]) -> DeviceTime:
    """Bound, efficiency and floors; then every row of the batch."""
    m = state.machine
    ideal = state.cost.flops * state.saving / state.rate.flops_per_us
    bound = state.bytes * (1 - state.hits) / m.dram_bytes_per_us
    bound = np.maximum(bound + state.bytes * state.hits / m.cache_bytes_per_us, ideal)
    communicates = state.rows.family == family_names().index("collective")
    bound = np.where(communicates, state.total, bound)
    floored = (state.bytes + state.cost.flops <= 0) & ~communicates & ~state.rows.known
    floor = state.launch + (0.1 if m.is_cpu else UNKNOWN_US)
    total = np.where(floored, floor, state.total)
    work = np.maximum(total - state.launch, 1e-6)
    bound = np.clip(np.where(floored, work, bound), 1e-6, work)
    used = state.rate.substitute[inverse]
    counts = Counter(used[used >= 0].tolist())
    return DeviceTime(
        np.maximum(total, state.launch + 1e-6)[inverse],
        state.launch[inverse],
        state.compute[inverse],
        state.memory[inverse],
        bound[inverse],
        (bound / work)[inverse],
        floored[inverse],
        {state.rate.notes[i]: c for i, c in counts.items()},
    )


def _collectives(rows: OpBatch, platform: Platform) -> F64:
    dims = rows.dims
    return collective_time_us(
        dims[:, 0].astype(np.int64),
        dims[:, 1],
        dims[:, 2],
        dims[:, 3],
        dims[:, 4],
        platform,
        element_bytes(rows.dtype),
    )


def roofline_rule(batch: OpBatch, hardware: Hardware) -> F64:
    """[n] the plain rule that learned models are measured against: roofline / 0.75 + 2.5 us."""
    cost = batch_cost(batch)
    rate = peaks(batch, cost, hardware).flops_per_us
    bandwidth = hardware.memory_bandwidth_gb_per_s * 1e3
    moved = (cost.bytes_read + cost.bytes_written) / bandwidth
    rule: F64 = np.maximum(cost.flops / rate, moved) / 0.75 + 2.5
    return rule
