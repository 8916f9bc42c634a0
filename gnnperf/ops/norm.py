"""Normalizations: `rows` groups whose `cols` elements share a mean and a variance.

Layer and RMS norm: rows = tokens, cols = features. Batch norm: rows = channels, cols = all other
elements of a channel. Group norm: rows = batch x groups.
"""

import math

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.call import Call, MissingShapeError, Parser, Work, compute_dtype

LAYER, RMS, BATCH, GROUP = range(4)


def _cost(dims: F64, dtype: I8) -> Cost:
    """Batch norm reads its input twice: statistics come before the first normalized element.

    So does the backward pass of any norm with weights: their gradients are sums over rows.
    """
    rows, cols, kind, direction, affine = dims[:, :5].T
    numel, size, batch, backward = rows * cols, element_bytes(dtype), kind == BATCH, direction > 0
    parameters = affine * np.where(batch, rows, np.where(kind == GROUP, 0, cols))
    passes = np.where(batch | (backward & (affine > 0)), 2, 1)
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


def _rows(call: Call, x_at: int, shape_at: int, kind: int, direction: int) -> Work:
    """Layer and RMS norm: the normalized shape by value, else by the weight behind it."""
    x, cols = call.tensor(x_at), 0
    sizes = call.value(shape_at)
    if isinstance(sizes, list | tuple):
        cols = math.prod(int(s) for s in sizes)
    weights = [t for arg in call.args[shape_at + 1 :] for t in arg if t.shape == x.shape[-1:]]
    if not cols:
        cols = x.shape[-1] if x.shape else 1
        if not weights:
            call.assume("norm over the last dimension")
    dims = (x.numel / max(cols, 1), cols, kind, direction, bool(weights))
    return Work("norm", tuple(map(float, dims)), compute_dtype([x]))


def _channels(call: Call, x_at: int, direction: int) -> Work:
    x = call.tensor(x_at)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    dims = (channels, x.numel / max(channels, 1), BATCH, direction, 1)
    return Work("norm", tuple(map(float, dims)), compute_dtype([x]))


def _batch(training_at: int) -> Parser:
    def parse(call: Call) -> Work:
        if call.flag(training_at, "batch norm training", otherwise=True):
            return _channels(call, 0, 0)
        x = call.tensor(0)
        dims = (x.numel, x.nbytes, x.nbytes, 4, 1, not x.contiguous, 0)
        return Work("elementwise", tuple(map(float, dims)), compute_dtype([x]))

    return parse


def _group(call: Call) -> Work:
    x = call.tensor(0)
    groups = call.value(6)
    if not isinstance(groups, int):
        raise MissingShapeError("group norm: number of groups not recorded")
    rows = x.shape[0] * groups
    return Work("norm", (rows, x.numel / max(rows, 1), GROUP, 0, 1), compute_dtype([x]))


def _group_backward(call: Call) -> Work:
    x, mean = call.tensor(1), call.tensor(2)
    dims = (mean.numel, x.numel / max(mean.numel, 1), GROUP, 1, 1)
    return Work("norm", tuple(map(float, dims)), compute_dtype([x]))


PARSERS: dict[str, Parser] = {
    "native_layer_norm": lambda c: _rows(c, 0, 1, LAYER, 0),
    "native_layer_norm_backward": lambda c: _rows(c, 1, 2, LAYER, 1),
    "rms_norm": lambda c: _rows(c, 0, 1, RMS, 0),
    "_fused_rms_norm": lambda c: _rows(c, 0, 1, RMS, 0),
    "_fused_rms_norm_backward": lambda c: _rows(c, 1, 2, RMS, 1),
    "batch_norm": _batch(5),
    "native_batch_norm": _batch(5),
    "cudnn_batch_norm": _batch(5),
    "miopen_batch_norm": _batch(5),
    "_native_batch_norm_legit": _batch(5),
    "_batch_norm_with_update": lambda c: _channels(c, 0, 0),
    "native_batch_norm_backward": lambda c: _channels(c, 1, 1),
    "cudnn_batch_norm_backward": lambda c: _channels(c, 0, 1),
    "miopen_batch_norm_backward": lambda c: _channels(c, 0, 1),
    "batch_norm_backward": lambda c: _channels(c, 1, 1),
    "native_group_norm": _group,
    "native_group_norm_backward": _group_backward,
}
