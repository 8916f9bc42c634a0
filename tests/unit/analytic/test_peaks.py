"""Which rate and which bandwidth a row gets on which device."""

from dataclasses import replace

import numpy as np
import pytest

from gnnperf.analytic.peaks import Machine, hit_share, peaks, throttled
from gnnperf.errors import InputError
from gnnperf.graph import dtype_index
from gnnperf.hardware import PEAK_PATHS, get_hardware
from gnnperf.ops import MAX_DIMS, OpBatch, batch_cost, family_index


def rate(device: str, dtype: str, family: str = "gemm") -> tuple[float, str, tuple[str, ...]]:
    dims = np.ones((1, MAX_DIMS))
    batch = OpBatch(
        np.array([family_index(family)], np.int16), dims, np.array([dtype_index(dtype)], np.int8),
        np.ones(1, np.bool_),
    )  # fmt: skip
    found = peaks(batch, batch_cost(batch), get_hardware(device))
    return float(found.flops_per_us[0]) / 1e6, PEAK_PATHS[found.path[0]], found.notes


@pytest.mark.parametrize(
    ("device", "dtype", "tflops", "path"),
    [
        ("a100-sxm-80gb", "bfloat16", 312, "bf16_tensor"),
        ("a100-sxm-80gb", "tf32", 156, "tf32_tensor"),
        ("a100-sxm-80gb", "float32", 19.5, "fp32_vector"),
        ("a100-sxm-80gb", "float64", 19.5, "fp64_tensor"),
        ("v100-sxm2-32gb", "float16", 125, "fp16_tensor"),
        ("v100-sxm2-32gb", "tf32", 15.7, "fp32_vector"),
        ("mi300x", "float32", 163.4, "fp32_tensor"),
        ("mi300x", "tf32", 163.4, "fp32_tensor"),
    ],
)
def test_rates_of_data_sheets(device: str, dtype: str, tflops: float, path: str) -> None:
    found = rate(device, dtype)
    assert found[0] == pytest.approx(tflops, rel=0.01)
    assert found[1:] == (path, ())


def test_a_type_without_a_rate_takes_the_next_one_and_says_so() -> None:
    tflops, path, notes = rate("a100-sxm-80gb", "float8")
    assert (tflops, path) == (312, "bf16_tensor")
    assert notes == ("float8 at the rate of bf16_tensor",)
    assert rate("v100-sxm2-32gb", "bfloat16")[2]


def test_vector_work_is_not_done_by_matrix_units() -> None:
    assert rate("a100-sxm-80gb", "bfloat16", "elementwise")[:2] == (19.5, "fp32_vector")


def test_a_device_without_fp32_is_refused() -> None:
    hardware = replace(get_hardware("a100-sxm-80gb"), peak_tflops={"fp16_tensor": 1.0})
    dims = np.ones((1, MAX_DIMS))
    batch = OpBatch(np.zeros(1, np.int16), dims, np.ones(1, np.int8), np.ones(1, np.bool_))
    with pytest.raises(InputError, match="fp32_vector"):
        peaks(batch, batch_cost(batch), hardware)


def test_the_cache_holds_small_footprints_and_no_large_ones() -> None:
    machine = Machine.of(get_hardware("a100-sxm-80gb"))
    assert machine.cache_bytes == 0.48 * 40 * 2**20
    shares = hit_share(np.array([1e5, machine.cache_bytes, 1e9]), machine)
    assert shares[0] > 0.99
    assert shares[1] == pytest.approx(0.5)
    assert shares[2] < 0.01


def test_only_long_work_throttles_and_only_where_power_is_short() -> None:
    l4, vector = Machine.of(get_hardware("l4")), np.array([True])
    full = np.array([30.3e6])
    short, long = (throttled(full, np.array([t]), l4, vector)[0] for t in (1.0, 1e6))
    assert 1 <= short < 1.1
    assert long > 2.5  # L4 reaches 0.28 of its peak (NeuSight's measurements)
    v100 = Machine.of(get_hardware("v100-sxm2-32gb"))
    assert throttled(np.array([15.7e6]), np.array([1e6]), v100, vector)[0] == 1
