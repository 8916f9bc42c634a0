"""How each family's work turns into time on a device."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gnnperf.analytic.peaks import (
    DRAM_SHARE,
    L2_SHARE,
    Machine,
    Peaks,
    hit_share,
    throttled,
)
from gnnperf.analytic.tiles import (
    LIBRARY_SHARE,
    WINOGRAD_SAVING,
    Product,
    convolution_products,
    product_time,
    winograd_saving,
)
from gnnperf.ops import Cost, OpBatch, dim_index, element_bytes, family_names
from gnnperf.ops.attention import attended_pairs
from gnnperf.ops.base import F64
from gnnperf.ops.copy import FROM_HOST, PEER, TO_HOST
from gnnperf.ops.embedding import INDEX_BYTES, distinct_rows
from gnnperf.ops.norm import BATCH

KERNEL_US: dict[str, float] = {
    "gemm": 2.5,
    "conv": 3.0,
    "attention": 5.0,
    "norm": 3.0,
    "softmax": 3.0,
    "reduce": 3.0,
    "sort": 3.0,
    "moe": 20.0,
    "moe_gemm": 4.0,
}
"""what a family's kernel of next to no work lasts on a GPU; others `PLAIN_KERNEL_US`"""
PLAIN_KERNEL_US = 1.5
_VENDOR_KERNEL = {"amd": 2.0}
"""times as long (kernels of a few bytes in MI300X traces last 3 to 5 us)"""
CPU_OP_US = 5.0
"""what an op of next to no work lasts on a CPU, as a profiler records it: dispatch, allocation"""
_CPU_ATTENTION = 0.2
"""of the peak (fused attention of own recordings, head sizes 32 and 64: 0.17 to 0.26)"""
_CPU_SPECIAL = 0.2
"""exponentials per clock and core (gelu, softmax, bernoulli of an own recording: 0.1 to 0.3)"""
COPY_US = 1.0
"""what a copy of a few bytes lasts"""
_PAGEABLE_SHARE, _PINNED_SHARE, _HOST_LINK_GB_PER_S = 0.4, 0.8, 16.0
_STAGING_GB_PER_S = 6.0
"""of copies from and to pageable memory, which one thread of the host copies once more: 4.3 to 6.5
on PCIe 4 (traces of an A100)"""
_THREADS = 1024.0
"""elements in flight that keep one SM's share of the bandwidth busy"""

STREAMING: dict[str, float] = {
    "norm": 0.7,
    "softmax": 0.75,
    "reduce": 0.85,
    "elementwise": 1.0,
    "pool": 0.4,
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


_ISSUE: dict[str, tuple[str, float]] = {
    "elementwise": ("strided", 1.3),
    "copy": ("strided", 1.3),
    "gather": ("index_numel", 0.8),
}
"""dimension that is above 0 where elements are addressed one by one, and elements per clock"""
_VALUE_US = 0.035
"""a thread of a reduction to few outputs adds 100 to 600 values one after the other"""
_CAST_RATE = 1.8
"""elements per clock and SM of a kernel that converts types"""
_BATCH_NORM = 1.25
"""of the other norms' bandwidth (ResNet-50 on a V100): its two passes meet in the cache"""
_AMD_BATCH_NORM_US = 0.75
"""what a block of PyTorch's own batch norm takes for 512 elements of its channel (MI300X traces)"""
_VENDOR_STREAM = {"amd": 0.75}
"""of the bandwidth that NVIDIA's kernels reach (NeuSight's MI100 and MI210, MI300X traces)"""
_DENSE = ("elementwise", "copy", "triton")
_FUSED_SHARE = 0.6
"""of separate products that fused expert layers reach"""


class State:
    """Columns under construction, and what the formulas need."""

    def __init__(
        self, rows: OpBatch, cost: Cost, rate: Peaks, machine: Machine, cold: bool
    ) -> None:
        n = len(rows)
        self.rows, self.cost, self.rate, self.machine, self.cold = rows, cost, rate, machine, cold
        self.total, self.compute, self.memory = np.zeros(n), np.zeros(n), np.zeros(n)
        self.saving = np.ones(n)
        self.launch = _launch(rows, machine)
        self.bytes = cost.bytes_read + cost.bytes_written
        self.hits = np.zeros(n) if cold else hit_share(self.bytes, machine)

    def dim(self, member: NDArray[np.int64], family: str, name: str) -> F64:
        """One named dimension of some rows."""
        column: F64 = self.rows.dims[member, dim_index(family, name)]
        return column

    def stream_us(self, member: NDArray[np.int64], traffic: F64, share: F64 | float) -> F64:
        """Time of traffic that streams, partly from the cache, with `share` of the bandwidth."""
        m, hits = self.machine, self.hits[member]
        uncached = traffic * (1 - hits) / (DRAM_SHARE * m.dram_bytes_per_us)
        total: F64 = (uncached + traffic * hits / (L2_SHARE * m.cache_bytes_per_us)) / share
        return total


def _launch(rows: OpBatch, machine: Machine) -> F64:
    if machine.is_cpu:
        return np.full(len(rows), CPU_OP_US)
    by_family = np.array([KERNEL_US.get(name, PLAIN_KERNEL_US) for name in family_names()])
    times: F64 = by_family[rows.family] * _VENDOR_KERNEL.get(machine.hardware.vendor, 1.0)
    return times


def _finish(state: State, member: NDArray[np.int64], work: F64, compute: F64, memory: F64) -> None:
    state.compute[member], state.memory[member] = compute, memory
    state.total[member] = state.launch[member] + work


def _products(state: State, member: NDArray[np.int64], family: str) -> None:
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
    state: State, member: NDArray[np.int64], sizes: tuple[F64, F64, F64, F64], traffic: F64
) -> Product:
    size = element_bytes(state.rows.dtype[member])
    return Product(*sizes, size, traffic, state.rate.flops_per_us[member])


def _moe(state: State, member: NDArray[np.int64], family: str) -> None:
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
    _finish(state, member, total * busiest / _FUSED_SHARE, compute, memory)


def _convolution(state: State, member: NDArray[np.int64], family: str) -> None:
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


def _attention(state: State, member: NDArray[np.int64], family: str) -> None:
    """Flash attention: blocks of 128 queries in waves; a few queries stream keys and values.

    The products reach 0.65 of the peak (head size 128) on devices of 2,048 operations per clock
    and SM and less where matrix units are faster than the exponentials between them; backward 0.8
    of that. Whole blocks of 128 x 128 scores are computed, and each block of queries costs two
    blocks more for its start and end.
    """
    machine = state.machine
    batch, heads, kv_heads, q_len, kv_len, head = state.rows.dims[member, :6].T
    causal, window = state.rows.dims[member, 7:9].T
    backward = state.dim(member, family, "direction") > 0
    rate, flops = state.rate.flops_per_us[member], state.cost.flops[member]
    per_clock = rate * 1e6 / machine.sms / (machine.clock_ghz * 1e9)
    efficiency = 0.65 * np.minimum(1, np.sqrt(2048 / np.maximum(per_clock, 1)))
    efficiency = efficiency * np.minimum(np.sqrt(np.maximum(head, 1) / 128), 1)
    efficiency = efficiency * np.where(backward, 0.8, 1.0)
    efficiency = efficiency * LIBRARY_SHARE.get(machine.hardware.vendor, 1.0)
    q_blocks = np.maximum(np.ceil(q_len / 128), 1)
    waves = np.maximum(batch * heads * q_blocks, 1e-3) / machine.sms
    pairs = attended_pairs(q_len, kv_len, causal, window)
    per_block = pairs / np.maximum(q_len, 1) / 128
    whole = np.maximum(per_block + np.where((causal > 0) | (window > 0), 0.5, 0.0), 1)
    waste = whole / np.maximum(per_block, 1e-3) * q_blocks * 128 / np.maximum(q_len, 1)
    prefill = waste * (1 + 2 / whole) * np.ceil(waves) / waves
    packed = np.clip(q_len * heads / np.maximum(kv_heads, 1) / 64, 1 / 64, 1)
    compute = flops / (rate * efficiency) * np.where(q_len >= 16, prefill, 1 / packed)
    if machine.is_cpu:
        compute = flops / (rate * _CPU_ATTENTION)
    vector = rate <= machine.hardware.peak_tflops["fp32_vector"] * 1e6 * 1.001
    compute = compute * throttled(rate, compute, machine, vector)
    memory = state.stream_us(member, state.bytes[member], 0.9)
    _finish(state, member, np.maximum(compute, memory), compute, memory)


def stream(state: State, member: NDArray[np.int64], family: str) -> None:
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
    issue = _issue_us(state, member, family)
    compute = np.maximum(compute, issue)
    _finish(state, member, np.maximum(compute, memory), compute, memory)


def _issue_us(state: State, member: NDArray[np.int64], family: str) -> F64:
    """Time to compute addresses one element at a time, where accesses cannot be vectorized.

    1.3 elements per clock and SM: broadcast and permuting kernels of PyTorch in traces of an H100
    and a B200 alike (1.2 to 1.4); 1.8 for casts (1.3 to 2.2); 0.8 where indices are followed.
    """
    if state.machine.is_cpu:
        return _exponentials_us(state, member, family)
    if family == "reduce":
        outputs = np.maximum(state.dim(member, family, "out_numel"), 1)
        few = np.minimum(32 * state.machine.sms / outputs, 1)
        return np.clip(state.dim(member, family, "reduced") - 100, 0, 500) * _VALUE_US * few
    if family == "norm":
        return _channels_us(state, member)
    if family not in _ISSUE:
        return np.zeros(len(member))
    name, rate = _ISSUE[family]
    cycles = np.where(state.dim(member, family, name) > 0, 1 / rate, 0.0)
    if family == "copy":
        sizes = state.rows.dims[member, 4:6]
        cast = (sizes[:, 0] != sizes[:, 1]) & (cycles == 0)
        cycles = np.where(cast, 1 / _CAST_RATE, cycles)
    clocks = state.machine.sms * state.machine.clock_ghz * 1e3
    return cycles * state.cost.parallel_items[member] / clocks


def _channels_us(state: State, member: NDArray[np.int64]) -> F64:
    """AMD's batch norm: a block goes through a channel alone, twice on the way back.

    Forward is two kernels, statistics and values, that a trace shares out equally.
    """
    alone = state.dim(member, "norm", "kind") == BATCH
    passes = np.where(state.dim(member, "norm", "direction") > 0, 2.0, 0.5)
    steps = state.dim(member, "norm", "cols") / 512 * _AMD_BATCH_NORM_US
    return np.where(alone & (state.machine.hardware.vendor == "amd"), steps * passes, 0.0)


def _exponentials_us(state: State, member: NDArray[np.int64], family: str) -> F64:
    """On a CPU: exponentials, random numbers and the taps of a pool, one after the other."""
    if family not in ("elementwise", "softmax", "pool"):
        return np.zeros(len(member))
    rate = _CPU_SPECIAL * state.machine.sms * state.machine.clock_ghz * 1e3
    if family == "pool":
        return state.cost.flops[member] / rate
    every = np.ones(len(member))
    special = every if family == "softmax" else state.dim(member, family, "special")
    return special * state.cost.parallel_items[member] / rate


def _passes(state: State, member: NDArray[np.int64], family: str) -> F64:
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
    return np.ones(len(member))


def _slowed(state: State, member: NDArray[np.int64], family: str) -> F64:
    """Share of a family's bandwidth: less for short rows and atomics, more for batch norm."""
    vendor = 1.0 if family in _DENSE else _VENDOR_STREAM.get(state.machine.hardware.vendor, 1.0)
    share = np.full(len(member), vendor)
    if family == "norm":
        share = share * np.where(state.dim(member, family, "kind") == BATCH, _BATCH_NORM, 1.0)
    if family == "gather":
        row, atomic = (state.dim(member, family, d) for d in ("row_numel", "atomic"))
        share = share * np.where(row >= 32, 1.0, 0.6) * np.where(atomic > 0, 0.6, 1.0)
    return share


def _embedding(state: State, member: NDArray[np.int64], family: str) -> None:
    """Every lookup moves a row (32 bytes at least), from the cache or from memory.

    The cache holds the most popular rows: of Zipf-distributed indices the share that falls on
    them, of uniform ones the share of the rows. The first access of each row is a miss. Backward
    sorts the indices (four passes over keys and values) and adds each lookup's gradient to its row.
    """
    dims, machine = state.rows.dims[member], state.machine
    rows, width, lookups, bags, direction, _, _, skew = dims[:, :8].T
    size = element_bytes(state.rows.dtype[member])
    row_bytes = np.maximum(width * size, 32.0)
    kept = np.minimum(machine.cache_bytes / row_bytes, rows)
    first = np.minimum(distinct_rows(dims) / np.maximum(lookups, 1), 1)
    hits = (1 - first) * (0.0 if state.cold else popular_share(kept, rows, skew))
    backward = direction > 0
    outputs = np.where(bags > 0, bags, lookups) * width * size
    other = outputs + lookups * np.where(backward, 4 * 2 * 16, INDEX_BYTES)
    other = other + np.where(backward, distinct_rows(dims) * row_bytes, 0)
    dram = (lookups * row_bytes * (1 - hits) + other) / (DRAM_SHARE * machine.dram_bytes_per_us)
    cache = lookups * row_bytes * hits / (L2_SHARE * machine.cache_bytes_per_us)
    share = STREAMING[family]
    if not machine.is_cpu:
        share = share * np.clip(2 * lookups * width / _THREADS / machine.sms, 1e-3, 1)
    memory = dram / share + cache
    _finish(state, member, memory, np.zeros(len(member)), memory)


def popular_share(kept: F64, rows: F64, skew: F64) -> F64:
    """[n] share of Zipf-distributed accesses to `rows` rows that falls on the first `kept`.

    The sum of k^-skew up to `kept` over the sum up to `rows`, both as integrals.
    """
    kept, rows = np.maximum(np.minimum(kept, rows), 0), np.maximum(rows, 1)
    power = np.where(np.abs(skew - 1) < 1e-3, 1 - 1e-3, skew)
    share: F64 = ((kept + 1) ** (1 - power) - 1) / ((rows + 1) ** (1 - power) - 1)
    return np.clip(share, 0, 1)


def _copy(state: State, member: NDArray[np.int64], family: str) -> None:
    """On the device a stream; over the host link at its bandwidth, slower if pageable."""
    stream(state, member, family)
    if state.machine.is_cpu:
        return
    route, pinned = state.dim(member, family, "route"), state.dim(member, family, "pinned") > 0
    link = (state.machine.hardware.pcie_gb_per_s or _HOST_LINK_GB_PER_S) * 1e3
    outside = (route == FROM_HOST) | (route == TO_HOST) | (route == PEER)
    staged = min(link * _PAGEABLE_SHARE, _STAGING_GB_PER_S * 1e3)
    rate = np.where(pinned | (route == PEER), link * _PINNED_SHARE, staged)
    memory = state.dim(member, family, "bytes") / rate
    rows = member[outside]
    state.launch[rows] = COPY_US
    _finish(state, rows, memory[outside], np.zeros(len(rows)), memory[outside])


FORMULAS: dict[str, Callable[[State, NDArray[np.int64], str], None]] = {
    "gemm": _products,
    "moe_gemm": _products,
    "moe": _moe,
    "conv": _convolution,
    "attention": _attention,
    "copy": _copy,
    "embedding": _embedding,
}
