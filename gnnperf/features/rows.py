"""Rows of device work on devices, as the network's numbers (numpy, no torch)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gnnperf.features.hardware import COLUMN, hardware_row, matrix_units, peaks
from gnnperf.features.spec import DIVISORS
from gnnperf.hardware import Hardware
from gnnperf.ops import OpBatch, batch_cost, element_bytes

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

OWN_SOURCES = ("gnnperf", "trace", "recording", "")
TRAINING_SESSION = "training session"
"""Kernel source of the rows of NeuSight's training tables: a measurement session of its own."""
NO_VARIANT = -1
"""Code of an implementation that the network does not know."""
TECHNOLOGIES: dict[str, tuple[str, ...]] = {
    "triton": ("triton", "vllm_fused_moe"),
    "tensorrt-llm": ("trtllm", "torch_flow"),
    "cutlass": ("cutlass",),
    "flashinfer": ("flashinfer",),
    "flash-attention": ("flash_att", "fa3"),
    "deepgemm": ("deepgemm",),
}
"""Kinds of libraries and the parts of their implementations' names, first match first."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """How the time of each row is (or would be) measured."""

    variant: I64
    """[n] code of the implementation (library, framework), NO_VARIANT if not known"""
    launch_included: NDArray[np.bool_]
    """[n] whether the launch call and gap are inside the time"""
    in_model: NDArray[np.bool_]
    """[n] whether the op runs inside a model, not alone"""

    @staticmethod
    def same(n: int, launch_included: bool, in_model: bool, variant: int = -1) -> "Measurement":
        """The same for every row."""
        return Measurement(
            np.full(n, variant, np.int64),
            np.full(n, launch_included),
            np.full(n, in_model),
        )


def variant_name(source: str, framework: str, kernel_source: str = "") -> str:
    """Name of an implementation: only aiconfigurator's sources name one, not a single kernel.

    A session of measurements that differs from the others of its source counts as one too.

    Own recordings and traces are what predictions are asked for, and share one name.
    """
    if source in OWN_SOURCES:
        return "any:any:any"
    named = source == "aiconfigurator" or kernel_source == TRAINING_SESSION
    library = kernel_source if named else ""
    return ":".join((source or "any", framework or "any", library or "any"))


def with_frameworks(names: Sequence[str]) -> tuple[str, ...]:
    """The names of implementations and, behind them, of their frameworks."""
    coarse = (name.rpartition(":")[0] + ":any" for name in names)
    return tuple(dict.fromkeys((*names, *coarse)))


def variant_parents(names: Sequence[str]) -> tuple[int, ...]:
    """For each name of `with_frameworks` the place of its framework, NO_VARIANT if it is one."""
    index = {name: i for i, name in enumerate(names)}
    coarse = [name.rpartition(":")[0] + ":any" for name in names]
    return tuple(
        NO_VARIANT if name == parent else index.get(parent, NO_VARIANT)
        for name, parent in zip(names, coarse, strict=True)
    )


def variant_technologies(names: Sequence[str]) -> tuple[int, ...]:
    """For each name the place of its kind of library in `TECHNOLOGIES`, NO_VARIANT for none."""
    return tuple(_technology(name) for name in names)


def _technology(name: str) -> int:
    _, _, library = name.rpartition(":")
    for place, parts in enumerate(TECHNOLOGIES.values()):
        if any(part in library for part in parts):
            return place
    return NO_VARIANT


def find_variant(names: Sequence[str], name: str) -> int:
    """Place of an implementation, else of its framework, else NO_VARIANT."""
    for candidate in (name, name.rpartition(":")[0] + ":any"):
        if candidate in names:
            return list(names).index(candidate)
    return NO_VARIANT


@dataclass(frozen=True, eq=False)
class Rows:
    """[n] rows; everything that depends on the device but not on fitted coefficients."""

    family: NDArray[np.int64]
    dims: F32
    """[n, MAX_DIMS]"""
    device: I64
    """[n] index into `hardware`"""
    hardware: F32
    """[d, len(HARDWARE_COLUMNS)]"""
    matrix: NDArray[np.bool_]
    """[n] matrix units compute it"""
    peak: F32
    """[n] FLOP/us of its path"""
    element: F32
    """[n] bytes of one element"""
    flops: F32
    """[n] FLOP"""
    read: F32
    """[n] B"""
    written: F32
    """[n] B"""
    items: F32
    """[n] independent pieces of work"""
    variant: I64
    """[n] code of the implementation, NO_VARIANT if not known"""
    launch_included: F32
    """[n] 0 or 1"""
    in_model: F32
    """[n] 0 or 1"""

    def __len__(self) -> int:
        return len(self.family)

    def take(self, rows: I64) -> "Rows":
        """The given rows."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return Rows(**{n: v if n == "hardware" else v[rows] for n, v in columns.items()})


def make_rows(
    batch: OpBatch, devices: Sequence[Hardware], device: I64, measured: Measurement
) -> Rows:
    """Turn device work into rows.

    Args:
        batch: [n] the work.
        devices: The devices met.
        device: [n] index into `devices`.
        measured: [n] how the time is measured.
    """
    cost = batch_cost(batch)
    dtype = batch.dtype.astype(np.int64)
    by_dtype = np.stack([peaks(h) for h in devices])
    units = np.stack([matrix_units(h) for h in devices])
    tensor = cost.tensor_path
    return Rows(
        family=batch.family.astype(np.int64),
        dims=batch.dims.astype(np.float32),
        device=device,
        hardware=np.stack([hardware_row(h) for h in devices]).astype(np.float32),
        matrix=tensor & units[device, dtype],
        peak=by_dtype[device, dtype, tensor.astype(np.int64)].astype(np.float32),
        element=element_bytes(batch.dtype).astype(np.float32),
        flops=cost.flops.astype(np.float32),
        read=cost.bytes_read.astype(np.float32),
        written=cost.bytes_written.astype(np.float32),
        items=cost.parallel_items.astype(np.float32),
        variant=measured.variant,
        launch_included=measured.launch_included.astype(np.float32),
        in_model=measured.in_model.astype(np.float32),
    )


def ratios(rows: Rows) -> F32:
    """[n, len(RATIOS) + len(DIVISORS)] the features that need no prior, transformed."""
    hardware = rows.hardware[rows.device].astype(np.float64)

    def figure(name: str) -> NDArray[np.float64]:
        column: NDArray[np.float64] = hardware[:, COLUMN[name]]
        return column

    moved = rows.read.astype(np.float64) + rows.written
    ridge = rows.peak / figure("bandwidth")
    columns = (
        np.log((rows.flops + 1.0) / (moved + 1.0) / ridge),
        np.log((moved + 1.0) / figure("l2_bytes")),
        np.log((rows.items + 1.0) / figure("sms")),
        np.log1p(rows.flops.astype(np.float64)),
        np.log1p(moved),
        np.log(rows.element),
        rows.launch_included,
        rows.in_model,
    )
    whole = rows.dims[:, : len(DIVISORS)].astype(np.int64)
    divisor = np.log2(np.gcd(whole, 128).clip(1))
    return np.concatenate([np.stack(columns, axis=1), divisor], axis=1).astype(np.float32)
