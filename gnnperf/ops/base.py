"""Work on a device as numbers: op families, their dimensions, and columnar batches of them.

Everything that predicts a time (analytic engine, features, network) sees only an `OpBatch`;
execution graphs and kernel tables are both turned into one.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gnnperf.registry import Registry

F64 = NDArray[np.float64]
MAX_DIMS = 16
"""Columns of `OpBatch.dims`: no family has more dimensions than this."""


@dataclass(frozen=True, eq=False)
class OpBatch:
    """Rows of device work.

    The row's family names the columns of `dims` that it uses (`Family.dims`); the rest is 0.
    """

    family: NDArray[np.int16]
    """[n] index into `family_names()`"""
    dims: F64
    """[n, MAX_DIMS]"""
    dtype: NDArray[np.int8]
    """[n] index into graph.DTYPES: the type that the op computes in or reads"""
    known: NDArray[np.bool_]
    """[n] False where shapes were missing or the op is in no family"""

    def __len__(self) -> int:
        return len(self.family)

    def take(self, rows: NDArray[np.int64]) -> "OpBatch":
        """The given rows."""
        return OpBatch(self.family[rows], self.dims[rows], self.dtype[rows], self.known[rows])


@dataclass(frozen=True, eq=False)
class Cost:
    """What rows of one family ask of the hardware."""

    flops: F64
    """[n] floating point operations (2 for a multiply-add)"""
    bytes_read: F64
    """[n] bytes that must be read at least once"""
    bytes_written: F64
    """[n]"""
    tensor_path: NDArray[np.bool_]
    """[n] whether matrix units are used where the hardware has them for the dtype"""
    parallel_items: F64
    """[n] independent pieces of work (output elements, rows): bounds the SMs that can be busy"""


class Family(Protocol):
    """One op family; a module of `gnnperf.ops` registers one instance."""

    name: str
    dims: tuple[str, ...]
    """names of the columns of `OpBatch.dims`, at most MAX_DIMS"""

    def cost(self, dims: F64, dtype: NDArray[np.int8]) -> Cost:
        """Pure function of [n, MAX_DIMS] dims and [n] dtypes."""
        ...


FAMILIES: Registry[Family] = Registry("op family")
"""Every op family by name, in fixed order; the order is what `OpBatch.family` indexes."""
