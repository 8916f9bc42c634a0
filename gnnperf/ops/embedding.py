"""Embedding lookups, plain and pooled into bags, and their gradients.

`table_rows`, `lookups` and `bags` are totals over the `tables` that one op serves; `dim` is the
mean width of a row.
"""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes
from gnnperf.ops.call import Call, Parser, Work, compute_dtype

INDEX_BYTES = 8.0
SPARSE = 2
"""Direction of a gradient of which only the touched rows are made."""


def distinct_rows(dims: F64) -> F64:
    """[n] rows that are touched at least once.

    `unique_fraction` of the lookups where it is given; else what uniformly drawn indices touch,
    rows (1 - exp(-lookups / rows)), an upper bound for skewed ones.
    """
    table_rows, _, lookups, _, _, _, unique = dims[:, :7].T
    rows = np.maximum(table_rows, 1)
    uniform = rows * -np.expm1(-lookups / rows)
    touched: F64 = np.where(unique > 0, unique * lookups, np.minimum(uniform, lookups))
    return touched


def _cost(dims: F64, dtype: I8) -> Cost:
    """Forward reads each touched row once; backward reads and writes the touched rows."""
    _, width, lookups, bags, direction = dims[:, :5].T
    outputs = np.where(bags > 0, bags, lookups) * width
    touched = distinct_rows(dims) * width
    size, backward = element_bytes(dtype), direction > 0
    return Cost(
        flops=lookups * width * np.where(backward | (bags > 0), 1, 0),
        bytes_read=INDEX_BYTES * lookups + size * np.where(backward, outputs + touched, touched),
        bytes_written=size * np.where(backward, touched, outputs),
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=np.where(backward, lookups * width, outputs),
    )


FAMILY = Family(
    "embedding",
    (
        "table_rows",
        "dim",
        "lookups",
        "bags",
        "direction",
        "tables",
        "unique_fraction",
        "skew",
    ),
    _cost,
    ("lookups", "bags"),
)


def _lookup(call: Call) -> Work:
    weight, indices = call.tensor(0), call.tensor(1)
    dims = (*weight.shape[:2], indices.numel, 0, 0, 1, 0, 0)
    return Work("embedding", tuple(map(float, dims)), compute_dtype([weight]))


def _bag(call: Call) -> Work:
    weight, indices, offsets = (call.tensor(i) for i in range(3))
    bags = call.outputs[0].shape[0] if call.outputs else offsets.numel
    dims = (*weight.shape[:2], indices.numel, bags, 0, 1, 0, 0)
    return Work("embedding", tuple(map(float, dims)), compute_dtype([weight]))


def _backward(rows_at: int, bags: bool, sparse: bool = False, sparse_at: int = -1) -> Parser:
    """The gradient of a table: direction 1, where only touched rows come out `SPARSE`.

    `sparse_at`: the argument that says so, where it is not the op that does (`sparse`).
    """

    def parse(call: Call) -> Work:
        gradient, indices = call.tensor(0), call.tensor(1)
        rows = call.value(rows_at)
        if not isinstance(rows, int):
            call.assume("embedding table as long as the lookups")
            rows = indices.numel
        width = gradient.shape[-1] if gradient.shape else 1
        number = gradient.numel // max(width, 1) if bags else 0
        alone = sparse or (sparse_at >= 0 and call.flag(sparse_at, "dense gradient"))
        dims = (rows, width, indices.numel, number, SPARSE if alone else 1, 1, 0, 0)
        return Work("embedding", tuple(map(float, dims)), compute_dtype([gradient]))

    return parse


def _fused_tables(weights: int, offsets_at: int) -> Parser:
    """FBGEMM's tables in `weights` flat tensors; row offsets of the tables at `offsets_at`.

    lookup(weights..., D offsets [tables + 1], total D, max D, hash sizes, bits, indices, offsets,
    ..., state of the optimizer). The width is total D over tables where it is recorded, else from
    the row-wise state, which has a number for each row.
    """

    def parse(call: Call) -> Work:
        flat = max((call.tensor(i) for i in range(weights)), key=lambda t: t.numel)
        tables, lookups = call.tensor(offsets_at).numel - 1, call.tensor(offsets_at + 5).numel
        bags = call.tensor(offsets_at + 6).numel - 1
        total = call.value(offsets_at + 1)
        states = [t for arg in call.args[offsets_at + 9 :] for t in arg if t.dtype == flat.dtype]
        rows = [t.numel for t in states if len(t.shape) == 1 and 1 < t.numel < flat.numel]
        if isinstance(total, int) and total > 0:
            width = total / tables
        elif rows:
            width = flat.numel / rows[0]
        else:
            call.assume("embedding rows 64 wide")
            width = 64.0
        dims = (flat.numel / width, width, lookups, bags, 0, tables, 0, 0)
        return Work("embedding", tuple(map(float, dims)), compute_dtype([flat]))

    return parse


PARSERS: dict[str, Parser] = {
    "embedding": _lookup,
    "_embedding_bag": _bag,
    "_embedding_bag_forward_only": _bag,
    "embedding_bag": _bag,
    "embedding_dense_backward": _backward(2, bags=False),
    "embedding_backward": _backward(2, bags=False, sparse_at=5),
    "embedding_sparse_backward": _backward(2, bags=False, sparse=True),
    "_embedding_bag_dense_backward": _backward(5, bags=True),
    "_embedding_bag_backward": _backward(6, bags=True, sparse_at=9),
    "_embedding_bag_sparse_backward": _backward(5, bags=True, sparse=True),
    "dense_embedding_codegen_lookup_function": _fused_tables(1, 2),
    **{
        f"split_embedding_codegen_lookup_{optimizer}_function": _fused_tables(3, 6)
        for optimizer in (
            "adagrad",
            "adam",
            "none",
            "rowwise_adagrad",
            "rowwise_adagrad_with_counter",
            "sgd",
        )
    },
}
