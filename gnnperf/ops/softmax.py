"""Softmax and log-softmax over the last `cols` elements of `rows` rows, and their gradients."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.call import Call, Parser, Work, compute_dtype


def _cost(dims: F64, dtype: I8) -> Cost:
    """Forward reads the input once and writes as much; backward reads output and gradient."""
    rows, cols, direction = dims[:, :3].T
    numel, backward = rows * cols, direction > 0
    size = element_bytes(dtype)
    return Cost(
        flops=numel * np.where(backward, 4, 5),
        bytes_read=size * numel * np.where(backward, 2, 1),
        bytes_written=size * numel,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family("softmax", ("rows", "cols", "direction", "log"), _cost, ("rows",))


def _parser(direction: int, log: int) -> Parser:
    def parse(call: Call) -> Work:
        x, dim = call.tensor(0), call.value(1 + direction)
        if not isinstance(dim, int):
            call.assume("softmax over the last dimension")
            dim = -1
        cols = x.shape[dim] if x.shape else 1
        dims = (x.numel / max(cols, 1), cols, direction, log)
        return Work("softmax", tuple(map(float, dims)), compute_dtype([x]))

    return parse


PARSERS: dict[str, Parser] = {
    "_softmax": _parser(0, 0),
    "_log_softmax": _parser(0, 1),
    "_softmax_backward_data": _parser(1, 0),
    "_log_softmax_backward_data": _parser(1, 1),
    "softmax": _parser(0, 0),
    "log_softmax": _parser(0, 1),
}
