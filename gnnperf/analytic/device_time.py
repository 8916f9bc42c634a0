"""Device time of rows of work on a device from its data sheet, without anything measured.

`total = launch + max(arithmetic, memory) / efficiency`, the efficiency from tiles and waves
(products, convolutions, attention) or from how a family's kernels stream (the rest). Measured
kernels have their launch gap taken off: `launch` is only what a kernel of no work lasts.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnperf.analytic.collectives import collective_time_us
from gnnperf.analytic.peaks import (
    DRAM_SHARE,
    L2_SHARE,
    Machine,
    Peaks,
    hit_share,
    peaks,
    throttled,
)
from gnnperf.analytic.tiles import (
    WINOGRAD_SAVING,
    Product,
    convolution_products,
    product_time,
    winograd_saving,
)
from gnnperf.hardware import Hardware, Platform, platform_of
from gnnperf.ops import Cost, OpBatch, batch_cost, dim_index, element_bytes, family_names
from gnnperf.ops.base import F64, distinct_rows_of
from gnnperf.ops.copy import FROM_HOST, PEER, TO_HOST
from gnnperf.ops.norm import BATCH

KERNEL_US = 1.5
"""what an empty kernel lasts on a GPU"""
COPY_US = 1.0
"""what a copy of a few bytes lasts"""
UNKNOWN_US = 5.0
"""stated floor of a kernel of which not even bytes are known"""
_PAGEABLE_SHARE, _PINNED_SHARE, _HOST_LINK_GB_PER_S = 0.25, 0.8, 16.0
_THREADS = 1024.0
"""elements in flight that keep one SM's share of the bandwidth busy"""

STREAMING: dict[str, float] = {
    "norm": 0.85,
    "softmax": 0.85,
    "reduce": 0.9,
    "elementwise": 1.0,
    "pool": 0.7,
    "embedding": 0.7,
    "gather": 0.7,
    "sort": 0.5,
    "copy": 1.0,
    "recurrent": 0.7,
    "optimizer": 0.9,
    "triton": 0.95,
    "quantize": 0.7,
    "other": 0.8,
}
"""share of the streaming bandwidth (0.83 of the peak) that a family's kernels reach"""


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
    state = _State(rows, cost, rate, machine, cold)
    names = family_names()
    for index in np.unique(rows.family).tolist():
        member = np.flatnonzero(rows.family == index)
        if names[index] == "collective":
            state.total[member] = _collectives(rows.take(member), platform or platform_of(hardware))
            state.memory[member] = state.total[member]
            state.launch[member] = 0.0
        else:
            _FORMULAS.get(names[index], _stream)(state, member, names[index])
    return state.result(inverse)


class _State:
    """Columns under construction, and what the formulas need."""

    def __init__(
        self, rows: OpBatch, cost: Cost, rate: Peaks, machine: Machine, cold: bool
    ) -> None:
        n = len(rows)
        self.rows, self.cost, self.rate, self.machine, self.cold = rows, cost, rate, machine, cold
        self.total, self.compute, self.memory = np.zeros(n), np.zeros(n), np.zeros(n)
        self.saving = np.ones(n)
        self.launch = np.full(n, 0.0 if machine.is_cpu else KERNEL_US)
        self.bytes = cost.bytes_read + cost.bytes_written
        self.hits = np.zeros(n) if cold else hit_share(self.bytes, machine)

    def dim(self, member: NDArray[np.int64], family: str, name: str) -> F64:
        """One named dimension of some rows."""
        return self.rows.dims[member, dim_index(family, name)]

    def stream_us(self, member: NDArray[np.int64], traffic: F64, share: F64 | float) -> F64:
        """Time of traffic that streams, partly from the cache, with `share` of the bandwidth."""
        m, hits = self.machine, self.hits[member]
        uncached = traffic * (1 - hits) / (DRAM_SHARE * m.dram_bytes_per_us)
        total: F64 = (uncached + traffic * hits / (L2_SHARE * m.cache_bytes_per_us)) / share
        return total

    def result(self, inverse: NDArray[np.int64]) -> DeviceTime:
        """Bound, efficiency and floors; then every row of the batch."""
        m = self.machine
        ideal = self.cost.flops * self.saving / self.rate.flops_per_us
        bound = self.bytes * (1 - self.hits) / m.dram_bytes_per_us
        bound = np.maximum(bound + self.bytes * self.hits / m.cache_bytes_per_us, ideal)
        communicates = self.rows.family == family_names().index("collective")
        bound = np.where(communicates, self.total, bound)
        floored = (self.bytes + self.cost.flops <= 0) & ~communicates & ~self.rows.known
        floor = self.launch + (0.1 if m.is_cpu else UNKNOWN_US)
        total = np.where(floored, floor, self.total)
        work = np.maximum(total - self.launch, 1e-6)
        bound = np.clip(np.where(floored, work, bound), 1e-6, work)
        used = self.rate.substitute[inverse]
        counts = Counter(used[used >= 0].tolist())
        return DeviceTime(
            np.maximum(total, self.launch + 1e-6)[inverse],
            self.launch[inverse],
            self.compute[inverse],
            self.memory[inverse],
            bound[inverse],
            (bound / work)[inverse],
            floored[inverse],
            {self.rate.notes[i]: c for i, c in counts.items()},
        )


def _finish(state: _State, member: NDArray[np.int64], work: F64, compute: F64, memory: F64) -> None:
    state.compute[member], state.memory[member] = compute, memory
    state.total[member] = state.launch[member] + work


def _products(state: _State, member: NDArray[np.int64], family: str) -> None:
    if family == "gemm":
        batch, m, n, k = (state.dim(member, family, d) for d in ("batch", "m", "n", "k"))
    else:
        tokens, top_k, experts = (
            state.dim(member, family, d) for d in ("tokens", "top_k", "experts")
        )
        batch = np.maximum(np.minimum(experts, tokens * top_k), 1)
        m, n, k = (tokens * top_k / batch, *(state.dim(member, family, d) for d in ("n", "k")))
    product = _product(state, member, (batch, m, n, k), state.bytes[member])
    _finish(state, member, *product_time(product, state.machine, state.cold))


def _product(
    state: _State, member: NDArray[np.int64], sizes: tuple[F64, F64, F64, F64], traffic: F64
) -> Product:
    size = element_bytes(state.rows.dtype[member])
    return Product(*sizes, size, traffic, state.rate.flops_per_us[member])


def _moe(state: _State, member: NDArray[np.int64], family: str) -> None:
    """Up (and gate) product, then down product, of evenly loaded experts; skew on the busiest."""
    tokens, hidden, inter, experts, top_k, tensor, expert, skew, gated = state.rows.dims[
        member, :9
    ].T
    tensor, expert = np.maximum(tensor, 1), np.maximum(expert, 1)
    groups = np.maximum(np.minimum(experts / expert, tokens * top_k / expert), 1)
    m, width = tokens * top_k / expert / groups, inter / tensor
    half = state.bytes[member] / 2
    up = _product(state, member, (groups, m, width * (1 + gated), hidden), half)
    down = _product(state, member, (groups, m, hidden, width), half)
    times = [product_time(p, state.machine, True) for p in (up, down)]
    busiest = 1 + 0.25 * np.clip(skew, 0, 4)
    total, compute, memory = (times[0][i] + times[1][i] for i in range(3))
    _finish(state, member, total * busiest + 4 * KERNEL_US, compute, memory)


def _convolution(state: _State, member: NDArray[np.int64], family: str) -> None:
    """As a product without the copies of im2col; grouped to the depth, by its bytes."""
    dims, rate = state.rows.dims[member], state.rate.flops_per_us[member]
    direction = state.dim(member, family, "direction")
    saving = winograd_saving(dims, rate, state.machine)
    total, compute, memory = (np.zeros(len(member)) for _ in range(3))
    both = np.where(direction == 3, 0.5, 1.0)
    for value, applies in (
        (0, direction == 0),
        (1, (direction == 1) | (direction == 3)),
        (2, direction >= 2),
    ):
        sizes = convolution_products(dims, value)
        product = _product(state, member, sizes, state.bytes[member] * both)
        parts = product_time(product, state.machine, state.cold)
        helped = np.maximum(parts[0] * saving, parts[2])
        total = total + applies * helped
        compute, memory = compute + applies * parts[1] * saving, memory + applies * parts[2]
    depthwise = state.dim(member, family, "groups") >= np.maximum(dims[:, 1], 2)
    simple = np.maximum(
        state.stream_us(member, state.bytes[member], 0.5),
        state.cost.flops[member] / (0.3 * state.machine.hardware.peak_tflops["fp32_vector"] * 1e6),
    )
    total = np.where(depthwise, np.minimum(total, simple), total)
    state.saving[member] = np.where(saving < 1, 1 / WINOGRAD_SAVING, 1.0)
    _finish(state, member, total, compute, memory)


def _attention(state: _State, member: NDArray[np.int64], family: str) -> None:
    """Flash attention: blocks of 128 queries in waves; a few queries stream keys and values.

    The products reach 0.65 of the peak on devices of 2,048 operations per clock and SM and less
    where matrix units are faster than the exponentials between them; backward 0.8 of that.
    """
    machine = state.machine
    batch, heads, _, q_len = state.rows.dims[member, :4].T
    backward = state.dim(member, family, "direction") > 0
    rate = state.rate.flops_per_us[member]
    per_clock = rate * 1e6 / machine.sms / (machine.clock_ghz * 1e9)
    efficiency = 0.65 * np.minimum(1, np.sqrt(2048 / np.maximum(per_clock, 1)))
    efficiency = np.where(backward, 0.8, 1.0) * efficiency
    blocks = np.maximum(batch * heads * np.ceil(q_len / 128), 1e-3)
    waves = blocks / machine.sms
    fullness = np.where(q_len >= 16, waves / np.ceil(waves), 1.0)
    fill = np.where(q_len >= 128, 1.0, np.maximum(q_len, 1) / 128 * 1.5).clip(0.02, 1)
    compute = state.cost.flops[member] / (rate * efficiency * fullness * fill)
    vector = rate <= machine.hardware.peak_tflops["fp32_vector"] * 1e6 * 1.001
    compute = compute * throttled(rate, compute, machine, vector)
    memory = state.stream_us(member, state.bytes[member], 0.9)
    _finish(state, member, np.maximum(compute, memory), compute, memory)


def _stream(state: _State, member: NDArray[np.int64], family: str) -> None:
    """Everything that moves bytes: traffic over the share of bandwidth that its shape can use."""
    machine, cost = state.machine, state.cost
    traffic = state.bytes[member] * _passes(state, member, family)
    share = STREAMING[family] * _slowed(state, member, family)
    items = cost.parallel_items[member]
    busy = np.clip(2 * np.maximum(items / _THREADS, 1) / machine.sms, 1e-3, 1)
    if family == "norm":
        rows = state.dim(member, family, "rows")
        alone = state.dim(member, family, "kind") == BATCH
        busy = np.where(alone, np.minimum(busy, np.clip(1.3 * rows / machine.sms, 0.01, 1)), busy)
    memory = state.stream_us(member, traffic, share if machine.is_cpu else share * busy)
    compute = cost.flops[member] / (0.5 * state.rate.flops_per_us[member])
    _finish(state, member, np.maximum(compute, memory), compute, memory)


def _passes(state: _State, member: NDArray[np.int64], family: str) -> F64:
    """How often the compulsory traffic is moved."""
    if family == "softmax":
        wide = state.dim(member, family, "cols") * element_bytes(state.rows.dtype[member])
        return np.where(wide > 96 * 1024, 1.5, 1.0)
    if family == "sort":
        length = state.dim(member, family, "numel") / np.maximum(
            state.dim(member, family, "segments"), 1
        )
        passes = np.where(length > 4096, state.dim(member, family, "key_bytes"), 1.0)
        return np.where(state.dim(member, family, "top_k") > 0, np.minimum(passes, 2.0), passes)
    if family == "embedding":
        return np.where(state.dim(member, family, "direction") > 0, 2.0, 1.0)
    return np.ones(len(member))


def _slowed(state: _State, member: NDArray[np.int64], family: str) -> F64:
    """Share of a family's bandwidth that strides, short rows and atomics leave."""
    if family in ("elementwise", "copy"):
        return np.where(state.dim(member, family, "strided") > 0, 0.6, 1.0)
    if family == "gather":
        row = state.dim(member, family, "row_numel")
        return np.where(row >= 32, 1.0, 0.6) * np.where(
            state.dim(member, family, "atomic") > 0, 0.6, 1.0
        )
    return np.ones(len(member))


def _copy(state: _State, member: NDArray[np.int64], family: str) -> None:
    """On the device a stream; over the host link at its bandwidth, slower if pageable."""
    _stream(state, member, family)
    if state.machine.is_cpu:
        return
    route, pinned = state.dim(member, family, "route"), state.dim(member, family, "pinned") > 0
    link = (state.machine.hardware.pcie_gb_per_s or _HOST_LINK_GB_PER_S) * 1e3
    outside = (route == FROM_HOST) | (route == TO_HOST) | (route == PEER)
    share = np.where(pinned | (route == PEER), _PINNED_SHARE, _PAGEABLE_SHARE)
    memory = state.dim(member, family, "bytes") / (link * share)
    rows = member[outside]
    state.launch[rows] = COPY_US
    _finish(state, rows, memory[outside], np.zeros(len(rows)), memory[outside])


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


_FORMULAS: dict[str, Callable[[_State, NDArray[np.int64], str], None]] = {
    "gemm": _products,
    "moe_gemm": _products,
    "moe": _moe,
    "conv": _convolution,
    "attention": _attention,
    "copy": _copy,
}


def roofline_rule(batch: OpBatch, hardware: Hardware) -> F64:
    """[n] the plain rule that learned models are measured against: roofline / 0.75 + 2.5 us."""
    cost = batch_cost(batch)
    rate = peaks(batch, cost, hardware).flops_per_us
    bandwidth = hardware.memory_bandwidth_gb_per_s * 1e3
    moved = (cost.bytes_read + cost.bytes_written) / bandwidth
    rule: F64 = np.maximum(cost.flops / rate, moved) / 0.75 + 2.5
    return rule
