"""Op families: what a piece of work asks of a device, from its dimensions and element type."""

from gnnperf.ops import (
    attention,
    collective,
    conv,
    copy,
    elementwise,
    embedding,
    gather,
    gemm,
    moe,
    moe_gemm,
    norm,
    optimizer,
    other,
    pool,
    quantize,
    recurrent,
    reduce,
    softmax,
    sort,
    triton,
)
from gnnperf.ops.base import (
    FAMILIES,
    MAX_DIMS,
    Cost,
    Family,
    OpBatch,
    batch_cost,
    dim_index,
    element_bytes,
    family_index,
    family_names,
)
from gnnperf.ops.copy import crosses_link
from gnnperf.ops.describe import Description, describe
from gnnperf.ops.leaf import leaf_ops
from gnnperf.ops.lower import lower

_IN_ORDER = (
    gemm,
    conv,
    attention,
    norm,
    softmax,
    reduce,
    elementwise,
    pool,
    embedding,
    gather,
    sort,
    copy,
    moe,
    moe_gemm,
    recurrent,
    optimizer,
    triton,
    quantize,
    collective,
    other,
)
for _module in _IN_ORDER:
    FAMILIES.register(_module.FAMILY.name)(_module.FAMILY)

__all__ = [
    "FAMILIES",
    "MAX_DIMS",
    "Cost",
    "Description",
    "Family",
    "OpBatch",
    "batch_cost",
    "crosses_link",
    "describe",
    "dim_index",
    "element_bytes",
    "family_index",
    "family_names",
    "leaf_ops",
    "lower",
]
