"""Copies and fills: on the device, over the host link, between devices, memset.

`bytes` is what arrives; a cast reads `bytes` x dtype_bytes_in / dtype_bytes_out.
"""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family

ON_DEVICE, FROM_HOST, TO_HOST, FILL, PEER = range(5)


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes of device memory: a copy from the host reads none, one to the host writes none."""
    size, route, _, _, bytes_in, bytes_out = dims[:, :6].T
    cast = np.where((bytes_in > 0) & (bytes_out > 0), bytes_in / np.maximum(bytes_out, 0.5), 1)
    reads = (route != FROM_HOST) & (route != FILL)
    return Cost(
        flops=np.zeros(len(dims)),
        bytes_read=np.where(reads, size * cast, 0),
        bytes_written=np.where(route == TO_HOST, 0, size),
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=size / np.where(bytes_out > 0, bytes_out, 4),
    )


FAMILY = Family(
    "copy",
    ("bytes", "route", "pinned", "strided", "dtype_bytes_in", "dtype_bytes_out"),
    _cost,
    ("bytes",),
)
