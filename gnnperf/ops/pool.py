"""Pooling and interpolation: each of `out_numel` outputs sees `window` inputs."""

import math

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.call import Call, Parser, TensorSpec, Work, compute_dtype


def _cost(dims: F64, dtype: I8) -> Cost:
    """Backward reads the output's gradient and writes the input's."""
    out_numel, window, in_numel, direction = dims[:, :4].T
    backward, size = direction > 0, element_bytes(dtype)
    return Cost(
        flops=out_numel * window,
        bytes_read=size * np.where(backward, out_numel, in_numel),
        bytes_written=size * np.where(backward, in_numel, out_numel),
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=np.where(backward, in_numel, out_numel),
    )


FAMILY = Family(
    "pool", ("out_numel", "window", "in_numel", "direction"), _cost, ("out_numel", "in_numel")
)


def _forward(call: Call) -> Work:
    x = call.tensor(0)
    if call.outputs:
        out = call.outputs[0].numel
    else:
        out = x.numel // math.prod(x.shape[-2:]) * math.prod(_output_sides(call, x))
    kernel = call.ints(1, 2)
    adaptive = "adaptive" in call.name or "upsample" in call.name
    window = math.prod(kernel) if kernel and not adaptive else max(x.numel / max(out, 1), 1)
    return Work("pool", (float(out), float(window), float(x.numel), 0.0), compute_dtype([x]))


def _output_sides(call: Call, x: TensorSpec) -> list[int]:
    """Height and width of the output from kernel, stride and padding."""
    kernel = call.ints(1, 2)
    if kernel is None:
        call.assume("pooling halves each side")
        return [max(side // 2, 1) for side in x.shape[-2:]]
    if "adaptive" in call.name or "upsample" in call.name:
        return kernel
    stride, padding = call.ints(2, 2) or kernel, call.ints(3, 2) or [0, 0]
    return [
        (side + 2 * p - k) // max(s, 1) + 1
        for side, k, s, p in zip(x.shape[-2:], kernel, stride, padding, strict=True)
    ]


def _backward(call: Call) -> Work:
    gradient, x = call.tensor(0), call.tensor(1) if call.has_tensor(1) else None
    numel = x.numel if x else (call.outputs[0].numel if call.outputs else gradient.numel)
    window = max(numel / max(gradient.numel, 1), 1)
    dims = (float(gradient.numel), window, float(numel), 1.0)
    return Work("pool", dims, compute_dtype([gradient]))


_FORWARD = (
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "max_pool2d",
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "mkldnn_max_pool2d",
    "mkldnn_adaptive_avg_pool2d",
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
)
PARSERS: dict[str, Parser] = {
    **dict.fromkeys(_FORWARD, _forward),
    **{f"{name}_backward": _backward for name in _FORWARD},
}
