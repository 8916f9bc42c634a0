"""Sums, means, maxima, norms: `in_numel` elements to `out_numel`, `reduced` into each."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes


def _cost(dims: F64, dtype: I8) -> Cost:
    """Every input element once."""
    in_numel, out_numel, _, flops = dims[:, :4].T
    size = element_bytes(dtype)
    return Cost(
        flops=in_numel * flops,
        bytes_read=size * in_numel,
        bytes_written=size * out_numel,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=in_numel,
    )


FAMILY = Family(
    "reduce",
    ("in_numel", "out_numel", "reduced", "flops_per_element"),
    _cost,
    ("in_numel", "out_numel"),
)
