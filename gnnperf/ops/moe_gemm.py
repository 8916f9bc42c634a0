"""One grouped product of a mixture of experts: each row meets the [k, n] of its expert."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.call import Call, MissingShapeError, Parser, Work, compute_dtype
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


def _grouped(call: Call) -> Work:
    """_grouped_mm: [rows, k] x [experts, k, n]; rows of one expert follow each other."""
    rows, weights = call.tensor(0), call.tensor(1)
    if len(rows.shape) != 2 or len(weights.shape) != 3:
        raise MissingShapeError(
            f"{call.name}: {rows.shape} x {weights.shape} is no grouped product"
        )
    experts, k, n = weights.shape
    dims = (rows.shape[0], k, n, experts, 1, n, k)
    return Work("moe_gemm", tuple(map(float, dims)), compute_dtype([rows]))


PARSERS: dict[str, Parser] = dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped)
