"""Kernels compiled from fused elementwise and reduction code, known by inputs and outputs."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes as given; one operation per element and input."""
    read, written, numel, inputs = dims[:, :4].T
    return Cost(
        flops=numel * inputs,
        bytes_read=read,
        bytes_written=written,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family(
    "triton",
    ("bytes_read", "bytes_written", "numel", "inputs"),
    _cost,
    ("bytes_read", "bytes_written", "numel"),
)
