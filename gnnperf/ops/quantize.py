"""Scales of rows or blocks and the cast to fp8, int8 or fp4 (or back)."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes as given; a maximum and a product per element."""
    rows, cols, read, written = dims[:, :4].T
    return Cost(
        flops=2 * rows * cols,
        bytes_read=read,
        bytes_written=written,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=rows * cols,
    )


FAMILY = Family(
    "quantize",
    ("rows", "cols", "bytes_read", "bytes_written"),
    _cost,
    ("rows", "bytes_read", "bytes_written"),
)
