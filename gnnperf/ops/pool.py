"""Pooling and interpolation: each of `out_numel` outputs sees `window` inputs."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes


def _cost(dims: F64, dtype: I8) -> Cost:
    """Backward reads the output's gradient and writes the input's."""
    out_numel, window, in_numel, direction = dims[:, :4].T
    backward, size = direction > 0, element_bytes(dtype)
    return Cost(
        flops=out_numel * window,
        bytes_read=size * np.where(backward, out_numel, in_numel),
        bytes_written=size * np.where(backward, in_numel, out_numel),
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=np.where(backward, in_numel, out_numel),
    )


FAMILY = Family(
    "pool", ("out_numel", "window", "in_numel", "direction"), _cost, ("out_numel", "in_numel")
)
