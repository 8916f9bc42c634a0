"""Optimizer steps over `numel` parameters in `tensors` tensors."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family

READ_SHARE = 4 / 7
"""Adam reads parameter, gradient and two moments and writes all but the gradient"""


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes by `bytes_per_parameter` (fused Adam in fp32: 28), read and written together."""
    numel, _, size, _, flops = dims[:, :5].T
    return Cost(
        flops=numel * flops,
        bytes_read=numel * size * READ_SHARE,
        bytes_written=numel * size * (1 - READ_SHARE),
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family(
    "optimizer",
    ("numel", "tensors", "bytes_per_parameter", "fused", "flops_per_element"),
    _cost,
    ("numel", "tensors"),
)
