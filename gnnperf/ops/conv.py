"""Convolutions in one or two dimensions, forward and both gradients.

A three-dimensional one enters with its depth folded into the batch (output depth) and its kernel
depth into the channels, which keeps the FLOPs.
"""

import math
from dataclasses import dataclass

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.call import (
    FLOAT32,
    TF32,
    Call,
    MissingShapeError,
    Parser,
    TensorSpec,
    Work,
    base_name,
    compute_dtype,
)

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


@dataclass(frozen=True)
class _Signature:
    """Where a convolution op keeps its arguments (None: it has no such argument)."""

    x: int | None = 0
    weight: int | None = 1
    gradient: int | None = None
    """gradient of the output, in backward ops"""
    stride: int = 3
    padding: int = 4
    dilation: int | None = 5
    transposed: int | None = None
    groups: int | None = None
    mask: int | None = None
    """which gradients are wanted: of input, weight, bias"""
    is_transposed: bool = False


def _sides(shape: tuple[int, ...]) -> list[int]:
    """Spatial sizes as [depth, height, width]."""
    return [1] * (5 - len(shape)) + list(shape[2:])


def _triple(call: Call, at: int | None, rank: int, missing: int) -> list[int] | None:
    """A per-axis argument as [depth, height, width]; `missing` fills absent axes."""
    if at is None:
        return [missing] * 3
    found = call.ints(at, rank)
    return None if found is None else [missing] * (3 - rank) + found


def _infer(call: Call, x: list[int], out: list[int] | None, reach: list[int]) -> list[list[int]]:
    """Stride and padding from sizes of input and output; without an output, assumed."""
    if out is None:
        call.assume("convolution of stride 1 that keeps the size")
        return [[1] * 3, [r // 2 for r in reach]]
    stride = [max(round(a / max(b, 1)), 1) for a, b in zip(x, out, strict=True)]
    padding = [
        max(math.ceil(((b - 1) * s + r + 1 - a) / 2), 0)
        for a, b, s, r in zip(x, out, stride, reach, strict=True)
    ]
    return [stride, padding]


def _direction(call: Call, signature: _Signature) -> int:
    if signature.gradient is None:
        return 0
    if signature.mask is None:
        return 3
    mask = call.value(signature.mask)
    if not isinstance(mask, list | tuple) or len(mask) < 2:
        call.assume("both gradients of a convolution")
        return 3
    return max(1 * bool(mask[0]) + 2 * bool(mask[1]), 1)


def _parser(signature: _Signature) -> Parser:
    def parse(call: Call) -> Work:
        x, weight = call.tensor(signature.x or 0), call.tensor(signature.weight or 0)
        if not 3 <= len(x.shape) <= 5 or len(weight.shape) != len(x.shape):
            raise MissingShapeError(f"{call.name}: {x.shape} with {weight.shape} is no convolution")
        transposed = signature.is_transposed or (
            signature.transposed is not None and call.value(signature.transposed) is True
        )
        sides, kernel = _sides(x.shape), _sides(weight.shape)
        rank = len(x.shape) - 2
        dilation = _triple(call, signature.dilation, rank, 1) or [1] * 3
        reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        stride = _triple(call, signature.stride, rank, 1)
        padding = _triple(call, signature.padding, rank, 0)
        if stride is None or padding is None:
            stride, padding = _infer(call, sides, _output(call, signature), reach)
        per_group = weight.shape[0] if transposed else weight.shape[1]
        groups = x.shape[1] // max(per_group, 1) if not transposed else _groups(call, signature)
        depth = max((sides[0] + 2 * padding[0] - reach[0] - 1) // max(stride[0], 1) + 1, 1)
        dims = (
            x.shape[0] * depth,
            x.shape[1] * kernel[0],
            weight.shape[1] * groups if transposed else weight.shape[0],
            *sides[1:],
            *kernel[1:],
            *stride[1:],
            *padding[1:],
            *dilation[1:],
            groups,
            _direction(call, signature),
            transposed,
        )
        dtype = compute_dtype([x])
        return Work("conv", tuple(map(float, dims)), TF32 if dtype == FLOAT32 else dtype)

    return parse


def _groups(call: Call, signature: _Signature) -> int:
    value = call.value(signature.groups) if signature.groups is not None else None
    if isinstance(value, int):
        return value
    call.assume("transposed convolution of one group")
    return 1


def _output(call: Call, signature: _Signature) -> list[int] | None:
    """Spatial sizes of the forward op's output, if the trace holds them."""
    if signature.gradient is not None:
        return _sides(call.tensor(signature.gradient).shape)
    return _sides(call.outputs[0].shape) if call.outputs else None


def gradient_shapes(call: Call) -> tuple[tuple[int, ...], tuple[int, ...], TensorSpec] | None:
    """Shapes of input and weight and the output's gradient, of a backward op; None for others."""
    signature = _BACKWARD.get(base_name(call.name))
    if signature is None:
        return None
    try:
        x, weight, gradient = (
            call.tensor(at or 0) for at in (signature.x, signature.weight, signature.gradient)
        )
    except MissingShapeError:
        return None
    return x.shape, weight.shape, gradient


_PLAIN = _Signature(transposed=6, groups=8)
_LIBRARY = _Signature(stride=4, padding=3, groups=6)
_CUDNN = _Signature(stride=3, padding=2, dilation=4, groups=5)
_KERNEL = _Signature(stride=4, padding=5, dilation=6)
_BACKWARD = {
    "convolution_backward": _Signature(1, 2, 0, 4, 5, 6, 7, 9, 10),
    "convolution_backward_overrideable": _Signature(1, 2, 0, 3, 4, 5, 6, 8, 9),
    "cudnn_convolution_backward": _Signature(0, 2, 1, 4, 3, 5, None, 6, 10),
    "miopen_convolution_backward": _Signature(0, 2, 1, 4, 3, 5, None, 6, 9),
    "mkldnn_convolution_backward": _Signature(0, 2, 1, 4, 3, 5, None, 6, 8),
}


def _cudnn(call: Call) -> Work:
    """An older overload holds the bias before the padding."""
    return (_parser(_LIBRARY) if call.has_tensor(2) else _parser(_CUDNN))(call)


PARSERS: dict[str, Parser] = {
    "convolution": _parser(_PLAIN),
    "_convolution": _parser(_PLAIN),
    "convolution_overrideable": _parser(_PLAIN),
    "conv1d": _parser(_Signature(groups=6)),
    "conv2d": _parser(_Signature(groups=6)),
    "conv3d": _parser(_Signature(groups=6)),
    "cudnn_convolution": _cudnn,
    "cudnn_convolution_relu": _parser(_Signature(groups=6)),
    "cudnn_convolution_add_relu": _parser(_Signature(stride=5, padding=6, dilation=7)),
    "cudnn_convolution_transpose": _parser(
        _Signature(stride=4, padding=2, dilation=5, groups=6, is_transposed=True)
    ),
    "miopen_convolution": _parser(_LIBRARY),
    "miopen_depthwise_convolution": _parser(_LIBRARY),
    "mkldnn_convolution": _parser(_LIBRARY),
    "_convolution_pointwise": _parser(_LIBRARY),
    "_slow_conv2d_forward": _parser(_Signature(stride=4, padding=5, dilation=None)),
    "thnn_conv2d": _parser(_Signature(stride=4, padding=5, dilation=None)),
    "_conv_depthwise2d": _parser(_KERNEL),
    "conv_depthwise3d": _parser(_KERNEL),
    "slow_conv_dilated2d": _parser(_KERNEL),
    **{name: _parser(signature) for name, signature in _BACKWARD.items()},
}
