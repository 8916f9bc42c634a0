"""A whole fused mixture-of-experts layer on one device of its expert and tensor groups."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes

ACTIVATION_BYTES = 2.0
"""activations enter and leave in half precision whatever type the weights have"""


def active_experts(rows: F64, experts: F64) -> F64:
    """[n] experts that get at least one of `rows` evenly drawn (token, expert) pairs."""
    experts = np.maximum(experts, 1)
    return np.minimum(experts * -np.expm1(-rows / experts), rows)


def _cost(dims: F64, dtype: I8) -> Cost:
    """Up (and gate) and down products of each (token, expert) pair; active weights once."""
    tokens, hidden, inter, experts, top_k, tensor, expert, _, gated = dims[:, :9].T
    tensor, expert = np.maximum(tensor, 1), np.maximum(expert, 1)
    matrices, width = 2 + gated, inter / tensor
    pairs = tokens * top_k / expert
    weights = active_experts(tokens * top_k, experts) / expert * hidden * width * matrices
    between = 2 * pairs * width * matrices * ACTIVATION_BYTES
    size = np.minimum(element_bytes(dtype), ACTIVATION_BYTES)
    return Cost(
        flops=2 * pairs * hidden * width * matrices,
        bytes_read=weights * size + tokens * hidden * ACTIVATION_BYTES + between / 2,
        bytes_written=tokens * hidden * ACTIVATION_BYTES + between / 2,
        tensor_path=np.ones(len(dims), np.bool_),
        parallel_items=pairs * (hidden + width),
    )


FAMILY = Family(
    "moe",
    (
        "tokens",
        "hidden",
        "inter",
        "experts",
        "top_k",
        "tensor_parallel",
        "expert_parallel",
        "skew",
        "gated",
    ),
    _cost,
    ("tokens",),
)
