"""A device as the numbers that the priors need."""

import numpy as np
from numpy.typing import NDArray

from gnnperf.features.spec import HARDWARE_COLUMNS
from gnnperf.graph import DTYPES
from gnnperf.hardware import Hardware

F64 = NDArray[np.float64]

COLUMN: dict[str, int] = {feature.name: i for i, feature in enumerate(HARDWARE_COLUMNS)}
"""Column of each figure in a hardware row."""

_TENSOR_PATHS: dict[str, tuple[str, ...]] = {
    "float32": ("fp32_tensor",),
    "tf32": ("tf32_tensor", "fp32_tensor"),
    "float16": ("fp16_tensor",),
    "bfloat16": ("bf16_tensor", "fp16_tensor"),
    "float64": ("fp64_tensor",),
    "float8": ("fp8_tensor", "fp16_tensor"),
    "float4": ("fp4_tensor", "fp8_tensor", "fp16_tensor"),
    "int8": ("int8_tensor", "fp16_tensor"),
}
_VECTOR_PATHS: dict[str, tuple[str, ...]] = {
    "float16": ("fp16_vector",),
    "bfloat16": ("bf16_vector",),
    "float64": ("fp64_vector",),
}
_L2_BYTES_PER_CLOCK_SM = {"gddr": 17.0, "hbm": 22.0, "async": 37.0}
"""L2 read bandwidth where no source states it: what the GPUs that have figures show."""


def peak_flop_per_us(hardware: Hardware, dtype: str, tensor: bool) -> float:
    """Peak of the path that a dtype takes: matrix units where they exist, else vector units."""
    paths = (_TENSOR_PATHS.get(dtype, ()) if tensor else ()) + _VECTOR_PATHS.get(dtype, ())
    for path in (*paths, "fp32_vector"):
        if path in hardware.peak_tflops:
            return hardware.peak_tflops[path] * 1e6
    return max(hardware.peak_tflops.values()) * 1e6


def peaks(hardware: Hardware) -> F64:
    """[len(DTYPES), 2] FLOP/us by dtype, on vector units (0) and on matrix units (1)."""
    return np.array(
        [[peak_flop_per_us(hardware, name, tensor) for tensor in (False, True)] for name in DTYPES]
    )


def matrix_units(hardware: Hardware) -> NDArray[np.bool_]:
    """[len(DTYPES)] whether matrix units serve a dtype."""
    return np.array(
        [any(p in hardware.peak_tflops for p in _TENSOR_PATHS.get(n, ())) for n in DTYPES]
    )


def _generation(hardware: Hardware) -> tuple[bool, bool]:
    """Asynchronous warp-group matrix units (Hopper, data-center Blackwell); tensor memory."""
    major = hardware.compute_capability.partition(".")[0]
    return major in ("9", "10"), major == "10"


def stated_clock_ghz(hardware: Hardware) -> float:
    """The clock that the stated half-precision peak implies, else the boost clock.

    A matrix unit does a power of two of operations per SM and clock, so the peak tells the clock it
    was computed with; some vendors state a boost clock above it.
    """
    boost = hardware.boost_clock_mhz / 1e3
    peak = hardware.peak_tflops.get("fp16_tensor")
    if peak is None or hardware.kind != "gpu":
        return boost
    per_clock = peak * 1e3 / (hardware.sm_count * boost)
    return float(peak * 1e3 / (hardware.sm_count * 2.0 ** np.round(np.log2(per_clock))))


def hardware_row(hardware: Hardware) -> F64:
    """[len(HARDWARE_COLUMNS)] figures in the units of `HARDWARE_COLUMNS`."""
    asynchronous, tensor_memory = _generation(hardware)
    clock = stated_clock_ghz(hardware)
    memory = "async" if asynchronous else "gddr" if "GDDR" in hardware.memory_type else "hbm"
    cache_bandwidth = hardware.l2_bandwidth_gb_per_s
    if cache_bandwidth is None:
        cache_bandwidth = hardware.sm_count * clock * _L2_BYTES_PER_CLOCK_SM[memory]
    if hardware.kind == "cpu":
        cache_bandwidth = 4 * hardware.memory_bandwidth_gb_per_s
    values = {
        "bandwidth": hardware.memory_bandwidth_gb_per_s * 1e3,
        "l2_bytes": (hardware.last_level_cache_mb or hardware.l2_size_mb) * 2**20,
        "l2_split": float(hardware.l2_partitions > 1),
        "l2_bandwidth": cache_bandwidth * 1e3,
        "sms": float(hardware.sm_count),
        "clock": clock,
        "power": hardware.board_power_w,
        "node": hardware.process_node_nm,
        "async_matrix": float(asynchronous),
        "tensor_memory": float(tensor_memory),
        "gpu": float(hardware.kind == "gpu"),
        "vector_peak": peak_flop_per_us(hardware, "float32", tensor=False),
        "stacked_memory": float("HBM" in hardware.memory_type),
        "amd": float(hardware.kind == "gpu" and hardware.vendor == "amd"),
    }
    return np.array([values[feature.name] for feature in HARDWARE_COLUMNS])
