"""One grouped product of a mixture of experts: each row meets the [k, n] of its expert."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.moe import active_experts


def _cost(dims: F64, dtype: I8) -> Cost:
    """2 rows n k; the weights of every expert that has a row are read once."""
    tokens, _, _, experts, top_k, n, k = dims[:, :7].T
    rows, size = tokens * top_k, element_bytes(dtype)
    return Cost(
        flops=2 * rows * n * k,
        bytes_read=size * (active_experts(rows, experts) * n * k + rows * k),
        bytes_written=np.maximum(size, 2.0) * rows * n,
        tensor_path=np.ones(len(dims), np.bool_),
        parallel_items=rows * n,
    )


FAMILY = Family(
    "moe_gemm", ("tokens", "hidden", "inter", "experts", "top_k", "n", "k"), _cost, ("tokens",)
)
