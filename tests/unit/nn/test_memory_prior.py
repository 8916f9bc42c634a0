"""Elementwise, norm and softmax: hand-computed traffic, the cache, rows that are read again."""

import math

import numpy as np
import pytest
import torch

from gnnperf.features import Measurement, make_rows
from gnnperf.graph import dtype_index
from gnnperf.hardware import get_hardware
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior import KINDS, AnalyticPrior
from gnnperf.nn.prior_base import Terms
from gnnperf.ops import MAX_DIMS, OpBatch, family_index

KERNEL_US = 2.5


def terms(family: str, dims: tuple[float, ...], device: str, **how: bool) -> Terms:
    """Of one float32 row before anything is fitted."""
    row = np.zeros((1, MAX_DIMS))
    row[0, : len(dims)] = dims
    codes = np.array([family_index(family)], np.int16)
    types = np.array([dtype_index("float32")], np.int8)
    batch = OpBatch(codes, row, types, np.ones(1, np.bool_))
    launch, model = how.get("launch", False), how.get("model", False)
    measured = Measurement.same(1, launch_included=launch, in_model=model)
    rows = make_rows(batch, [get_hardware(device)], np.zeros(1, np.int64), measured)
    x = Inputs.of(rows, np.array([-1]))
    with torch.no_grad():
        return AnalyticPrior(0, ()).of_kind(KINDS.index(family)).terms(x)


def time_us(family: str, dims: tuple[float, ...], device: str, **how: bool) -> float:
    return math.exp(float(terms(family, dims, device, **how).log_time))


def add(numel: float) -> tuple[float, ...]:
    return (numel, 8 * numel, 4 * numel, 1, 2)


@pytest.mark.parametrize(("device", "share"), [("t4", 0.77), ("v100-pcie-32gb", 0.868)])
def test_large_additions_take_their_bytes_over_the_share_of_the_memory(
    device: str, share: float
) -> None:
    bandwidth = get_hardware(device).memory_bandwidth_gb_per_s * 1e3
    expected = 12e8 / bandwidth / share + KERNEL_US
    assert time_us("elementwise", add(1e8), device) == pytest.approx(expected, rel=2e-3)


def test_what_fits_the_cache_does_not_go_to_memory_and_what_does_not_goes_whole() -> None:
    l2 = get_hardware("l4").l2_size_mb * 2**20
    inside, outside = (terms("elementwise", add(part * l2 / 12), "l4") for part in (0.5, 1.3))
    assert float(inside.hit) > 0.99
    assert float(outside.hit) < 0.02


def test_softmax_reads_again_only_what_registers_do_not_hold() -> None:
    rows = 2.0**17
    short, staged, long = (time_us("softmax", (rows, c), "p4") / c for c in (1024, 2048, 16384))
    elementwise = time_us("elementwise", (rows * 1024, 4 * rows * 1024, 4 * rows * 1024), "p4")
    assert short * 1024 == pytest.approx(elementwise, rel=0.06)
    assert staged == pytest.approx(short * 1.2, rel=0.1)
    assert long == pytest.approx(short * 2, rel=0.06)


def test_norm_reads_rows_twice_unless_the_cache_holds_those_in_flight() -> None:
    rows, cols = 2.0**17, 1024.0
    once = time_us("elementwise", (rows * cols, 4 * rows * cols, 4 * rows * cols), "l4")
    assert time_us("norm", (rows, cols), "l4") == pytest.approx(once, rel=0.03)
    small = get_hardware("p4")
    assert small.l2_size_mb < 4
    once = time_us("elementwise", (rows * 8192, 4 * rows * 8192, 4 * rows * 8192), "p4")
    assert time_us("norm", (rows, 8192.0), "p4") == pytest.approx(1.5 * once, rel=0.03)


def test_a_call_costs_less_inside_a_model() -> None:
    alone = time_us("norm", (8, 64), "t4", launch=True)
    inside = time_us("norm", (8, 64), "t4", launch=True, model=True)
    assert time_us("norm", (8, 64), "t4") < inside < alone


def test_every_term_is_finite_for_the_smallest_rows() -> None:
    for family in ("elementwise", "norm", "softmax"):
        found = terms(family, (1, 4, 4) if family == "elementwise" else (1, 1), "mi210")
        assert torch.isfinite(found.features()).all()


def test_a_batch_norm_moves_its_bytes_once() -> None:
    """ResNet-50 on a V100: 256 channels of 100,352 values take 402 us forward (public trace)."""
    batch = (256.0, 100352.0, 2.0, 0.0, 1.0)
    assert time_us("norm", batch, "v100-dgxs-32gb") == pytest.approx(402, rel=0.1)


def test_amds_batch_norm_is_bound_by_its_channels() -> None:
    """64 channels of 125,440 values take 396 us backward on an MI300X (public trace)."""
    assert time_us("norm", (64.0, 125440.0, 2.0, 1.0, 1.0), "mi300x") == pytest.approx(396, rel=0.1)


def test_broadcast_kernels_address_one_element_at_a_time() -> None:
    plain, strided = ((1e7, 8e7, 4e7, 1, 2, s, 0) for s in (0, 1))
    h100 = get_hardware("h100-sxm")
    addresses = 1e7 / (1.3 * h100.sm_count * h100.boost_clock_mhz)
    assert time_us("elementwise", strided, "h100-sxm") >= addresses
    assert time_us("elementwise", plain, "h100-sxm") < time_us("elementwise", strided, "h100-sxm")
