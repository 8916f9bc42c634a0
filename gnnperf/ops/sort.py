"""Sort, topk, unique, cumsum over `segments` independent rows; `top_k` 0 keeps everything."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family
from gnnperf.ops.call import Call, Parser, TensorSpec, Work, compute_dtype

INDEX_BYTES = 8.0


def _cost(dims: F64, dtype: I8) -> Cost:
    """Count numel log2(length) comparisons; keys are read once, kept ones written."""
    numel, segments, key_bytes, top_k = dims[:, :4].T
    segments = np.where(segments > 0, segments, 1)
    kept = np.where(top_k > 0, np.minimum(top_k * segments, numel), numel)
    return Cost(
        flops=numel * np.log2(np.maximum(numel / segments, 2)),
        bytes_read=numel * key_bytes,
        bytes_written=kept * (key_bytes + INDEX_BYTES),
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family("sort", ("numel", "segments", "key_bytes", "top_k"), _cost, ("numel", "segments"))


def _parser(axis_at: tuple[int, ...], k_at: int | None = None) -> Parser:
    def parse(call: Call) -> Work:
        x = call.tensor(0)
        length = _length(call, x, axis_at)
        top = call.value(k_at) if k_at is not None else 0
        key = x.nbytes / max(x.numel, 1)
        dims = (x.numel, x.numel / max(length, 1), key, top if isinstance(top, int) else 1)
        return Work("sort", tuple(map(float, dims)), compute_dtype([x]))

    return parse


def _length(call: Call, x: TensorSpec, axis_at: tuple[int, ...]) -> int:
    """Size of the dimension that is ordered: the first number among the places for it."""
    for place in axis_at:
        axis = call.value(place)
        if isinstance(axis, int) and not isinstance(axis, bool):
            return x.shape[axis] if x.shape else 1
    return x.shape[-1] if x.shape else 1


def _whole(call: Call) -> Work:
    x = call.tensor(0)
    key = x.nbytes / max(x.numel, 1)
    return Work("sort", (float(x.numel), 1.0, key, 0.0), compute_dtype([x]))


PARSERS: dict[str, Parser] = {
    "sort": _parser((1, 2)),
    "argsort": _parser((1, 2)),
    "topk": _parser((2,), 1),
    "kthvalue": _parser((2,)),
    "median": _parser((1,)),
    "cumsum": _parser((1,)),
    "cumprod": _parser((1,)),
    "multinomial": _parser(()),
    **dict.fromkeys(
        (
            "_unique2",
            "unique_consecutive",
            "unique_dim",
            "histc",
            "bincount",
            "searchsorted",
            "asynchronous_complete_cumsum",
            "asynchronous_exclusive_cumsum",
            "asynchronous_inclusive_cumsum",
        ),
        _whole,
    ),
}
