"""Optimizer steps over `numel` parameters in `tensors` tensors."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family
from gnnperf.ops.call import (
    Call,
    MissingShapeError,
    Parser,
    TensorSpec,
    Work,
    base_name,
    compute_dtype,
    words,
)

READ_SHARE = 4 / 7
"""Adam reads parameter, gradient and two moments and writes all but the gradient"""


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes by `bytes_per_parameter` (fused Adam in fp32: 28), read and written together."""
    numel, _, size, _, flops = dims[:, :5].T
    return Cost(
        flops=numel * flops,
        bytes_read=numel * size * READ_SHARE,
        bytes_written=numel * size * (1 - READ_SHARE),
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family(
    "optimizer",
    ("numel", "tensors", "bytes_per_parameter", "fused", "flops_per_element"),
    _cost,
    ("numel", "tensors"),
)


def _lists(call: Call) -> list[tuple[TensorSpec, ...]]:
    lists = [arg for arg in call.args if len(arg) > 0]
    if not lists:
        raise MissingShapeError(f"{call.name}: shapes of the lists are not recorded")
    return lists


def _foreach(call: Call) -> Work:
    """Reads every list, writes one: the first, or a new one."""
    lists = [arg for arg in _lists(call) if len(arg) == len(call.args[0])]
    if not lists:
        raise MissingShapeError(f"{call.name}: shapes of the first list are not recorded")
    numel = sum(t.numel for t in lists[0])
    moved = sum(t.nbytes for arg in lists for t in arg) + sum(t.nbytes for t in lists[0])
    if base_name(call.name) == "_foreach_zero":
        moved /= 2
    dims = (numel, len(lists[0]), moved / max(numel, 1), 0, len(lists))
    return Work("optimizer", tuple(map(float, dims)), compute_dtype(list(lists[0])))


def _fused(flops: float) -> Parser:
    def parse(call: Call) -> Work:
        """Reads parameters, gradients and state; writes all but the gradients."""
        parameters = _lists(call)[0]
        lists = [arg for arg in _lists(call) if len(arg) == len(parameters)]
        states = [arg for arg in lists if sum(t.numel for t in arg) > len(arg)]
        numel = sum(t.numel for t in parameters)
        moved = sum(t.nbytes for arg in states for t in arg) * 2
        moved -= sum(t.nbytes for t in lists[1]) if len(lists) > 1 else 0
        dims = (numel, len(parameters), moved / max(numel, 1), 1, flops)
        return Work("optimizer", tuple(map(float, dims)), compute_dtype(list(parameters)))

    return parse


_FOREACH = (
    "add sub mul div sqrt neg exp addcmul addcdiv lerp pow zero copy clamp_min clamp_max maximum "
    "minimum reciprocal abs sign round"
)
PARSERS: dict[str, Parser] = {
    **{f"_foreach_{name}": _foreach for name in words(_FOREACH)},
    "_fused_adam": _fused(15),
    "_fused_adamw": _fused(15),
    "_fused_sgd": _fused(4),
    "_fused_adagrad": _fused(8),
    "_amp_foreach_non_finite_check_and_unscale": _foreach,
}
