"""Embedding lookups, plain and pooled into bags, and their gradients.

`table_rows`, `lookups` and `bags` are totals over the `tables` that one op serves; `dim` is the
mean width of a row.
"""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family, element_bytes

INDEX_BYTES = 8.0


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
