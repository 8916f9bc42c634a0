"""Matrix products: mm, linear, batched and everything that is computed as one."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes


def _cost(dims: F64, dtype: I8) -> Cost:
    """2 batch m n k; every operand once. Types under 2 bytes (fp8, int8, fp4) are written as 2."""
    batch, m, n, k, bias = dims[:, :5].T
    size = element_bytes(dtype)
    return Cost(
        flops=2 * batch * m * n * k,
        bytes_read=size * (batch * (m * k + k * n) + bias * n),
        bytes_written=np.maximum(size, 2.0) * batch * m * n,
        tensor_path=np.ones(len(dims), np.bool_),
        parallel_items=batch * m * n,
    )


FAMILY = Family(
    "gemm",
    ("batch", "m", "n", "k", "bias", "a_transposed", "b_transposed", "variant"),
    _cost,
    ("batch",),
)
