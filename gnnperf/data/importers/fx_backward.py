"""Nodes of NeuSight's op graphs as device work: the backward pass and the sums of gradients.

What autograd launches in eager PyTorch: a linear layer's backward is two products and a sum over
rows, an addition's is nothing.
"""

import math
from collections.abc import Callable

from gnnperf.data.importers.fx_ops import (
    FLOAT32,
    MASK,
    SIZE,
    FxNode,
    drops_nothing,
    elementwise,
    embedding,
    gemm,
    indexed,
    is_embedding,
    operands,
    table_rows,
    work,
)
from gnnperf.ops import dim_index
from gnnperf.ops.call import Work


def backward_work(node: FxNode) -> list[Work]:
    """The kernels of the backward pass; none for views, sums and integer ops."""
    make = _BACKWARD.get(node.op_class)
    if make is not None:
        return make(node)
    if node.op_class == "misc" and node.root == "max" and node.numel > 1:
        return _max_backward(node)
    if is_embedding(node):
        return _embedding_backward(node)
    return []


def accumulation_work(node: FxNode) -> list[Work]:
    """The additions of new gradients to the old ones, a kernel per parameter."""
    sizes = [math.prod(size) for _, size in node.accumulated]
    if not sizes and is_embedding(node):
        sizes = [table_rows(node) * node.shape[-1]]
    return [elementwise(n, 2 * SIZE * n, SIZE * n, inputs=2) for n in sizes]


def _linear_backward(node: FxNode) -> list[Work]:
    """Gradients of the input [m, n], of the weight [k, n] and of the bias, a sum over m rows."""
    found = []
    for _, (m, n, k) in node.forward:
        found += [gemm(1, m, n, k), gemm(1, k, n, m, a_transposed=1)]
        if node.name != "lm_head":
            found.append(
                work("reduce", in_numel=m * k, out_numel=k, reduced=m, flops_per_element=1)
            )
    return found


def _bmm_backward(node: FxNode) -> list[Work]:
    found = []
    for _, (b, m, n, k) in node.forward:
        found.append(gemm(b, m, n, k, b_transposed=1, variant=2))
        found.append(gemm(b, n, k, m, a_transposed=1, variant=2))
    return found


def _layer_norm_backward(node: FxNode) -> list[Work]:
    return [work("norm", rows=r, cols=c, affine=1, direction=1) for _, (r, c) in node.forward]


def _softmax_backward(node: FxNode) -> list[Work]:
    return [work("softmax", rows=r, cols=c, direction=1) for _, (r, c) in node.forward]


def _pointwise_backward(*inputs: int, special: bool = False) -> Callable[[FxNode], list[Work]]:
    """A kernel for each number of inputs given, all as large as the output."""

    def make(node: FxNode) -> list[Work]:
        n = node.numel
        if n <= 1:
            return []
        return [elementwise(n, SIZE * n * i, SIZE * n, i, special) for i in inputs]

    return make


def _multiply_backward(node: FxNode) -> list[Work]:
    tensors = len(operands(node))
    return _pointwise_backward(*([2] * min(tensors, 2)) if tensors > 1 else [1])(node)


def _power_backward(node: FxNode) -> list[Work]:
    n = node.numel
    return (
        []
        if n <= 1
        else [
            elementwise(n, SIZE * n, SIZE * n, 1, special=True),
            elementwise(n, SIZE * n, SIZE * n),
            elementwise(n, 2 * SIZE * n, SIZE * n, 2),
        ]
    )


def _max_backward(node: FxNode) -> list[Work]:
    """Ties are shared: equal, halved, chosen, smaller, masked."""
    n = node.numel
    both, one = 2 * SIZE * n, SIZE * n
    return [
        elementwise(n, both, MASK * n, 2),
        elementwise(n, one, one),
        elementwise(n, both + MASK * n, one, 3),
        elementwise(n, both, MASK * n, 2),
        elementwise(n, one + MASK * n, one, 2),
    ]


def _where_backward(node: FxNode) -> list[Work]:
    n = node.numel
    return [elementwise(n, (SIZE + MASK) * n, SIZE * n, 2)]


def _dropout_backward(node: FxNode) -> list[Work]:
    """The mask is cast, scaled, then multiplied."""
    n = node.numel
    if drops_nothing(node):
        return []
    return [
        elementwise(n, MASK * n, SIZE * n),
        elementwise(n, SIZE * n, SIZE * n),
        elementwise(n, 2 * SIZE * n, SIZE * n, 2),
    ]


def _embedding_backward(node: FxNode) -> list[Work]:
    forward = embedding(node)[0]
    dims = list(forward.dims)
    dims[dim_index("embedding", "direction")] = 1
    table = table_rows(node) * node.shape[-1]
    return [Work("embedding", tuple(dims), FLOAT32), elementwise(table, 0, SIZE * table, 0)]


_BACKWARD: dict[str, Callable[[FxNode], list[Work]]] = {
    "Linear": _linear_backward,
    "BMM": _bmm_backward,
    "VECln": _layer_norm_backward,
    "VECsoftmax": _softmax_backward,
    "EMBEDDING": _embedding_backward,
    "VECmul": _multiply_backward,
    "VECmulu": _pointwise_backward(1),
    "VECdiv": _pointwise_backward(1),
    "VECdivu": _pointwise_backward(1),
    "VECpowu": _power_backward,
    "VECtanh": _pointwise_backward(2, special=True),
    "VECgelu": _pointwise_backward(2, special=True),
    "VECrelu": _pointwise_backward(2),
    "where": _where_backward,
    "dropout": _dropout_backward,
    "getitem": indexed,
    "mean": _pointwise_backward(1),
    "rsqrt": _pointwise_backward(2),
}
