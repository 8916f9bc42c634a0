"""Equal calls get equal numbers, so that each distinct one is parsed once: hashes of CSR tables."""

import numpy as np
from numpy.typing import NDArray

from gnnperf.graph import ExecutionGraph
from gnnperf.graph.model import I64, Tensors

U64 = NDArray[np.uint64]


def mix(values: NDArray[np.generic], salt: int = 0) -> U64:
    """SplitMix64 of each value: a 64-bit hash."""
    x = values.astype(np.int64).view(np.uint64) + np.uint64((salt * 0x9E3779B97F4A7C15) % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fold(ptr: I64, values: U64) -> U64:
    """[len(ptr) - 1] hash of each segment, depending on the order of its values."""
    sizes = np.diff(ptr)
    position = np.arange(len(values)) - np.repeat(ptr[:-1], sizes)
    mixed = mix((values + mix(position + 1)).view(np.int64))
    total = np.zeros(len(mixed) + 1, np.uint64)
    np.cumsum(mixed, out=total[1:])
    return mix((total[ptr[1:]] - total[ptr[:-1]] + mix(sizes, 7)).view(np.int64))


def _tensors(tensors: Tensors) -> U64:
    return mix(tensors.dtype, 3) ^ fold(
        tensors.dim_ptr, mix(tensors.dims, 1) + mix(tensors.strides, 2)
    )


def call_signatures(graph: ExecutionGraph) -> U64:
    """[n] hash of name, arguments (shapes, types, strides, values) and outputs of each node."""
    arguments = graph.arguments
    tensors = fold(arguments.tensor_ptr, _tensors(graph.inputs))
    whole = tensors + mix(arguments.value, 4)
    inputs = fold(arguments.ptr, whole)
    outputs = fold(graph.output_ptr, _tensors(graph.outputs))
    return mix(graph.nodes.name, 5) ^ inputs ^ (outputs * np.uint64(3))
