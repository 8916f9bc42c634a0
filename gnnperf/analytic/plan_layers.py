"""Device time of one micro-batch in one pipeline stage: products, attention, streams of bytes."""

from dataclasses import dataclass

import numpy as np

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
UNALIGNED = 5.0
"""factor on products in 2-byte types over a head width that is no multiple of 8: matrix units
cannot load it (A100: vector rate is a quarter, and less of it is reached)"""

Product = tuple[float, float, float, float]
"""batch, m, n, k"""


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


def layer_time(model: Transformer, plan: Plan, hardware: Hardware) -> LayerTime:
    """One layer, forward and backward, without communication."""
    linear = _linears(model, plan)
    backward = [p for b, m, n, k in linear for p in ((b, m, k, n), (b, n, k, m))]
    products = [*linear, *backward]
    times = _products_us(products, plan.dtype, hardware)
    attention = _attention_us(model, plan, hardware)
    stream = _stream_bytes(model, plan)
    rate = hardware.memory_bandwidth_gb_per_s * 1e3 * STREAM_SHARE
    return LayerTime(
        forward_us=float(times[: len(linear)].sum()) + attention[0] + stream[0] / rate,
        backward_us=float(times[len(linear) :].sum()) + attention[1] + stream[1] / rate,
        attention_us=attention[0],
    )


def head_us(model: Transformer, plan: Plan, hardware: Hardware) -> float:
    """Logits and loss, forward and backward, of one micro-batch on the last stage."""
    m, n, k = plan.tokens, model.vocab / plan.tensor, float(model.hidden)
    dtype = "bfloat16" if plan.dtype in ("float8", "float4") else plan.dtype
    products = [(1.0, m, n, k), (1.0, m, k, n), (1.0, n, k, m)]
    stream = m * n * LOGIT_BYTES + m * k * 12
    rate = hardware.memory_bandwidth_gb_per_s * 1e3 * STREAM_SHARE
    return float(_products_us(products, dtype, hardware).sum()) + stream / rate


def _linears(model: Transformer, plan: Plan) -> list[Product]:
    """Products of one layer's linear parts, forward, on one rank."""
    m, h, t = plan.tokens, float(model.hidden), plan.tensor
    local = max(1.0, model.experts / plan.expert)
    routed = m * model.top_k * model.experts / plan.expert / local / local
    rows = m if model.experts == 1 else routed
    up = model.inner * (2 if model.gated else 1) / t
    return [
        (1.0, m, (model.query_width + 2 * model.kv_width) / t, h),
        (1.0, m, h, model.query_width / t),
        (local, rows, up, h),
        (local, rows, h, model.inner / t),
    ]


def _attention_us(model: Transformer, plan: Plan, hardware: Hardware) -> tuple[float, float]:
    """The attention core, forward and backward."""
    q_len, width = plan.seq / plan.context, float(model.head)
    heads = model.heads / plan.tensor
    kv_heads = max(1.0, (model.kv_heads or model.heads) / plan.tensor)
    dtype = plan.dtype if plan.dtype in ("float32", "tf32", "float16") else "bfloat16"
    if plan.flash:
        figures = (
            plan.micro_batch, heads, kv_heads, q_len, plan.seq, width, width, model.causal, 0, 1
        )  # fmt: skip
        size = 4.0 if dtype in ("float32", "tf32") else 2.0
        rows = np.zeros((2, MAX_DIMS))
        rows[:, :10] = figures
        rows[:, 10], rows[:, 11] = (0, 1), size
        times = device_time(_batch("attention", rows, dtype), hardware).total_us
        return float(times[0]), float(times[1])
    many, s = plan.micro_batch * heads, float(plan.seq)
    forward = [(many, q_len, s, width), (many, q_len, width, s)]
    twice = [(many, q_len, s, width), (many, q_len, width, s), (many, s, width, q_len)]
    times = _products_us([*forward, *twice, (many, s, width, q_len)], dtype, hardware)
    half = dtype == "float16" or dtype == "bfloat16"
    slow = UNALIGNED if half and model.head % 8 else 1.0
    scores = many * q_len * s * (1.0 if half else 2.0)
    rate = hardware.memory_bandwidth_gb_per_s * 1e3 * STREAM_SHARE
    return (
        float(times[:2].sum()) * slow + scores * SCORE_BYTES[0] / rate,
        float(times[2:].sum()) * slow + scores * SCORE_BYTES[1] / rate,
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
        forward += m * 3 * (2 * h + heads + inner)
        backward += m * 6 * (2 * h + heads + inner)
    wide = 2.0 if plan.dtype in ("float32", "tf32") else 1.0
    return forward * wide, backward * wide


def _products_us(products: list[Product], dtype: str, hardware: Hardware) -> np.ndarray:
    rows = np.zeros((len(products), MAX_DIMS))
    rows[:, :4] = products
    return device_time(_batch("gemm", rows, dtype), hardware).total_us


def _batch(family: str, rows: np.ndarray, dtype: str) -> OpBatch:
    n = len(rows)
    return OpBatch(
        np.full(n, family_index(family), np.int16),
        rows,
        np.full(n, DTYPES.index(dtype), np.int8),
        np.ones(n, np.bool_),
    )
