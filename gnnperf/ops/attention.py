"""Scaled dot-product attention as one op, fused (flash) or computed with its scores in memory."""

from dataclasses import dataclass

import numpy as np

from gnnperf.graph import dtype_bytes
from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.call import Call, MissingShapeError, Parser, TensorSpec, Work, compute_dtype

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
    seen = np.where(window > 0, np.minimum(kv_len, window + q_len - 1), kv_len)
    kv = batch * kv_heads * seen * (head + v_head)
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


@dataclass(frozen=True)
class _Signature:
    """Where an attention op keeps its operands."""

    query: int = 0
    """argument of the query; key and value follow it"""
    causal: int | None = None
    heads_first: bool = True
    """[batch, heads, length, dim] against [batch, length, heads, dim]"""
    backward: bool = False
    longest: int | None = None
    """argument of the longest query length (the key's follows), where sequences lie packed"""


def _is_causal(call: Call, signature: _Signature) -> bool:
    if signature.causal is None:
        call.assume("attention not causal")
        return False
    return call.flag(signature.causal, "attention causal")


def _lengths(call: Call, signature: _Signature) -> tuple[int, int, int] | None:
    """Number of packed sequences and their longest query and key; None if nothing says."""
    at = signature.longest
    if at is None:
        return None
    longest_q, longest_kv = call.value(at), call.value(at + 1)
    offsets = call.tensor(at - 2).numel - 1 if call.has_tensor(at - 2) else 0
    if offsets > 0 and isinstance(longest_q, int) and isinstance(longest_kv, int):
        return offsets, longest_q, longest_kv
    return None


def _parser(signature: _Signature) -> Parser:
    def parse(call: Call) -> Work:
        q, k, v = (call.tensor(signature.query + i) for i in range(3))
        if len(q.shape) == 3 and not signature.heads_first:
            q, k, v = (TensorSpec((1, *t.shape), t.dtype) for t in (q, k, v))
        if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
            raise MissingShapeError(f"{call.name}: query {q.shape} has no four dimensions")
        heads, length = (1, 2) if signature.heads_first else (2, 1)
        batch, q_len, kv_len = q.shape[0], q.shape[length], k.shape[length]
        packed = _lengths(call, signature) if batch == 1 else None
        if packed:
            batch, q_len, kv_len = packed
        dims = (
            batch,
            q.shape[heads],
            k.shape[heads],
            q_len,
            kv_len,
            q.shape[3],
            v.shape[3],
            _is_causal(call, signature),
            0,
            1,
            signature.backward,
            dtype_bytes(k.dtype) or 4.0,
        )
        return Work("attention", tuple(map(float, dims)), compute_dtype([q]))

    return parse


PARSERS: dict[str, Parser] = {
    name: _parser(signature)
    for name, signature in {
        "scaled_dot_product_attention": _Signature(causal=5),
        "_scaled_dot_product_flash_attention": _Signature(causal=4),
        "_scaled_dot_product_flash_attention_for_cpu": _Signature(causal=4),
        "_scaled_dot_product_efficient_attention": _Signature(causal=6),
        "_scaled_dot_product_cudnn_attention": _Signature(causal=6),
        "_scaled_dot_product_flash_attention_backward": _Signature(1, 11, backward=True),
        "_scaled_dot_product_flash_attention_for_cpu_backward": _Signature(1, 7, backward=True),
        "_scaled_dot_product_efficient_attention_backward": _Signature(1, 11, backward=True),
        "_scaled_dot_product_cudnn_attention_backward": _Signature(1, 14, backward=True),
        "_flash_attention_forward": _Signature(0, 8, False, longest=5),
        "_flash_attention_backward": _Signature(1, 11, False, True, longest=8),
        "_efficient_attention_forward": _Signature(0, 9, False, longest=6),
        "_efficient_attention_backward": _Signature(1, 14, False, True, longest=8),
        "_flash_attn_forward": _Signature(0, 5, False),
        "_flash_attn_backward": _Signature(1, None, False, True),
        "_flash_attn_varlen_forward": _Signature(0, 9, False),
    }.items()
}
