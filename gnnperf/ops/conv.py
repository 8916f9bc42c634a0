"""Convolutions in one or two dimensions, forward and both gradients.

A three-dimensional one enters with its depth folded into the batch (output depth) and its kernel
depth into the channels, which keeps the FLOPs.
"""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes

DIMS = (
    "batch",
    "in_channels",
    "out_channels",
    "in_h",
    "in_w",
    "kernel_h",
    "kernel_w",
    "stride_h",
    "stride_w",
    "pad_h",
    "pad_w",
    "dilation_h",
    "dilation_w",
    "groups",
    "direction",
    "transposed",
)


def output_size(dims: F64) -> tuple[F64, F64]:
    """Height and width of the output, each [n] (of the forward op, whatever the direction)."""
    sides = []
    for axis in (0, 1):
        size, kernel, stride, pad, dilation = (dims[:, 3 + axis + 2 * i] for i in range(5))
        stride, reach = np.maximum(stride, 1), dilation * (kernel - 1)
        plain = np.floor((size + 2 * pad - reach - 1) / stride) + 1
        grown = (size - 1) * stride - 2 * pad + reach + 1
        sides.append(np.maximum(np.where(dims[:, 15] > 0, grown, plain), 0))
    return sides[0], sides[1]


def _cost(dims: F64, dtype: I8) -> Cost:
    """The direct algorithm's FLOPs; each gradient costs as many as the forward pass."""
    batch, channels, out_channels, in_h, in_w, kernel_h, kernel_w = dims[:, :7].T
    groups, direction, transposed = np.maximum(dims[:, 13], 1), dims[:, 14], dims[:, 15] > 0
    out_h, out_w = output_size(dims)
    x = batch * channels * in_h * in_w
    y = batch * out_channels * out_h * out_w
    w = channels * out_channels / groups * kernel_h * kernel_w
    positions = batch * np.where(transposed, in_h * in_w, out_h * out_w)
    both, of_input, of_weight = direction == 3, direction == 1, direction == 2
    size = element_bytes(dtype)
    written = np.select([both, of_input, of_weight], [x + w, x, w], y)
    return Cost(
        flops=2 * positions * w * np.where(both, 2, 1),
        bytes_read=size * np.select([both, of_input, of_weight], [x + y + w, y + w, x + y], x + w),
        bytes_written=size * written,
        tensor_path=np.ones(len(dims), np.bool_),
        parallel_items=written,
    )


FAMILY = Family("conv", DIMS, _cost, ("batch",))
