"""Selecting rows of CSR tables at once."""

import numpy as np

from gnnperf.graph import Tensors
from gnnperf.graph.model import I32, I64, Arguments
from gnnperf.traces.table import Signatures


def gather(ptr: I64, rows: I64 | I32) -> tuple[I64, I64]:
    """The new pointer and the entries of `rows` (NONE: an empty row) of a CSR table."""
    known = np.append(np.diff(ptr), 0)
    sizes = known[rows]
    new = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    shift = np.append(ptr[:-1], 0)[rows] - new[:-1]
    return new, np.arange(new[-1]) + np.repeat(shift, sizes)


def select_arguments(signatures: Signatures, rows: I64 | I32) -> tuple[Arguments, Tensors]:
    """The arguments and tensors of nodes, given each node's signature (NONE: none)."""
    table = signatures.arguments
    ptr, arguments = gather(table.ptr, rows)
    tensor_ptr, tensors = gather(table.tensor_ptr, arguments)
    return (
        Arguments(ptr, table.type[arguments], table.value[arguments], tensor_ptr),
        select_tensors(signatures.tensors, tensors),
    )


def select_tensors(table: Tensors, rows: I64) -> Tensors:
    """Some rows of a table of tensors."""
    dim_ptr, dims = gather(table.dim_ptr, rows)
    return Tensors(
        table.dtype[rows],
        dim_ptr,
        table.dims[dims],
        table.strides[dims],
        table.tensor_id[rows],
        table.storage_id[rows],
    )
