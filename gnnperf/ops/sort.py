"""Sort, topk, unique, cumsum over `segments` independent rows; `top_k` 0 keeps everything."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family

INDEX_BYTES = 8.0


def _cost(dims: F64, dtype: I8) -> Cost:
    """Count numel log2(length) comparisons; keys are read once, kept ones written."""
    numel, segments, key_bytes, top_k = dims[:, :4].T
    segments = np.maximum(segments, 1)
    kept = np.where(top_k > 0, np.minimum(top_k * segments, numel), numel)
    return Cost(
        flops=numel * np.log2(np.maximum(numel / segments, 2)),
        bytes_read=numel * key_bytes,
        bytes_written=kept * (key_bytes + INDEX_BYTES),
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family("sort", ("numel", "segments", "key_bytes", "top_k"), _cost, ("numel", "segments"))
