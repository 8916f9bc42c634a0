"""Work that no family knows: the bytes of its tensors, and counted as unknown."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes as given; one operation per element, so that no op is free."""
    read, written, numel = dims[:, :3].T
    return Cost(
        flops=numel.copy(),
        bytes_read=read,
        bytes_written=written,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family(
    "other",
    ("bytes_read", "bytes_written", "numel"),
    _cost,
    ("bytes_read", "bytes_written", "numel"),
)
