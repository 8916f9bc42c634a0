"""Matrix products: mm, linear, batched and everything that is computed as one."""

import math

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.call import Call, MissingShapeError, Parser, TensorSpec, Work, compute_dtype


def _cost(dims: F64, dtype: I8) -> Cost:
    """2 batch m n k; every operand once. Types under 2 bytes (fp8, int8, fp4) are written as 2."""
    batch, m, n, k, bias = dims[:, :5].T
    size = element_bytes(dtype)
    return Cost(
        flops=2 * batch * m * n * k,
        bytes_read=size * (batch * (m * k + k * n) + bias * n),
        bytes_written=np.maximum(size, 2.0) * batch * m * n,
        tensor_path=np.ones(len(dims), np.bool_),
        parallel_items=batch * m * n,
    )


FAMILY = Family(
    "gemm",
    ("batch", "m", "n", "k", "bias", "a_transposed", "b_transposed", "variant"),
    _cost,
    ("batch",),
)


def _work(call: Call, a: TensorSpec, b: TensorSpec, bias: bool, variant: int) -> Work:
    """A[..., m, k] B[..., k, n] with equal leading dimensions (or none in B)."""
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise MissingShapeError(f"{call.name}: {a.shape} x {b.shape} is no matrix product")
    batch = math.prod(b.shape[:-2])
    m = math.prod(a.shape[:-1]) // batch if batch else 0
    dims = (batch, m, b.shape[-1], a.shape[-1], bias, a.transposed, b.transposed, variant)
    return Work("gemm", tuple(map(float, dims)), compute_dtype([a, b]))


def _mm(call: Call) -> Work:
    return _work(call, call.tensor(0), call.tensor(1), False, 0)


def _addmm(call: Call) -> Work:
    bias = len(call.tensor(0).shape) < 2
    return _work(call, call.tensor(1), call.tensor(2), bias, 1 if bias else 0)


def _bmm(call: Call) -> Work:
    return _work(call, call.tensor(0), call.tensor(1), False, 2)


def _baddbmm(call: Call) -> Work:
    return _work(call, call.tensor(1), call.tensor(2), False, 2)


def _linear(call: Call) -> Work:
    x, w = call.tensor(0), call.tensor(1)
    weight = TensorSpec(w.shape[::-1], w.dtype, (1, w.shape[-1]) if len(w.shape) == 2 else None)
    return _work(call, x, weight, call.has_tensor(2), 1)


def _matmul(call: Call) -> Work:
    a, b = call.tensor(0), call.tensor(1)
    if len(a.shape) == 1:
        a = TensorSpec((1, *a.shape), a.dtype)
    if len(b.shape) == 1:
        b = TensorSpec((*b.shape, 1), b.dtype)
    return _work(call, a, b, False, 2 if len(b.shape) > 2 else 0)


def _addmv(call: Call) -> Work:
    vector = call.tensor(2)
    column = TensorSpec((*vector.shape, 1), vector.dtype)
    return _work(call, call.tensor(1), column, False, 0)


def _dot(call: Call) -> Work:
    size = float(call.tensor(0).numel)
    return Work("gemm", (1, 1, 1, size, 0, 0, 0, 0), compute_dtype(call.tensors))


PARSERS: dict[str, Parser] = {
    "mm": _mm,
    "_int_mm": _mm,
    "_scaled_mm": _mm,
    "sparse_mm": _mm,
    "addmm": _addmm,
    "_addmm_activation": _addmm,
    "addbmm": _baddbmm,
    "bmm": _bmm,
    "baddbmm": _baddbmm,
    "linear": _linear,
    "_linear_pointwise": _linear,
    "_mkl_linear": _linear,
    "mkldnn_linear": _linear,
    "matmul": _matmul,
    "mv": _matmul,
    "addmv": _addmv,
    "dot": _dot,
    "vdot": _dot,
}
