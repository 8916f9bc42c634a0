"""Peak rates of a device for the type and path of each row, and the bandwidths of its memories."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnperf.errors import InputError
from gnnperf.graph import DTYPES
from gnnperf.hardware import PEAK_PATHS, Hardware
from gnnperf.ops import Cost, OpBatch
from gnnperf.ops.base import F64, I8

_TENSOR: dict[str, tuple[str, ...]] = {
    "float32": ("fp32_tensor", "fp32_vector"),
    "tf32": ("tf32_tensor", "fp32_tensor", "fp32_vector"),
    "float16": ("fp16_tensor", "fp16_vector", "fp32_vector"),
    "bfloat16": ("bf16_tensor", "bf16_vector", "fp32_vector"),
    "float64": ("fp64_tensor", "fp64_vector"),
    "complex64": ("fp32_tensor", "fp32_vector"),
    "complex128": ("fp64_tensor", "fp64_vector"),
    "float8": ("fp8_tensor", "bf16_tensor", "fp16_tensor", "fp32_vector"),
    "float4": ("fp4_tensor", "fp8_tensor", "bf16_tensor", "fp16_tensor", "fp32_vector"),
    "int8": ("int8_tensor", "fp16_tensor", "fp32_vector"),
    "uint8": ("int8_tensor", "fp16_tensor", "fp32_vector"),
}
_VECTOR: dict[str, tuple[str, ...]] = {
    "float64": ("fp64_vector",),
    "complex128": ("fp64_vector",),
}
_PLAIN = {"float32": "fp32_vector", "tf32": "fp32_vector", "complex64": "fp32_vector"}
"""What a product falls back to without anything worth counting"""
SLOW_FP64 = 1 / 64
"""of the fp32 rate, where no fp64 rate is stated: consumer and inference GPUs"""
DRAM_SHARE, L2_SHARE = 0.83, 0.6
"""of the peak bandwidths that streams reach"""
_CACHE_SHARE = {1: 0.9, 2: 0.48}
"""of a cache that one kernel's data can use: two halves hold data twice (design notes, 2)"""


@dataclass(frozen=True)
class Machine:
    """A device in the units of the formulas."""

    hardware: Hardware
    sms: float
    clock_ghz: float
    dram_bytes_per_us: float
    """of the data sheet"""
    cache_bytes_per_us: float
    cache_bytes: float
    """that a kernel's data can occupy"""

    @staticmethod
    def of(hardware: Hardware) -> "Machine":
        """A device's figures; bandwidth of the cache by memory generation if none is stated."""
        sms, clock = float(hardware.sm_count), hardware.boost_clock_mhz / 1e3
        stated = hardware.l2_bandwidth_gb_per_s
        cache = stated * 1e3 if stated else _bytes_per_clock(hardware) * sms * clock * 1e3
        dram = hardware.memory_bandwidth_gb_per_s * 1e3
        size = max(hardware.l2_size_mb, hardware.last_level_cache_mb or 0.0) * 2**20
        share = _CACHE_SHARE.get(hardware.l2_partitions, 0.48)
        return Machine(hardware, sms, clock, dram, max(cache, 1.5 * dram), size * share)

    @property
    def is_cpu(self) -> bool:
        """Whether the device is a processor's cores."""
        return self.hardware.kind == "cpu"


def _bytes_per_clock(hardware: Hardware) -> float:
    """Of one SM from the last cache: 17 with GDDR, 22 with HBM2, 40 with HBM3 (design notes 2)."""
    if hardware.kind == "cpu":
        return 16.0
    memory = hardware.memory_type.upper()
    if hardware.vendor == "amd":
        return 22.0
    if "HBM3" in memory or "HBM4" in memory:
        return 40.0
    return 22.0 if "HBM" in memory else 17.0


@dataclass(frozen=True, eq=False)
class Peaks:
    """Peak rate of each row."""

    flops_per_us: F64
    """[n]"""
    path: I8
    """[n] index into PEAK_PATHS"""
    substitute: NDArray[np.int16]
    """[n] index into `notes`; -1 where the type has a peak of its own"""
    notes: tuple[str, ...]


def peaks(batch: OpBatch, cost: Cost, hardware: Hardware) -> Peaks:
    """Peak rate by type and path.

    A type without its own figure takes the next one of its list (fp8 on a device without: half
    precision) and is noted. On AMD devices TF32 is not what libraries use: plain matrix fp32.

    Raises:
        InputError: The device states no rate for fp32 vector arithmetic.
    """
    if "fp32_vector" not in hardware.peak_tflops:
        raise InputError(
            "no peak fp32_vector", path=hardware.name, field="peak_tflops", remedy="add the figure"
        )
    n = len(batch)
    rate, path = np.zeros(n), np.zeros(n, np.int8)
    substitute, notes = np.full(n, -1, np.int16), list[str]()
    key = batch.dtype.astype(np.int64) * 2 + cost.tensor_path
    for value in np.unique(key):
        name, tensor = DTYPES[int(value) // 2], bool(value % 2)
        chosen, tflops, note = _choose(name, tensor, hardware)
        rows = key == value
        rate[rows], path[rows] = tflops * 1e6, PEAK_PATHS.index(chosen)
        if note:
            substitute[rows] = len(notes)
            notes.append(note)
    return Peaks(rate, path, substitute, tuple(notes))


def _choose(name: str, tensor: bool, hardware: Hardware) -> tuple[str, float, str]:
    chain = (_TENSOR if tensor else _VECTOR).get(name, ("fp32_vector",))
    if name == "tf32" and hardware.vendor == "amd":
        chain = chain[1:]
    for path in chain:
        if path in hardware.peak_tflops:
            usual = path in (chain[0], _PLAIN.get(name, ""))
            note = "" if usual else f"{name} at the rate of {path}"
            return path, hardware.peak_tflops[path], note
    note = f"{name} at 1/64 of the rate of fp32_vector"
    return "fp64_vector", hardware.peak_tflops["fp32_vector"] * SLOW_FP64, note


def hit_share(footprint: F64, machine: Machine) -> F64:
    """[n] share of accesses that the last cache serves, for data that was used just before."""
    ratio = np.log(machine.cache_bytes / np.maximum(footprint, 1.0))
    share: F64 = 1 / (1 + np.exp(-np.clip(ratio / 0.12, -60, 60)))
    return share


def throttled(rate: F64, duration_us: F64, machine: Machine, vector: NDArray[np.bool_]) -> F64:
    """[n] factor >= 1 on compute time where a device cannot hold its clock at full load.

    Design notes, 2: the ratio of what the peak would draw to the board's power, with an exponent;
    short kernels do not throttle.
    """
    h = machine.hardware
    if machine.is_cpu or h.board_power_w <= 0:
        return np.ones(len(rate))
    per_watt = rate / 1e6 / h.board_power_w
    per_clock = rate * 1e6 / machine.sms / (machine.clock_ghz * 1e9)
    clock, node = machine.clock_ghz, h.process_node_nm
    matrix = 1.1 * per_watt * (clock / 1.8) ** 2 * (node / 4) ** 0.8 * (per_clock / 4096) ** -0.15
    plain = 17 * per_watt * (clock / 1.4) ** 0.5 * (node / 12) ** 0.6
    slow = np.where(vector, np.maximum(plain, 1) ** 0.7, np.maximum(matrix, 1) ** 0.44)
    factor: F64 = 1 + (slow - 1) * duration_us / (duration_us + 400)
    return factor
