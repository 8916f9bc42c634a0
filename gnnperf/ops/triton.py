"""Kernels compiled from fused elementwise and reduction code, known by inputs and outputs."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family
from gnnperf.ops.call import Call, MissingShapeError, Work, compute_dtype


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes as given; one operation per element and input."""
    read, written, numel, inputs = dims[:, :4].T
    return Cost(
        flops=numel * inputs,
        bytes_read=read,
        bytes_written=written,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family(
    "triton",
    ("bytes_read", "bytes_written", "numel", "inputs"),
    _cost,
    ("bytes_read", "bytes_written", "numel"),
)


def compiled(call: Call) -> Work:
    """A compiled kernel by its tensors: `in_out_ptr` and `out_ptr` stand last, inputs first.

    Of the tensors that it is given, the last is taken as written, the others as read; a reduction
    (`triton_red`, `triton_per`) with outputs of the input's size writes like a pointwise kernel.
    """
    tensors = call.tensors
    if not tensors:
        raise MissingShapeError(f"{call.name}: no tensor with a shape")
    written = sum(t.nbytes for t in call.outputs) or tensors[-1].nbytes
    read = sum(t.nbytes for t in tensors[:-1]) or tensors[0].nbytes
    numel = max(t.numel for t in tensors)
    dims = (read, written, float(numel), float(max(len(tensors) - 1, 1)))
    return Work("triton", dims, compute_dtype(tensors))
