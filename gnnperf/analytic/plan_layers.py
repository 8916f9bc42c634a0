"""Device time of one micro-batch in one pipeline stage: products, attention, streams of bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnperf.analytic.device_time import device_time
from gnnperf.analytic.plan_model import Plan, Transformer
from gnnperf.graph import DTYPES
from gnnperf.hardware import Hardware
from gnnperf.ops import MAX_DIMS, OpBatch, family_index

STREAM_SHARE = 0.8
"""of the memory bandwidth that elementwise kernels reach (design notes, 3)"""
SCORE_BYTES = (13.0, 17.0)
"""of unfused attention per score in 2-byte types, forward and backward: scale, mask, softmax,
dropout and the two products' operands (design notes, 3)"""
LOGIT_BYTES = 24.0
"""per logit, forward and backward: the cast to float32, softmax, loss and its gradient"""
HOST_US, FORWARD_OPS, BACKWARD_OPS = 25.0, 30, 45
"""a framework's host issues an op in 25 us; ops of one layer"""
F64 = NDArray[np.float64]
Figures = tuple[float, ...]
"""dimensions of one op; of a product batch, m, n, k"""


@dataclass(frozen=True)
class LayerTime:
    """Device time of one layer for one micro-batch, in us."""

    forward_us: float
    backward_us: float
    attention_us: float
    """the attention core's part of the forward: what selective recomputation repeats"""

    def total_us(self, recompute: str) -> float:
        """Forward, backward and what is computed again; never faster than the host issues it."""
        again = {"full": self.forward_us, "selective": self.attention_us}.get(recompute, 0.0)
        device = self.forward_us + self.backward_us + again
        ops = FORWARD_OPS * (2 if recompute == "full" else 1) + BACKWARD_OPS
        return max(device, ops * HOST_US)


class Prices:
    """Device times on one device, each shape asked once; streams at its memory bandwidth."""

    def __init__(self, hardware: Hardware) -> None:
        self.rate = hardware.memory_bandwidth_gb_per_s * 1e3 * STREAM_SHARE
        """bytes per us of elementwise work"""
        self._hardware = hardware
        self._known: dict[tuple[str, str, Figures], float] = {}

    def times_us(self, family: str, rows: Sequence[Figures], dtype: str) -> F64:
        """[n] times of rows of a family's dimensions."""
        new = [row for row in dict.fromkeys(rows) if (family, dtype, row) not in self._known]
        if new:
            dims = np.zeros((len(new), MAX_DIMS))
            dims[:, : len(new[0])] = new
            batch = OpBatch(
                np.full(len(new), family_index(family), np.int16),
                dims,
                np.full(len(new), DTYPES.index(dtype), np.int8),
                np.ones(len(new), np.bool_),
            )
            times = device_time(batch, self._hardware).total_us.tolist()
            self._known.update({(family, dtype, row): t for row, t in zip(new, times, strict=True)})
        return np.array([self._known[family, dtype, row] for row in rows])


def layer_time(model: Transformer, plan: Plan, prices: Prices) -> LayerTime:
    """One layer, forward and backward, without communication."""
    linear = _linears(model, plan)
    backward = [(b, m, k, n) for b, m, n, k in linear]
    if not plan.frozen:
        backward += [(b, n, k, m) for b, m, n, k in linear]
    times = prices.times_us("gemm", [*linear, *backward], plan.dtype)
    attention = _attention_us(model, plan, prices)
    stream = _stream_bytes(model, plan)
    return LayerTime(
        forward_us=float(times[: len(linear)].sum()) + attention[0] + stream[0] / prices.rate,
        backward_us=float(times[len(linear) :].sum()) + attention[1] + stream[1] / prices.rate,
        attention_us=attention[0],
    )


def head_us(model: Transformer, plan: Plan, prices: Prices) -> float:
    """Logits and loss, forward and backward, of one micro-batch on the last stage."""
    m, n, k = plan.tokens, model.vocab / plan.tensor, float(model.hidden)
    dtype = "bfloat16" if plan.dtype in ("float8", "float4") else plan.dtype
    products: list[Figures] = [(1.0, m, n, k), (1.0, m, k, n), (1.0, n, k, m)]
    products = products[:2] if plan.frozen else products
    stream = m * n * LOGIT_BYTES + m * k * 12
    return float(prices.times_us("gemm", products, dtype).sum()) + stream / prices.rate


def _linears(model: Transformer, plan: Plan) -> list[Figures]:
    """Products of one layer's linear parts, forward, on one rank."""
    m, h, t = plan.tokens, float(model.hidden), plan.tensor
    local = max(1.0, model.experts / plan.expert)
    rows = m * model.top_k / local  # of balanced experts, whatever rank the tokens come from
    up = model.inner * (2 if model.gated else 1) / t
    return [
        (1.0, m, (model.query_width + 2 * model.kv_width) / t, h),
        (1.0, m, h, model.query_width / t),
        (local, rows, up, h),
        (local, rows, h, model.inner / t),
    ]


def _attention_us(model: Transformer, plan: Plan, prices: Prices) -> tuple[float, float]:
    """The attention core, forward and backward.

    Matrix units cannot load heads whose width is no multiple of 8 elements of 2 bytes: unfused
    products over them run on the vector units, at the rate of float32.
    """
    q_len, width = plan.seq / plan.context, float(model.head)
    heads = model.heads / plan.tensor
    kv_heads = max(1.0, (model.kv_heads or model.heads) / plan.tensor)
    dtype = plan.dtype if plan.dtype in ("float32", "tf32", "float16") else "bfloat16"
    if plan.flash:
        size = 4.0 if dtype in ("float32", "tf32") else 2.0
        shape = (plan.micro_batch, heads, kv_heads, q_len, plan.seq, width, width)
        rows = [tuple(map(float, (*shape, model.causal, 0, 1, way, size))) for way in (0, 1)]
        forward_us, backward_us = prices.times_us("attention", rows, dtype)
        return float(forward_us), float(backward_us)
    many, s = plan.micro_batch * heads, float(plan.seq)
    forward: list[Figures] = [(many, q_len, s, width), (many, q_len, width, s)]
    backward: list[Figures] = [*forward, *[(many, s, width, q_len)] * 2]
    half = dtype in ("float16", "bfloat16")
    path = "float32" if half and model.head % 8 else dtype
    times = prices.times_us("gemm", [*forward, *backward], path)
    stream_us = many * q_len * s * (1.0 if half else 2.0) / prices.rate
    return (
        float(times[:2].sum()) + SCORE_BYTES[0] * stream_us,
        float(times[2:].sum()) + SCORE_BYTES[1] * stream_us,
    )


def _stream_bytes(model: Transformer, plan: Plan) -> tuple[float, float]:
    """Bytes of normalizations, residuals, dropout, activation and bias, forward and backward.

    Counted per element in 2-byte types: norm 4 (8 backward with the residual's gradient),
    dropout and residual 7 (5), each twice a layer; activation 4 (6) on what the MLP's inner
    width holds; copies of queries, keys and values 6 (8); 8-bit and 4-bit products read their
    inputs once more to quantize them.
    """
    m, h, t = plan.tokens, float(model.hidden), plan.tensor
    split = t if plan.sequence_parallel else 1
    inner = model.inner * model.top_k * (1.5 if model.gated else 1.0) / t
    heads = (model.query_width + 2 * model.kv_width) / t
    forward = m * (22 * h / split + 4 * inner + 6 * heads)
    backward = m * (28 * h / split + 6 * inner + 8 * heads)
    if plan.dtype in ("float8", "float4"):
        forward += m * (2 * h + heads + inner)
        backward += m * 3 * (2 * h + heads + inner)
    wide = 2.0 if plan.dtype in ("float32", "tf32") else 1.0
    return forward * wide, backward * wide
