"""The analytic prior of any row: one fitted expression for each kind of work."""

import torch
from torch import Tensor, nn

from gnnperf.errors import GnnperfError
from gnnperf.features import TERMS, variant_parents, variant_technologies
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior_attention import AttentionPrior
from gnnperf.nn.prior_base import Prior
from gnnperf.nn.prior_decode import DECODE_QUERIES, DecodePrior
from gnnperf.nn.prior_experts import ExpertsPrior
from gnnperf.nn.prior_grouped import GroupedPrior
from gnnperf.nn.prior_matrix import MatrixPrior
from gnnperf.nn.prior_memory import FAMILIES, MemoryPrior
from gnnperf.nn.prior_processor import ProcessorPrior
from gnnperf.nn.prior_stream import StreamPrior
from gnnperf.ops import family_index

KINDS: tuple[str, ...] = (
    "tensor16",
    "tensor8",
    "vector",
    "vector_batched",
    "vector_conv",
    "attention",
    "decode",
    "experts",
    "grouped",
    "elementwise",
    "norm",
    "softmax",
    "recurrent",
    "stream",
    "processor",
)
"""The kinds of work that have an expression of their own; `kind_of` indexes it."""


_ALONE = ("elementwise", "norm", "softmax", "recurrent")
"""families that move bytes and have coefficients of their own"""


def kind_of(x: Inputs) -> Tensor:
    """[n] index into KINDS."""
    d = x.dims
    kind = torch.full((len(x),), KINDS.index("stream"), dtype=torch.int64)
    for name in _ALONE:
        kind[x.family == family_index(name)] = KINDS.index(name)
    depthwise = (d[:, 13] > 1) & (d[:, 2] / d[:, 13].clamp(min=1.0) < 8)
    product = (x.family == family_index("gemm")) | ((x.family == family_index("conv")) & ~depthwise)
    kind[product] = KINDS.index("vector")
    kind[product & (d[:, 0] > 1)] = KINDS.index("vector_batched")
    kind[product & (x.family == family_index("conv"))] = KINDS.index("vector_conv")
    kind[product & x.matrix & (x.element <= 2)] = KINDS.index("tensor16")
    tf32 = x.matrix & (x.element > 2) & (x.peak > 4 * x.figure("vector_peak"))
    kind[product & tf32] = KINDS.index("tensor16")
    kind[product & x.matrix & (x.element <= 1)] = KINDS.index("tensor8")
    fused = (x.family == family_index("attention")) & (d[:, 9] > 0)
    kind[fused] = KINDS.index("attention")
    kind[fused & (d[:, 3] <= DECODE_QUERIES) & (d[:, 4] > d[:, 3])] = KINDS.index("decode")
    kind[x.family == family_index("moe")] = KINDS.index("experts")
    kind[x.family == family_index("moe_gemm")] = KINDS.index("grouped")
    kind[x.figure("gpu") < 0.5] = KINDS.index("processor")
    return kind


def _make(kind: str, devices: int, variants: tuple[str, ...]) -> Prior:
    parents = variant_parents(variants)
    if kind in ("decode", "experts"):
        libraries = DecodePrior if kind == "decode" else ExpertsPrior
        return libraries(devices, parents, variant_technologies(variants))
    if kind in ("attention", "grouped"):
        return (AttentionPrior if kind == "attention" else GroupedPrior)(devices, parents)
    if kind.startswith(("tensor", "vector")):
        return MatrixPrior(kind, devices, parents)
    if kind == "processor":
        return ProcessorPrior(devices, parents)
    if kind in FAMILIES:
        return MemoryPrior(kind, devices, parents)
    return StreamPrior(devices, parents)


class AnalyticPrior(nn.Module):
    """Log time in us and terms of rows of any family."""

    def __init__(self, devices: int, variants: tuple[str, ...]) -> None:
        super().__init__()
        self.kinds = nn.ModuleDict({kind: _make(kind, devices, variants) for kind in KINDS})

    def of_kind(self, index: int) -> Prior:
        """The expression of a kind of work."""
        prior = self.kinds[KINDS[index]]
        if not isinstance(prior, Prior):
            raise GnnperfError(f"{KINDS[index]} is no prior")
        return prior

    def forward(self, x: Inputs) -> Tensor:
        """[n, len(TERMS)]: log time first, then what `features.TERMS` says."""
        kind = kind_of(x)
        result = torch.zeros(len(x), len(TERMS))
        for index in torch.unique(kind).tolist():
            rows = torch.nonzero(kind == index).squeeze(1)
            terms = self.of_kind(index).terms(x.take(rows)).features()
            result = result.index_put((rows,), terms)
        return result
