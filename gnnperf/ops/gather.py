"""Reads and writes at computed places: index, gather, scatter, index_add, cat, masked ops."""

import math

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family
from gnnperf.ops.call import (
    INTEGER_TYPES,
    Call,
    MissingShapeError,
    Parser,
    TensorSpec,
    Work,
    broadcast_shape,
    compute_dtype,
)


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes as given; one addition per element where it accumulates."""
    out_numel, read, written, _, _, atomic = dims[:, :6].T
    return Cost(
        flops=out_numel * atomic,
        bytes_read=read,
        bytes_written=written,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=out_numel,
    )


FAMILY = Family(
    "gather",
    ("out_numel", "bytes_read", "bytes_written", "index_numel", "row_numel", "atomic"),
    _cost,
    ("out_numel", "bytes_read", "bytes_written", "index_numel"),
)


def _rows(source: TensorSpec, index: TensorSpec, numel: float, row: float) -> Work:
    """`numel` elements read at places that `index` names and written densely."""
    size = source.nbytes / max(source.numel, 1)
    dims = (numel, numel * size + index.nbytes, numel * size, index.numel, row, 0)
    return Work("gather", tuple(map(float, dims)), compute_dtype([source]))


def _index(call: Call) -> Work:
    """The shape of x[i, j, :] is that of the broadcast indices and of what they leave."""
    x = call.tensor(0)
    indices = [t for arg in call.args[1:] for t in arg if t.dtype in INTEGER_TYPES]
    if not indices:
        raise MissingShapeError(f"{call.name}: shapes of the indices are not recorded")
    places = math.prod(broadcast_shape(indices))
    row = math.prod(x.shape[len(indices) :])
    if call.outputs:
        return _rows(x, indices[0], call.outputs[0].numel, row)
    return _rows(x, indices[0], places * row, row)


def _index_select(call: Call) -> Work:
    x, index, dim = call.tensor(0), call.tensor(2), call.value(1)
    axis = dim if isinstance(dim, int) else 0
    others = x.numel / max(x.shape[axis], 1) if x.shape else 1
    return _rows(x, index, index.numel * others, math.prod(x.shape[axis + 1 :]))


def _gather(call: Call) -> Work:
    index = call.tensor(2)
    return _rows(call.tensor(0), index, index.numel, 1)


def _write(source_at: int, atomic: int) -> Parser:
    """Values written (or added) to places of the first tensor."""

    def parse(call: Call) -> Work:
        target, values = call.tensor(0), call.tensor(source_at)
        indices = [t for i, arg in enumerate(call.args) for t in arg if 0 < i != source_at]
        size = target.nbytes / max(target.numel, 1)
        count = indices[0].numel if indices else 0
        if not indices:
            call.assume("index of whole rows")
            count = values.shape[0] if values.shape else 1
        numel = max(values.numel, count)
        moved = numel * size * (1 + atomic)
        read = moved + sum(t.nbytes for t in indices)
        dims = (numel, read, numel * size, count, numel / max(count, 1), atomic)
        return Work("gather", tuple(map(float, dims)), compute_dtype([target]))

    return parse


def _cat(call: Call) -> Work:
    parts = list(call.args[0]) if call.args else []
    if not parts:
        raise MissingShapeError("cat: shapes of the list are not recorded")
    numel, moved = sum(t.numel for t in parts), sum(t.nbytes for t in parts)
    dims = (numel, moved, moved, 0, parts[0].numel, 0)
    return Work("gather", tuple(map(float, dims)), compute_dtype(parts))


def _select(call: Call) -> Work:
    """Reads all, writes what passes: taken as half."""
    x = call.tensor(0)
    kept = call.outputs[0].nbytes if call.outputs else x.nbytes / 2
    if not call.outputs:
        call.assume("half of the elements pass a mask")
    dims = (x.numel, sum(t.nbytes for t in call.tensors), kept, x.numel, 1, 0)
    return Work("gather", tuple(map(float, dims)), compute_dtype([x]))


def _permuted(values_at: int) -> Parser:
    """Variable-length rows or columns of one tensor put in another order."""

    def parse(call: Call) -> Work:
        x = call.tensor(values_at)
        others = sum(t.nbytes for t in call.tensors if t is not x)
        row = x.shape[-1] if len(x.shape) > 1 else 1
        dims = (x.numel, x.nbytes + others, x.nbytes, x.numel / max(row, 1), row, 0)
        return Work("gather", tuple(map(float, dims)), compute_dtype([x]))

    return parse


def _nll_loss(call: Call) -> Work:
    """One element of each row, at the place the target names."""
    x, target = call.tensor(0), call.tensor(1)
    rows = x.numel / max(x.shape[-1], 1) if x.shape else 1
    dims = (rows, rows * 32 + target.nbytes, 8, rows, 1, 0)
    return Work("gather", tuple(map(float, dims)), compute_dtype([x]))


PARSERS: dict[str, Parser] = {
    "index": _index,
    "_unsafe_index": _index,
    "index_select": _index_select,
    "gather": _gather,
    "take": lambda c: _rows(c.tensor(0), c.tensor(1), c.tensor(1).numel, 1),
    "index_put": _write(2, 0),
    "_index_put_impl": _write(2, 0),
    "_unsafe_index_put": _write(2, 0),
    "index_copy": _write(3, 0),
    "index_add": _write(3, 1),
    "scatter": _write(3, 0),
    "scatter_add": _write(3, 1),
    "scatter_reduce": _write(3, 1),
    "index_fill": _write(0, 0),
    "cat": _cat,
    "_cat": _cat,
    "stack": _cat,
    "masked_select": _select,
    "nonzero": _select,
    "permute_2D_sparse_data": _permuted(2),
    "permute_1D_sparse_data": _permuted(2),
    "permute_sparse_features": _permuted(2),
    "permute_pooled_embs": _permuted(0),
    "permute_pooled_embs_auto_grad": _permuted(0),
    "nll_loss_forward": _nll_loss,
    "nll_loss2d_forward": _nll_loss,
}
