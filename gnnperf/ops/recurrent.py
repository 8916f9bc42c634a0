"""Recurrences over a sequence: RNN cells, mamba2, gated delta nets."""

import math

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.call import Call, MissingShapeError, Parser, Work, compute_dtype

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


def _rnn(call: Call) -> Work:
    """CuDNN's or MIOpen's recurrent network over a whole sequence [length, batch, features]."""
    x = call.tensor(0)
    if len(x.shape) != 3:
        raise MissingShapeError(f"{call.name}: input {x.shape} is no sequence")
    weights = sum(t.numel for t in call.args[1]) if len(call.args) > 1 else 0
    length, batch, features = x.shape
    hidden = math.sqrt(max(weights, 1) / 8) if weights else features
    call.assume("recurrent network with the hidden size of a one-layer LSTM of its weights")
    dims = (batch, length, 1.0, hidden, hidden, CELL, float("backward" in call.name))
    return Work("recurrent", tuple(map(float, dims)), compute_dtype([x]))


def _cell(call: Call) -> Work:
    """The pointwise part of an LSTM or GRU cell; its gates are [batch, gates x hidden]."""
    gates = call.tensor(0)
    hidden = gates.shape[-1] / 4
    dims = (gates.shape[0], 1.0, 1.0, hidden, 0.0, CELL, float("backward" in call.name))
    return Work("recurrent", tuple(map(float, dims)), compute_dtype([gates]))


PARSERS: dict[str, Parser] = {
    **dict.fromkeys(("_cudnn_rnn", "miopen_rnn", "mkldnn_rnn_layer", "_cudnn_rnn_backward"), _rnn),
    **dict.fromkeys(("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"), _cell),
    "_thnn_fused_lstm_cell_backward_impl": _cell,
    "_thnn_fused_gru_cell_backward": _cell,
}
