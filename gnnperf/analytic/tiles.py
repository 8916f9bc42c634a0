"""Matrix products in tiles and waves: GEMM, grouped GEMM, convolution.

Form and exponents from the project's design notes (PROTOTYPES 2); the library's choice of tile and
of splitting the inner dimension is taken as the fastest of a menu. The constants below were set by
a coarse search on the GEMM tables of NeuSight, aiconfigurator and pipeweave (MI100 and MI210 left
out): median |log ratio| 0.15 over (device, kind, type) groups.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnperf.analytic.peaks import DRAM_SHARE, L2_SHARE, Machine, hit_share, throttled
from gnnperf.ops.base import F64
from gnnperf.ops.conv import output_size

_TILES = np.array(
    [
        (256, 256),
        (256, 128),
        (128, 256),
        (128, 128),
        (128, 64),
        (64, 128),
        (64, 64),
        (32, 64),
        (64, 32),
        (16, 64),
    ],
    np.float64,
)
_SPLITS = np.array([1, 2, 4, 8, 16, 64], np.float64)
_TILE_OVERHEAD = 15.0
"""of the edges of a tile: efficiency 1 / (1 + 15 (1/tile_m + 1/tile_n))"""
_STEP, _STEP_CYCLES = 64.0, 400.0
"""the inner loop takes at least so many cycles for so many products of the inner dimension"""
_FILL_CYCLES = 3000.0
"""first loads of a tile and its write-back"""
_NORM = 4.5
"""exponent of the norm that joins compute, memory and cache times"""
_ONE_BYTE_SHARE = 0.8
"""of the peak that one-byte types reach where two-byte types reach all (scales, wider tiles)"""
_MISALIGNED_SHARE = 0.6
"""of the rate of matrix units where rows do not start at multiples of 16 bytes (an A100, tf32)"""
LIBRARY_SHARE = {"amd": 0.75}
"""of what the same shapes reach with NVIDIA's libraries (NeuSight's MI100 and MI210)"""
WINOGRAD_SAVING = 2.25
"""multiplications saved by F(2x2, 3x3)"""
_WINOGRAD_EFFICIENCY = 0.5


@dataclass(frozen=True, eq=False)
class Product:
    """Products C[batch, m, n] = A[m, k] B[k, n]."""

    batch: F64
    m: F64
    n: F64
    k: F64
    size: F64
    """bytes of an element"""
    bytes_total: F64
    """compulsory traffic"""
    rate: F64
    """peak, FLOP per us"""

    @property
    def flops(self) -> F64:
        """[n] floating point operations."""
        return 2 * self.batch * self.m * self.n * self.k


def product_time(p: Product, machine: Machine, cold: bool) -> tuple[F64, F64, F64]:
    """Times in us of products: in all, of the arithmetic, of the memory (each [n])."""
    vector = _on_vector_units(p, machine)
    hits = np.zeros(len(p.m)) if cold else hit_share(p.bytes_total, machine)
    dram = p.bytes_total * (1 - hits) / (DRAM_SHARE * machine.dram_bytes_per_us)
    dram = dram + p.bytes_total * hits / (L2_SHARE * machine.cache_bytes_per_us)
    if machine.is_cpu:
        compute = p.flops / p.rate / 0.7
        return np.maximum(compute, dram), compute, dram
    best = np.full(len(p.m), np.inf)
    compute = np.zeros(len(p.m))
    for tile_m, tile_n in _TILES:
        for split in _SPLITS:
            arithmetic, extra, cache = _one_choice(p, machine, (tile_m, tile_n, split))
            arithmetic = arithmetic * throttled(p.rate, arithmetic, machine, vector)
            total = _join(arithmetic, dram, cache) + extra
            better = total < best
            best, compute = np.where(better, total, best), np.where(better, arithmetic, compute)
    return best, compute, dram


def _one_choice(
    p: Product, machine: Machine, choice: tuple[float, float, float]
) -> tuple[F64, F64, F64]:
    """Arithmetic, extra (split) and cache time of one tile shape and split."""
    tile_m, tile_n, split = choice
    cycle_us = 1e-3 / machine.clock_ghz
    inner = np.ceil(p.k / split)
    tiles = p.batch * np.ceil(p.m / tile_m) * np.ceil(p.n / tile_n) * split
    waves = np.maximum(np.ceil(tiles / machine.sms - 1e-9), tiles / machine.sms)
    efficiency = 1 / (1 + _TILE_OVERHEAD * (1 / tile_m + 1 / tile_n))
    busy = 2 * tile_m * tile_n * inner * machine.sms / (p.rate * efficiency * _reached(p, machine))
    latency = inner / _STEP * _STEP_CYCLES * cycle_us
    arithmetic = waves * np.maximum(busy, latency) + _FILL_CYCLES * cycle_us
    cache = tiles * (tile_m + tile_n) * inner * p.size / machine.cache_bytes_per_us
    partial = 2 * p.batch * p.m * p.n * 4 * split / (L2_SHARE * machine.cache_bytes_per_us)
    extra = np.where(split > 1, partial + 2.0, 0.0)
    return arithmetic, extra, cache


def _reached(p: Product, machine: Machine) -> F64:
    """[n] share of a full tile's rate that libraries reach: element size, alignment, vendor."""
    share: F64 = np.where(p.size <= 1, _ONE_BYTE_SHARE, 1.0)
    elements = np.maximum(16 / p.size, 1)
    misaligned = (np.mod(p.k, elements) > 0) | (np.mod(p.n, elements) > 0)
    share = np.where(misaligned & ~_on_vector_units(p, machine), share * _MISALIGNED_SHARE, share)
    return share * LIBRARY_SHARE.get(machine.hardware.vendor, 1.0)


def _on_vector_units(p: Product, machine: Machine) -> NDArray[np.bool_]:
    return np.asarray(p.rate <= machine.hardware.peak_tflops["fp32_vector"] * 1e6 * 1.001)


def _join(*times: F64) -> F64:
    total: F64 = sum((np.maximum(t, 1e-9) ** _NORM for t in times), np.zeros(1)) ** (1 / _NORM)
    return total


def convolution_products(dims: F64, direction: int) -> tuple[F64, F64, F64, F64]:
    """Batch (groups), m, n, k of a convolution as a product, forward (0) or a gradient (1, 2)."""
    batch, channels, out_channels, in_h, in_w, kernel_h, kernel_w = dims[:, :7].T
    groups = np.maximum(dims[:, 13], 1)
    out_h, out_w = output_size(dims)
    swap = dims[:, 15] > 0
    positions_in, positions_out = batch * in_h * in_w, batch * out_h * out_w
    channels, out_channels = channels / groups, out_channels / groups
    taps = kernel_h * kernel_w
    if direction == 2:
        reduced = np.where(swap, positions_in, positions_out)
        return groups, out_channels, channels * taps, reduced
    forward = swap == (direction == 1)
    m = np.where(forward, positions_out, positions_in)
    n = np.where(direction == 1, channels, out_channels)
    work = np.where(swap, positions_in, positions_out) * channels * out_channels * taps
    return groups, m, n, work / np.maximum(m * n, 1)


def winograd_saving(dims: F64, rate: F64, machine: Machine) -> F64:
    """[n] factor <= 1 on a convolution's arithmetic: 3x3, stride 1, without matrix units."""
    vector = rate <= machine.hardware.peak_tflops["fp32_vector"] * 1e6 * 1.001
    square = (dims[:, 5:7] == 3).all(1) & (dims[:, 7:9] == 1).all(1) & (dims[:, 11:13] == 1).all(1)
    wide = (np.minimum(dims[:, 1], dims[:, 2]) >= 16) & (dims[:, 13] <= 1) & (dims[:, 14] < 2)
    can = vector & square & wide & (machine.hardware.kind != "cpu")
    return np.where(can, 1 / (WINOGRAD_SAVING * _WINOGRAD_EFFICIENCY), 1.0)
