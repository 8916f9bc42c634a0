"""Types of tensors in lists: Kineto records their shapes and no types."""

from dataclasses import replace

import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.graph.model import I8, I64, Tensors
from gnnperf.ops.signature import U64, fold, mix

ASSUMED = "type of a listed tensor: that of most tensors of its shape"


def with_types(graph: ExecutionGraph) -> tuple[ExecutionGraph, I64]:
    """The graph with the missing types that tensors of the same shape tell, and their rows.

    A tensor of no dimensions stays as it is: scalars of one step have many types. So does one
    whose shape no tensor of known type has; 4 bytes an element are assumed of it.
    """
    inputs = graph.inputs
    none = np.zeros(0, np.int64)
    missing = np.flatnonzero((inputs.dtype == 0) & (np.diff(inputs.dim_ptr) > 0))
    if not len(missing):
        return graph, none
    shape = _shapes(inputs)
    every = np.concatenate([shape, _shapes(graph.outputs)])
    dtype = np.concatenate([inputs.dtype, graph.outputs.dtype])
    wanted = (dtype > 0) & np.isin(every, shape[missing])
    if not wanted.any():
        return graph, none
    told, most = _most(every[wanted], dtype[wanted])
    place = np.minimum(np.searchsorted(told, shape[missing]), len(told) - 1)
    found = told[place] == shape[missing]
    filled = inputs.dtype.copy()
    filled[missing[found]] = most[place[found]]
    return replace(graph, inputs=replace(inputs, dtype=filled)), missing[found]


def _shapes(tensors: Tensors) -> U64:
    """[t] hash of each shape."""
    return fold(tensors.dim_ptr, mix(tensors.dims))


def _most(shape: U64, dtype: I8) -> tuple[U64, I8]:
    """The distinct shapes in order, and the type that most tensors of each have."""
    order = np.lexsort((dtype, shape))
    shape, dtype = shape[order], dtype[order]
    new = (shape[1:] != shape[:-1]) | (dtype[1:] != dtype[:-1])
    first = np.flatnonzero(np.append(True, new))
    count = np.diff(np.append(first, len(shape)))
    best = np.lexsort((count, shape[first]))
    last = np.append(np.diff(shape[first][best].astype(np.int64)) != 0, True)
    chosen = first[best[last]]
    return shape[chosen], dtype[chosen]
