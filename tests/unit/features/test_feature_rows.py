"""Features against values computed by hand."""

import math

import numpy as np
import pytest

from gnnperf.features import (
    COLUMN,
    DIVISORS,
    FEATURES,
    RATIOS,
    TERMS,
    Measurement,
    find_variant,
    hardware_row,
    make_rows,
    ratios,
    variant_name,
    variant_parents,
    with_frameworks,
)
from gnnperf.features.hardware import peak_flop_per_us, stated_clock_ghz
from gnnperf.graph import dtype_index
from gnnperf.hardware import get_hardware
from gnnperf.ops import MAX_DIMS, OpBatch, family_index


def gemm(m: float, n: float, k: float, dtype: str = "bfloat16") -> OpBatch:
    dims = np.zeros((1, MAX_DIMS))
    dims[0, :4] = 1, m, n, k
    family = np.array([family_index("gemm")], np.int16)
    return OpBatch(family, dims, np.array([dtype_index(dtype)], np.int8), np.array([True]))


def rows_of(batch: OpBatch, device: str) -> np.ndarray:
    how = Measurement.same(1, launch_included=False, in_model=False)
    return ratios(make_rows(batch, [get_hardware(device)], np.zeros(1, np.int64), how))


def test_peak_takes_the_path_of_the_type() -> None:
    a100, v100, mi100 = (get_hardware(n) for n in ("a100-sxm-80gb", "v100-pcie-32gb", "mi100"))
    assert peak_flop_per_us(a100, "bfloat16", tensor=True) == pytest.approx(312e6)
    assert peak_flop_per_us(a100, "float32", tensor=True) == pytest.approx(19.5e6)
    assert peak_flop_per_us(a100, "tf32", tensor=True) == pytest.approx(156e6)
    assert peak_flop_per_us(v100, "tf32", tensor=True) == pytest.approx(14e6)
    assert peak_flop_per_us(mi100, "float32", tensor=True) > peak_flop_per_us(
        mi100, "float32", tensor=False
    )


def test_clock_is_the_one_behind_the_stated_peak() -> None:
    # 989.4 TFLOP/s over 132 SMs of 4096 FLOP a clock
    assert stated_clock_ghz(get_hardware("h100-sxm")) == pytest.approx(1.830, abs=1e-3)
    assert stated_clock_ghz(get_hardware("p100-pcie-16gb")) == pytest.approx(1.303)


def test_bound_position_is_intensity_over_the_ridge() -> None:
    m, n, k = 4096.0, 2048.0, 1024.0
    moved = 2 * (m * k + k * n + m * n)
    ridge = 312e12 / 2039e9
    row = rows_of(gemm(m, n, k), "a100-sxm-80gb")[0]
    names = [f.name for f in RATIOS]
    expected = math.log(2 * m * n * k / moved / ridge)
    assert row[names.index("bound_position")] == pytest.approx(expected, rel=1e-4)
    l2 = 40 * 2**20
    assert row[names.index("footprint_over_l2")] == pytest.approx(math.log(moved / l2), rel=1e-4)


def test_divisors_tell_alignment() -> None:
    row = rows_of(gemm(4096, 96, 7), "l4")[0, len(RATIOS) :]
    assert row.tolist() == [0, 7, 5, 0, 7, 7]  # gcd(0, 128) is 128: an unused dimension
    assert len(row) == len(DIVISORS)


def test_feature_names_are_distinct_and_have_units() -> None:
    names = [f.name for f in FEATURES]
    assert len(set(names)) == len(names)
    assert all(f.unit for f in FEATURES)
    assert names[: len(TERMS)] == [f.name for f in TERMS]


def test_hardware_row_has_no_hole() -> None:
    for name in ("h100-sxm", "mi300x", "cpu", "t4", "arc-pro-b60"):
        row = hardware_row(get_hardware(name))
        assert np.isfinite(row).all()
        assert row[COLUMN["bandwidth"]] > 0


def test_unknown_implementation_falls_back_to_its_framework() -> None:
    fine = variant_name("aiconfigurator", "vllm", "fa3")
    names = with_frameworks([fine])
    assert names == (fine, "aiconfigurator:vllm:any")
    assert variant_parents(names) == (1, -1)
    assert find_variant(names, variant_name("aiconfigurator", "vllm", "fa4")) == 1
    assert find_variant(names, variant_name("neusight", "pytorch")) == -1
    # a single kernel's name is no implementation
    assert variant_name("neusight", "pytorch", "sgemm_128x128") == "neusight:pytorch:any"
