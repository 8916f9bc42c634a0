"""A transformer and the plan by which its training is spread over GPUs."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gnnperf.config import from_mapping, read_yaml

DEFAULT_VOCAB = 51200
"""GPT-2's 50257 entries padded as Megatron does; taken where neither name nor size tell another"""


@dataclass(frozen=True)
class Transformer:
    """Shapes of a transformer; every layer is like the others."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int = 0
    """0: as many as heads"""
    head_dim: int = 0
    """0: hidden / heads"""
    ffn: int = 0
    """0: 4 hidden"""
    gated: bool = False
    """an MLP of three matrices (SwiGLU), not two"""
    experts: int = 1
    top_k: int = 1
    vocab: int = DEFAULT_VOCAB
    causal: bool = True

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def query_width(self) -> int:
        """Of all heads together."""
        return self.heads * self.head

    @property
    def kv_width(self) -> int:
        """Of all keys together; as wide as all values."""
        return (self.kv_heads or self.heads) * self.head

    @property
    def inner(self) -> int:
        """Width of the MLP."""
        return self.ffn or 4 * self.hidden

    @property
    def attention_params(self) -> int:
        """Of one layer."""
        return self.hidden * (2 * self.query_width + 2 * self.kv_width)

    @property
    def expert_params(self) -> int:
        """Of one expert of one layer (of the MLP where there are none)."""
        return (3 if self.gated else 2) * self.hidden * self.inner

    @property
    def params(self) -> int:
        """Of the whole model, embedding counted once."""
        layer = self.attention_params + self.experts * self.expert_params
        return self.layers * layer + self.vocab * self.hidden

    @property
    def active_params(self) -> int:
        """That one token meets."""
        layer = self.attention_params + self.top_k * self.expert_params
        return self.layers * layer + self.vocab * self.hidden


@dataclass(frozen=True)
class Plan:
    """How one training step is spread over GPUs."""

    gpus: int
    global_batch: int
    """sequences a step"""
    micro_batch: int
    """sequences that one pipeline stage works on at a time"""
    seq: int
    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    virtual: int = 1
    """model chunks a pipeline stage holds (interleaved schedule)"""
    recompute: str = "none"
    """none, selective (the attention core), full (every layer's forward)"""
    dtype: str = "bfloat16"
    """of the linear layers: float32, tf32, float16, bfloat16, float8, float4"""
    flash: bool = True
    """attention without the score matrix in memory"""
    sequence_parallel: bool = False
    sharding: str = "none"
    """none, optimizer (ZeRO 1), gradients (parameters gathered once a step), full (FSDP)"""
    overlap: bool = True
    """gradients are reduced while the backward runs"""
    optimizer: bool = True
    frozen: bool = False
    """weights are not trained (adapters are, which cost next to nothing): no weight gradients"""

    @property
    def micro_batches(self) -> int:
        """A pipeline's number of micro-batches in a step."""
        return max(1, round(self.global_batch / (self.data * self.micro_batch)))

    @property
    def tokens(self) -> float:
        """Of one micro-batch on one rank."""
        return self.micro_batch * self.seq / self.context


@lru_cache(maxsize=1)
def published_models() -> dict[str, Transformer]:
    """The transformers of `plan_models.yaml` by the letters and digits of their names."""
    path = Path(__file__).with_name("plan_models.yaml")
    data = read_yaml(path)
    return {model_key(k): from_mapping(Transformer, v, path, f"{k}.") for k, v in data.items()}


def model_key(name: str) -> str:
    """Letters and digits of a name, without remarks in parentheses and words of the purpose."""
    plain = re.sub(r"\(.*?\)|pretrain(ing)?|-?hf\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]", "", plain)


def shape_of_size(params: float, pipeline: int, heads: int = 0) -> Transformer:
    """A usual GPT of so many parameters, for tables that state only those.

    Layers grow with the cube root (96 at 175e9, Brown et al. 2020), in whole layers a pipeline
    stage; hidden follows from 12 layers hidden^2, in heads of 128 or, where their number is
    known, of a multiple of 8.
    """
    depth = 96 * (params / 175e9) ** (1 / 3)
    layers = max(1, round(depth / pipeline)) * pipeline
    unit = 8 * heads if heads else 128
    hidden = max(1, round((params / 12 / layers) ** 0.5 / unit)) * unit
    return Transformer(hidden, layers, heads or hidden // 128)
