"""Communication between ranks; its time comes from `gnnperf.analytic.collectives`."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family

KINDS: tuple[str, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
    "barrier",
)
"""What the dimension `kind` indexes; the names of `graph.Collectives.kind`."""


def _cost(dims: F64, dtype: I8) -> Cost:
    """What one rank puts in is read, what it gets out is written; reductions are not counted."""
    _, entering, leaving = dims[:, :3].T
    return Cost(
        flops=np.zeros(len(dims)),
        bytes_read=entering,
        bytes_written=leaving,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=leaving,
    )


FAMILY = Family(
    "collective",
    ("kind", "input_bytes", "output_bytes", "group_size", "nodes"),
    _cost,
    ("input_bytes", "output_bytes"),
)
