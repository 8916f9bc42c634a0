"""Scales of rows or blocks and the cast to fp8, int8 or fp4 (or back)."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family
from gnnperf.ops.call import Call, Parser, Work, compute_dtype


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes as given; a maximum and a product per element."""
    rows, cols, read, written = dims[:, :4].T
    return Cost(
        flops=2 * rows * cols,
        bytes_read=read,
        bytes_written=written,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=rows * cols,
    )


FAMILY = Family(
    "quantize",
    ("rows", "cols", "bytes_read", "bytes_written"),
    _cost,
    ("rows", "bytes_read", "bytes_written"),
)


def _cast(call: Call) -> Work:
    """Reads a tensor and writes it in one byte per element."""
    x = call.tensor(0)
    cols = x.shape[-1] if x.shape else 1
    written = sum(t.nbytes for t in call.outputs) or float(x.numel)
    dims = (x.numel / max(cols, 1), float(cols), x.nbytes, written)
    return Work("quantize", dims, compute_dtype([x]))


PARSERS: dict[str, Parser] = dict.fromkeys(
    (
        "quantize_per_tensor",
        "quantize_per_channel",
        "quantize_per_tensor_dynamic",
        "fake_quantize_per_tensor_affine_cachemask",
        "fake_quantize_per_channel_affine_cachemask",
        "static_scaled_fp8_quant",
        "dynamic_scaled_fp8_quant",
        "dynamic_per_token_scaled_fp8_quant",
        "sgl_per_token_quant_fp8",
        "sgl_per_token_group_quant_fp8",
        "per_token_group_fp8_quant",
    ),
    _cast,
)
