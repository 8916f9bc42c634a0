"""Sums, means, maxima, norms: `in_numel` elements to `out_numel`, `reduced` into each."""

import math

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.call import Call, Parser, TensorSpec, Work, compute_dtype
from gnnperf.ops.elementwise import elementwise_work


def _cost(dims: F64, dtype: I8) -> Cost:
    """Every input element once."""
    in_numel, out_numel, _, flops = dims[:, :4].T
    size = element_bytes(dtype)
    return Cost(
        flops=in_numel * flops,
        bytes_read=size * in_numel,
        bytes_written=size * out_numel,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=in_numel,
    )


FAMILY = Family(
    "reduce",
    ("in_numel", "out_numel", "reduced", "flops_per_element"),
    _cost,
    ("in_numel", "out_numel"),
)


def _parser(flops: float, dim_at: int | None = 1) -> Parser:
    def parse(call: Call) -> Work:
        x = call.tensor(0)
        out = call.outputs[0].numel if call.outputs else _kept(call, x, dim_at)
        dims = (x.numel, out, x.numel / max(out, 1), flops)
        return Work("reduce", tuple(map(float, dims)), compute_dtype([x]))

    return parse


def _kept(call: Call, x: TensorSpec, dim_at: int | None) -> int:
    """Elements of the result, from the dimensions that are reduced."""
    if dim_at is None or dim_at >= len(call.args):
        return 1
    dim = call.value(dim_at)
    if dim is None and any(value is not None for value in call.values):
        return 1
    if dim is None:
        call.assume("reduction over everything")
        return 1
    reduced = [dim] if isinstance(dim, int) and not isinstance(dim, bool) else dim
    if not isinstance(reduced, list | tuple) or not reduced:
        return 1
    axes = {int(axis) % max(len(x.shape), 1) for axis in reduced}
    return math.prod(size for axis, size in enumerate(x.shape) if axis not in axes)


def _foreach_norm(call: Call) -> Work:
    numel = sum(t.numel for t in call.args[0])
    count = max(len(call.args[0]), 1)
    dims = (float(numel), float(count), numel / count, 2.0)
    return Work("reduce", dims, compute_dtype(list(call.args[0])))


def _loss(call: Call) -> Work:
    """A loss over all elements of prediction and target."""
    numel = call.tensor(0).numel + call.tensor(1).numel
    dims = (float(numel), 1.0, float(numel), 4.0)
    return Work("reduce", dims, compute_dtype(call.tensors))


def _extremum(call: Call) -> Work:
    """Max and min: of two tensors, or over dimensions."""
    if call.has_tensor(1):
        return elementwise_work(call, 1, False)
    return _parser(1)(call)


PARSERS: dict[str, Parser] = {
    **dict.fromkeys(
        ("sum", "mean", "prod", "nansum", "amax", "amin", "all", "any", "argmax", "argmin"),
        _parser(1),
    ),
    **dict.fromkeys(("logsumexp", "var", "std", "var_mean", "std_mean"), _parser(4)),
    **dict.fromkeys(("count_nonzero", "_aminmax", "aminmax"), _parser(1, None)),
    "max": _extremum,
    "min": _extremum,
    "norm": _parser(2, 2),
    "linalg_vector_norm": _parser(2, 2),
    "_foreach_norm": _foreach_norm,
    "binary_cross_entropy": _loss,
    "smooth_l1_loss": _loss,
    "huber_loss": _loss,
}
