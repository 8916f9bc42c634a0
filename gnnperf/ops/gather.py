"""Reads and writes at computed places: index, gather, scatter, index_add, cat, masked ops."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes as given; one addition per element where it accumulates."""
    out_numel, read, written, _, _, atomic = dims[:, :6].T
    return Cost(
        flops=out_numel * atomic,
        bytes_read=read,
        bytes_written=written,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=out_numel,
    )


FAMILY = Family(
    "gather",
    ("out_numel", "bytes_read", "bytes_written", "index_numel", "row_numel", "atomic"),
    _cost,
    ("out_numel", "bytes_read", "bytes_written", "index_numel"),
)
