"""Equal calls get equal numbers, so that each distinct one is parsed once: hashes of CSR tables."""

import numpy as np
from numpy.typing import NDArray

from gnnperf.graph import ExecutionGraph
from gnnperf.graph.model import I64, Tensors

U64 = NDArray[np.uint64]
_ODD = np.uint64(0x9E3779B97F4A7C15)


def mix(values: NDArray[np.integer], salt: int = 0) -> U64:
    """SplitMix64 of each value: a 64-bit hash."""
    x = values.astype(np.int64).view(np.uint64)
    x += np.uint64((salt * 0x9E3779B97F4A7C15) % 2**64)
    shifted = x >> np.uint64(30)
    x ^= shifted
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= np.right_shift(x, np.uint64(27), out=shifted)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= np.right_shift(x, np.uint64(31), out=shifted)
    return x


def fold(ptr: I64, values: U64) -> U64:
    """[len(ptr) - 1] hash of each segment, depending on the order of its values."""
    sizes = np.diff(ptr)
    position = np.arange(1, len(values) + 1, dtype=np.uint64)
    position -= np.repeat(ptr[:-1].astype(np.uint64), sizes)
    position *= _ODD
    position += values
    total = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(mix(position.view(np.int64)), out=total[1:])
    segments = total[ptr[1:]] - total[ptr[:-1]]
    segments += sizes.astype(np.uint64) * _ODD
    return mix(segments.view(np.int64))


def _tensors(tensors: Tensors) -> U64:
    sizes = mix(tensors.dims)
    sizes += tensors.strides.view(np.uint64) * _ODD
    return fold(tensors.dim_ptr, sizes) ^ mix(tensors.dtype, 3)


def call_signatures(graph: ExecutionGraph) -> U64:
    """[n] hash of name, arguments (shapes, types, strides, values) and outputs of each node."""
    arguments = graph.arguments
    whole = fold(arguments.tensor_ptr, _tensors(graph.inputs))
    whole += mix(arguments.value, 4)
    signature = fold(arguments.ptr, whole) ^ mix(graph.nodes.name, 5)
    if len(graph.outputs.dtype):
        signature ^= fold(graph.output_ptr, _tensors(graph.outputs)) * np.uint64(3)
    return signature
