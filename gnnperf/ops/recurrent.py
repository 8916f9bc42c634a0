"""Recurrences over a sequence: RNN cells, mamba2, gated delta nets."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes

CELL, MAMBA2, GATED_DELTA = range(3)


def _cost(dims: F64, dtype: I8) -> Cost:
    """Per step and head: decay, outer-product update, read-out of a [head_dim, state_dim] state.

    A cell (kind 0) has no matrix state: some 20 operations per element, four gates read.
    Backward does twice the work and reads the gradient besides.
    """
    batch, length, heads, head, state, kind, direction = dims[:, :7].T
    steps, factor = batch * length * heads, 1 + direction
    cell, size = kind == CELL, element_bytes(dtype)
    values = steps * head
    return Cost(
        flops=factor * np.where(cell, 20 * values, 6 * values * state),
        bytes_read=size
        * factor
        * np.where(cell, 5 * values, 3 * values + 2 * steps / np.maximum(heads, 1) * state),
        bytes_written=size * factor * np.where(cell, 2 * values, values)
        + np.where(cell, 0, 4 * batch * heads * head * state),
        tensor_path=~cell,
        parallel_items=np.where(cell, values, batch * heads * head * np.maximum(state, 1)),
    )


FAMILY = Family(
    "recurrent",
    ("batch", "length", "heads", "head_dim", "state_dim", "kind", "direction"),
    _cost,
    ("batch",),
)
