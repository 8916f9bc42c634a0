"""Normalizations: `rows` groups whose `cols` elements share a mean and a variance.

Layer and RMS norm: rows = tokens, cols = features. Batch norm: rows = channels, cols = all other
elements of a channel. Group norm: rows = batch x groups.
"""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes

LAYER, RMS, BATCH, GROUP = range(4)


def _cost(dims: F64, dtype: I8) -> Cost:
    """Batch norm reads its input twice: statistics come before the first normalized element."""
    rows, cols, kind, direction, affine = dims[:, :5].T
    numel, size, batch, backward = rows * cols, element_bytes(dtype), kind == BATCH, direction > 0
    parameters = affine * np.where(batch, rows, np.where(kind == GROUP, 0, cols))
    passes = np.where(batch, 2, 1)
    statistics = 4 * rows * np.where(kind == RMS, 1, 2)
    forward_flops = np.where(kind == RMS, 5, 8)
    return Cost(
        flops=numel * np.where(backward, 2 * forward_flops, forward_flops),
        bytes_read=size * (passes * numel * np.where(backward, 2, 1) + 2 * parameters)
        + np.where(backward, statistics, 0),
        bytes_written=size * numel + np.where(backward, 2 * size * parameters, statistics),
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family("norm", ("rows", "cols", "kind", "direction", "affine"), _cost, ("rows",))
