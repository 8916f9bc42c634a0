"""The ops of aiconfigurator's tables as dimensions of families."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnperf.data.importers.base import groups, numbers, texts
from gnnperf.data.tables import F64, Names, family_dims
from gnnperf.graph import dtype_bytes, dtype_index

MLA_LATENT, MLA_HEAD = 512, 128
"""sizes of the latent attention of DeepSeek, which the batched products of `mla_bmm` belong to"""
CONV_WIDTH, MAMBA_GROUPS, MAMBA_STATE = 4, 8, 128
"""taps of the causal convolution; groups and state of mamba2, which the tables do not state"""
KEYS_ALONE = "0.5.10"
"""version of SGLang whose causal convolutions of delta nets hold no queries and values"""


@dataclass(frozen=True)
class Shape:
    """Rows of one op as dimensions of a family."""

    family: str
    label: str
    dims: F64
    sizes: tuple[F64, ...]
    """what must be positive"""
    group: Names


class Columns:
    """The columns of rows of one op under the tidy table's names."""

    def __init__(self, table: Any, names: dict[str, str] | None = None) -> None:  # noqa: ANN401
        self._table, self._names = table, names or {}

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, name: str) -> F64:
        return numbers(self._table, self._names.get(name, name))

    def zeroed(self, name: str) -> F64:
        """A size whose absence means 0."""
        return np.nan_to_num(self[name])

    def text(self, name: str) -> Names:
        """A column of names."""
        return texts(self._table, self._names.get(name, name))


def _gemm(c: Columns) -> Shape:
    m, n, k = c["m"], c["n"], c["k"]
    dims = family_dims("gemm", len(c), batch=1, m=m, n=n, k=k, b_transposed=1, variant=1)
    return Shape("gemm", "gemm", dims, (m, n, k), groups("gemm", n=n, k=k))


def _attention(c: Columns, causal: bool, decode: bool = False) -> Shape:
    batch, heads, kv_heads, head = (c[n] for n in ("batch", "q_heads", "kv_heads", "head_dim"))
    seq, step, window = c["seq"], c.zeroed("step"), c.zeroed("window")
    kv_type = c.text("kv_dtype")
    kv_bytes = kv_type.lookup({n: dtype_bytes(dtype_index(n)) for n in kv_type.names}, 0.0)
    dims = family_dims(
        "attention",
        len(c),
        batch=batch,
        q_heads=heads,
        kv_heads=kv_heads,
        q_len=seq,
        kv_len=seq + step,
        head_dim=head,
        v_head_dim=head,
        causal=float(causal),
        window=window,
        flash=1,
        kv_bytes=kv_bytes,
    )
    phase = "decode" if decode else "prefill" if causal else "encoder"
    group = groups(f"attention {phase}", q_heads=heads, kv_heads=kv_heads, head_dim=head)
    return Shape("attention", "attention", dims, (batch, heads, kv_heads, seq, head), group)


def _moe(c: Columns) -> Shape:
    tokens, hidden, inter, experts = (c[n] for n in ("m", "hidden", "inter", "experts"))
    top_k, tensor, expert = c["topk"], c["moe_tp"], c["moe_ep"]
    spread, source = c.text("distribution"), c.text("kernel_source")
    skew = {n: float(n.rpartition("_")[2]) for n in spread.names if n.startswith("power_law_")}
    dims = family_dims(
        "moe",
        len(c),
        tokens=tokens,
        hidden=hidden,
        inter=inter,
        experts=experts,
        top_k=top_k,
        tensor_parallel=tensor,
        expert_parallel=expert,
        skew=spread.lookup(skew, 0.0),
        gated=source.lookup({n: 0.0 for n in source.names if "nongated" in n}, 1.0),
    )
    group = groups("moe", hidden=hidden, inter=inter, experts=experts, top_k=top_k)
    return Shape("moe", "moe", dims, (tokens, hidden, inter, experts, top_k, tensor, expert), group)


def _mla(c: Columns) -> Shape:
    heads, m = c["q_heads"], c["m"]
    up = c.text("variant").mask("mla_gen_pre")
    n, k = np.where(up, MLA_LATENT, MLA_HEAD), np.where(up, MLA_HEAD, MLA_LATENT)
    dims = family_dims("gemm", len(c), batch=heads, m=m, n=n, k=k, variant=2)
    return Shape("gemm", "bmm", dims, (heads, m), groups("mla_bmm", heads=heads, n=n, k=k))


def _quantize(c: Columns) -> Shape:
    rows, cols = c["m"], c["k"]
    numel = rows * cols
    dims = family_dims(
        "quantize", len(c), rows=rows, cols=cols, bytes_read=2 * numel, bytes_written=numel
    )
    return Shape("quantize", "quantize", dims, (rows, cols), groups("quantize", cols=cols))


def _delta_net(c: Columns) -> Shape:
    batch, seq, head, heads = (c[n] for n in ("batch", "seq", "head_dim", "kv_heads"))
    channels = (2 * c["q_heads"] + heads) * head
    state = family_dims(
        "recurrent",
        len(c),
        batch=batch,
        length=seq,
        heads=heads,
        head_dim=head,
        state_dim=head,
        kind=2,
    )
    group = groups("gated delta net", q_heads=c["q_heads"], kv_heads=heads, hidden=c["hidden"])
    return Shape("recurrent", "recurrent", state, (batch, seq, head, heads, channels), group)


def _causal_conv(c: Columns) -> Shape:
    """The TensorRT-LLM collector, and SGLang's up to 0.5.10, convolve a delta net's keys alone.

    TensorRT-LLM's states it; in SGLang's rows the time does not depend on the value heads.
    """
    batch, seq, head, heads = (c[n] for n in ("batch", "seq", "head_dim", "q_heads"))
    delta_net = c.zeroed("kv_heads") > 0
    keys_alone = c.text("framework").mask("trtllm") | c.text("version").mask(KEYS_ALONE)
    of_delta_net = np.where(keys_alone, heads, 2 * heads + c.zeroed("kv_heads")) * head
    channels = np.where(delta_net, of_delta_net, heads * head + 2 * MAMBA_GROUPS * MAMBA_STATE)
    dims = family_dims(
        "conv",
        len(c),
        batch=batch,
        in_channels=channels,
        out_channels=channels,
        in_h=1,
        in_w=seq + CONV_WIDTH - 1,
        kernel_h=1,
        kernel_w=CONV_WIDTH,
        stride_h=1,
        stride_w=1,
        dilation_h=1,
        dilation_w=1,
        groups=channels,
    )
    return Shape("conv", "conv", dims, (batch, seq, head, heads), groups("conv", channels=channels))


SHAPES: dict[str, Callable[[Columns], Shape]] = {
    "gemm": _gemm,
    "attn_context": lambda c: _attention(c, causal=True),
    "attn_encoder": lambda c: _attention(c, causal=False),
    "attn_generation": lambda c: _attention(c, causal=True, decode=True),
    "moe": _moe,
    "mla_bmm": _mla,
    "quant_scale_matrix": _quantize,
    "gdn": _delta_net,
    "mamba2": _causal_conv,
}
