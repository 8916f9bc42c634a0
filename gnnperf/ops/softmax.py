"""Softmax and log-softmax over the last `cols` elements of `rows` rows, and their gradients."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes


def _cost(dims: F64, dtype: I8) -> Cost:
    """Forward reads the input once and writes as much; backward reads output and gradient."""
    rows, cols, direction = dims[:, :3].T
    numel, backward = rows * cols, direction > 0
    size = element_bytes(dtype)
    return Cost(
        flops=numel * np.where(backward, 4, 5),
        bytes_read=size * numel * np.where(backward, 2, 1),
        bytes_written=size * numel,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family("softmax", ("rows", "cols", "direction", "log"), _cost, ("rows",))
