"""Copies and fills: on the device, over the host link, between devices, memset.

`bytes` is what arrives; a cast reads `bytes` x dtype_bytes_in / dtype_bytes_out.
"""

import numpy as np
from numpy.typing import NDArray

from gnnperf.graph import dtype_bytes, dtype_index
from gnnperf.ops.base import F64, I8, Cost, Family, OpBatch, family_index
from gnnperf.ops.call import Call, Parser, Work

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


def _copy(call: Call) -> Work:
    """copy_(self, src): a cast where the types differ."""
    target = call.tensor(0)
    source = call.tensor(1) if call.has_tensor(1) else target
    size, source_size = (t.nbytes / max(t.numel, 1) for t in (target, source))
    strided = not (target.contiguous and source.contiguous)
    dims = (target.nbytes, ON_DEVICE, 0, strided, source_size, size)
    return Work("copy", tuple(map(float, dims)), target.dtype)


def _one_scalar(call: Call) -> Work:
    """`.item()`: one element to the host."""
    tensor = call.tensor(0)
    size = dtype_bytes(tensor.dtype) or 4.0
    return Work("copy", (size, TO_HOST, 0, 0, size, size), tensor.dtype)


def _duplicate(call: Call) -> Work:
    x = call.tensor(0)
    size = x.nbytes / max(x.numel, 1)
    return Work("copy", (x.nbytes, ON_DEVICE, 0, not x.contiguous, size, size), x.dtype)


def transfer(name: str, size: float) -> Work:
    """A copy or fill on the device's timeline, from its name and its bytes.

    Both `Memcpy HtoD (Pageable -> Device)` and ROCm's `CopyHostToDevice` are understood.
    """
    text = name.lower().replace(" ", "")
    route = next((r for pattern, r in _ROUTES if pattern in text), ON_DEVICE)
    pinned = route in (FROM_HOST, TO_HOST) and "pageable" not in text
    return Work("copy", (size, route, pinned, 0, 1, 1), dtype_index("uint8"), size > 0)


def crosses_link(batch: OpBatch) -> NDArray[np.bool_]:
    """[n] whether a row is a copy between a device and its host or another device."""
    copies = batch.family == family_index("copy")
    crosses: NDArray[np.bool_] = copies & np.isin(batch.dims[:, 1], (FROM_HOST, TO_HOST, PEER))
    return crosses


_ROUTES = (
    ("memset", FILL),
    ("fillbuffer", FILL),
    ("htod", FROM_HOST),
    ("hosttodevice", FROM_HOST),
    ("dtoh", TO_HOST),
    ("devicetohost", TO_HOST),
    ("ptop", PEER),
)
PARSERS: dict[str, Parser] = {
    "copy": _copy,
    "_local_scalar_dense": _one_scalar,
    "clone": _duplicate,
    "repeat": _duplicate,
    "flip": _duplicate,
    "roll": _duplicate,
    "constant_pad_nd": _duplicate,
    "to_mkldnn": _duplicate,
    "mkldnn_reorder_conv2d_weight": _duplicate,
    "mkldnn_reorder_linear_weight": _duplicate,
    "im2col": _duplicate,
    "col2im": _duplicate,
}
