"""Scaled dot-product attention as one op, fused (flash) or computed with its scores in memory."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes

SCORE_ELEMENTS = (6.5, 8.5)
"""Elements moved per score where the scores lie in memory, forward and backward.

13 and 17 bytes in half precision: product, scale and mask, softmax, dropout, second product.
"""


def attended_pairs(q_len: F64, kv_len: F64, causal: F64, window: F64) -> F64:
    """[n] (query, key) pairs that are computed for one head of one sequence.

    A causal query sees no key after its own position, positions aligned at the end (a decoding
    query sees them all); a window bounds the keys of one query.
    """
    shorter = np.minimum(q_len, kv_len)
    full = q_len * kv_len
    triangle = shorter * kv_len - shorter * (shorter - 1) / 2
    pairs = np.where(causal > 0, np.minimum(full, triangle), full)
    reach = np.where(window > 0, np.minimum(window, kv_len), kv_len)
    ramp = np.where((causal > 0) & (q_len >= kv_len), reach * (reach - 1) / 2, 0)
    return np.where(window > 0, np.minimum(pairs, q_len * reach - ramp), pairs)


def _cost(dims: F64, dtype: I8) -> Cost:
    """Two products forward, five backward (the scores again); masked blocks are not computed."""
    batch, q_heads, kv_heads, q_len, kv_len, head, v_head, causal, window, flash = dims[:, :10].T
    backward, size = dims[:, 10] > 0, element_bytes(dtype)
    kv_size = np.where(dims[:, 11] > 0, dims[:, 11], size)
    pairs = batch * q_heads * attended_pairs(q_len, kv_len, causal, window)
    q, out = batch * q_heads * q_len * head, batch * q_heads * q_len * v_head
    kv = batch * kv_heads * kv_len * (head + v_head)
    forward_score, backward_score = SCORE_ELEMENTS
    full = batch * q_heads * q_len * kv_len
    scores = np.where(flash > 0, 0, full * np.where(backward, backward_score, forward_score))
    statistics = 4 * batch * q_heads * q_len
    return Cost(
        flops=2 * pairs * np.where(backward, 3 * head + 2 * v_head, head + v_head),
        bytes_read=q * size
        + kv * kv_size
        + np.where(backward, 2 * out * size + statistics, 0)
        + scores * size / 2,
        bytes_written=np.where(backward, q * size + kv * kv_size, out * size + statistics)
        + scores * size / 2,
        tensor_path=np.ones(len(dims), np.bool_),
        parallel_items=np.where(backward, q + kv, out),
    )


FAMILY = Family(
    "attention",
    (
        "batch",
        "q_heads",
        "kv_heads",
        "q_len",
        "kv_len",
        "head_dim",
        "v_head_dim",
        "causal",
        "window",
        "flash",
        "direction",
        "kv_bytes",
    ),
    _cost,
    ("batch",),
)
