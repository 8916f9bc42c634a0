"""The piecewise sigmoid of Lin et al. (arXiv 2404.12674) for one collective on one platform.

With x = log2(bytes): a latency up to `flat_to`, log10 of the bus bandwidth as a sigmoid of x up
to `steady_from`, latency and the highest bandwidth beyond. It knows no platform but the one that
it was fitted on; gnnperf keeps it as a baseline.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Sigmoid:
    """Parameters of one (collective, group, platform)."""

    flat_to: float
    """log2 of bytes up to which only latency counts"""
    steady_from: float
    """log2 of bytes from which the bandwidth is the highest"""
    max_gb_per_s: float
    """bus bandwidth"""
    overhead_us: float
    height: float
    middle: float
    slope: float
    base: float
    """log10(GB/s) = height / (1 + exp(-slope (x - middle))) + base"""


def sigmoid_time_us(size: ArrayLike, s: Sigmoid, bus_factor: float) -> F64:
    """Time in us of messages of `size` bytes; `bus_factor` is 2(n-1)/n, (n-1)/n or 1."""
    moved = np.asarray(size, np.float64)
    x = np.log2(np.maximum(moved, 1))
    rate = 10 ** (s.height / (1 + np.exp(-s.slope * (x - s.middle))) + s.base)
    ramp = moved * bus_factor / (rate * 1e3)
    steady = moved * bus_factor / (s.max_gb_per_s * 1e3) + s.overhead_us
    return np.where(x <= s.flat_to, s.overhead_us, np.where(x <= s.steady_from, ramp, steady))


def fit_sigmoid(size: F64, time_us: F64, bus_factor: float) -> Sigmoid:
    """Parameters from a sweep: turning points as the seed finds them, the rest by least squares.

    The seed: the flat part ends before the first central difference above a tenth of the
    latency; the steady part begins where 95 % of the highest bandwidth is kept.
    """
    order = np.argsort(size)
    size, time_us = size[order], time_us[order]
    x, rate = np.log2(np.maximum(size, 1)), size * bus_factor / time_us / 1e3
    rises = np.abs(time_us[2:] - time_us[:-2]) / 2 / time_us[1:-1] > 0.1
    flat = int(np.argmax(rises)) + 1 if rises.any() else len(x) - 1
    slow = np.flatnonzero(rate < 0.95 * rate.max())
    steady = min(int(slow[-1]) + 1 if len(slow) else 0, len(x) - 1)
    inner = slice(flat, max(steady + 1, flat + 4))
    height, middle, slope, base = _curve(x[inner], np.log10(np.maximum(rate[inner], 1e-9)))
    overhead = float(np.median(time_us[: max(flat, 1)]))
    return Sigmoid(
        float(x[flat]), float(x[steady]), float(rate.max()), overhead, height, middle, slope, base
    )


def _curve(x: F64, y: F64) -> tuple[float, float, float, float]:
    """Best sigmoid: height and base are linear, middle and slope from a grid."""
    best, found = np.inf, (0.0, float(np.median(x)), 1.0, float(np.mean(y)))
    for middle in np.linspace(x.min() - 4, x.max() + 4, 33):
        for slope in np.geomspace(0.1, 2.0, 14):
            shape = 1 / (1 + np.exp(-slope * (x - middle)))
            design = np.stack([shape, np.ones_like(shape)], axis=1)
            solved, *_ = np.linalg.lstsq(design, y, rcond=None)
            loss = float(((design @ solved - y) ** 2).sum())
            if loss < best:
                best = loss
                found = (float(solved[0]), float(middle), float(slope), float(solved[1]))
    return found
