"""One output element from one element of each input: arithmetic, activations, casts, fills."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes as given: inputs before broadcasting, since a repeated element is read once."""
    numel, read, written, flops = dims[:, :4].T
    return Cost(
        flops=numel * flops,
        bytes_read=read,
        bytes_written=written,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family(
    "elementwise",
    (
        "numel",
        "bytes_read",
        "bytes_written",
        "flops_per_element",
        "inputs",
        "strided",
        "special",
    ),
    _cost,
    ("numel", "bytes_read", "bytes_written"),
)
