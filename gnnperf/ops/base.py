"""Work on a device as numbers: op families, their dimensions, and columnar batches of them.

Everything that predicts a time (analytic engine, features, network) sees only an `OpBatch`;
execution graphs and kernel tables are both turned into one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnperf.errors import UnknownNameError
from gnnperf.graph import DTYPES, dtype_bytes
from gnnperf.registry import Registry

F64 = NDArray[np.float64]
I8 = NDArray[np.int8]
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
    dtype: I8
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


CostFunction = Callable[[F64, I8], Cost]
"""Pure function of [n, MAX_DIMS] dims and [n] dtypes."""


@dataclass(frozen=True)
class Family:
    """One op family; every module of `gnnperf.ops` that holds one names it `FAMILY`."""

    name: str
    dims: tuple[str, ...]
    """names of the columns of `OpBatch.dims`, at most MAX_DIMS"""
    cost: CostFunction
    extensive: tuple[str, ...]
    """dims that are divided where several kernels share one op's work, so that costs add up"""


FAMILIES: Registry[Family] = Registry("op family")
"""Every op family by name, in the fixed order of docs/families.md, which `OpBatch.family` indexes.

Filled by `gnnperf.ops`.
"""

_ELEMENT_BYTES = np.array([dtype_bytes(i) or 4.0 for i in range(len(DTYPES))])


def element_bytes(dtype: I8) -> F64:
    """[n] bytes of one element; 4 where the type is unknown."""
    return _ELEMENT_BYTES[dtype]


def family_names() -> tuple[str, ...]:
    """Names of the families in their fixed order."""
    return tuple(FAMILIES)


def family_index(name: str) -> int:
    """What `OpBatch.family` holds for a family; raises UnknownNameError."""
    return family_names().index(FAMILIES[name].name)


def dim_index(family: str, dim: str) -> int:
    """Column of `OpBatch.dims` of a dimension; raises UnknownNameError."""
    dims = FAMILIES[family].dims
    if dim not in dims:
        raise UnknownNameError(f"dimension of {family}", dim, list(dims))
    return dims.index(dim)


def batch_cost(batch: OpBatch) -> Cost:
    """Cost of every row, whatever its family; arrays as long as the batch."""
    n = len(batch)
    flops, read, written, items = (np.zeros(n) for _ in range(4))
    tensor = np.zeros(n, np.bool_)
    families = list(FAMILIES.items())
    for index in np.unique(batch.family):
        rows = np.flatnonzero(batch.family == index)
        cost = families[index][1].cost(batch.dims[rows], batch.dtype[rows])
        flops[rows], read[rows], written[rows] = cost.flops, cost.bytes_read, cost.bytes_written
        items[rows], tensor[rows] = cost.parallel_items, cost.tensor_path
    return Cost(flops, read, written, tensor, items)


def distinct_rows_of(batch: OpBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that differ: an example of each, and for every row which example it equals.

    Compared by a 64-bit hash of family, type and dimensions.
    """
    if not len(batch):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    total = batch.family.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    total ^= batch.dtype.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    columns = np.ascontiguousarray(batch.dims.T + 0.0).view(np.uint64)
    for column in columns:
        total = (total ^ column ^ (column >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        total ^= total >> np.uint64(32)
    _, example, inverse = np.unique(total, return_index=True, return_inverse=True)
    return example.astype(np.int64), inverse.astype(np.int64)
