"""Nodes of NeuSight's op graphs as device work: the forward pass.

The graphs name an op's class and shapes (fp32, PyTorch eager). The kernels of a class follow from
what eager PyTorch launches: a batched product first copies operands whose batch dimensions do not
merge, a dropout does nothing in inference, and so on.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gnnperf.graph import dtype_index
from gnnperf.ops import MAX_DIMS, dim_index
from gnnperf.ops.call import Work

Shape = tuple[int, ...]
FLOAT32 = dtype_index("float32")
SIZE, MASK = 4, 1
"""bytes of an fp32 number and of a truth value"""


@dataclass(frozen=True)
class FxNode:
    """One node of an op graph."""

    name: str
    op_class: str
    """NeuSight's class: Linear, BMM, VECadd, misc, ..."""
    forward: tuple[tuple[str, Any], ...]
    """kind and sizes of each forward op as the graph states them"""
    accumulated: tuple[tuple[str, Any], ...]
    """the same for the gradients that are added to those of the step before"""
    input_shapes: tuple[Shape, ...]
    shape: Shape
    inputs: tuple["FxNode", ...] = ()
    contiguous: bool = True
    trains: bool = False
    """whether the graph is one of training"""
    vocabulary: int = 0
    attention_dropout: bool = True

    @property
    def root(self) -> str:
        """The function's name: `add_12` is an `add`, `masked_fill_` stays what it is."""
        return re.sub(r"_\d+$", "", self.name)

    @property
    def numel(self) -> int:
        """Elements of the output."""
        return math.prod(self.shape)


def work(family: str, **dims: float) -> Work:
    """fp32 work of a family from its dimensions by name."""
    row = [0.0] * MAX_DIMS
    for name, value in dims.items():
        row[dim_index(family, name)] = float(value)
    return Work(family, tuple(row), FLOAT32)


def elementwise(
    numel: float, read: float, written: float, inputs: int = 1, special: bool = False
) -> Work:
    """An op over `numel` elements; `read` and `written` in bytes."""
    return work(
        "elementwise",
        numel=numel,
        bytes_read=read,
        bytes_written=written,
        flops_per_element=10 if special else 1,
        inputs=inputs,
        special=special,
    )


def copy(numel: float) -> Work:
    """A copy that makes a strided tensor dense."""
    return work("copy", bytes=SIZE * numel, strided=1, dtype_bytes_in=SIZE, dtype_bytes_out=SIZE)


def forward_work(node: FxNode) -> list[Work]:
    """The kernels of the forward pass, the main one first."""
    make = _FORWARD.get(node.op_class)
    if make is not None:
        return make(node)
    return _vector(node) if node.op_class.startswith("VEC") else _misc(node)


def compiled_work(nodes: Sequence[FxNode]) -> list[list[Work]]:
    """[node] the kernels of the forward pass under torch.compile.

    A pointwise op (or one fused already) whose one reader is another of the same size does not
    write its result: the reader's kernel computes it and reads what it read.
    """
    readers: dict[str, list[FxNode]] = {}
    for node in nodes:
        for source in node.inputs:
            readers.setdefault(source.name, []).append(node)
    reads: dict[str, list[int]] = {}
    absorbed = set()
    for node in nodes:
        if not _is_pointwise(node):
            continue
        mine = reads.setdefault(node.name, [])
        for source in node.inputs:
            mine += reads[source.name] if source.name in absorbed else [source.numel]
        others = readers.get(node.name, [])
        if len(others) == 1 and _is_pointwise(others[0]) and others[0].numel == node.numel:
            absorbed.add(node.name)
    return [
        []
        if n.name in absorbed
        else [_compiled(n, reads[n.name])]
        if n.name in reads
        else forward_work(n)
        for n in nodes
    ]


def _is_pointwise(node: FxNode) -> bool:
    if node.numel <= 1 or is_embedding(node):
        return False
    if node.op_class == "fused":
        return bool(node.forward) and not any(kind == "MEM" for kind, _ in node.forward)
    return node.op_class == "where" or node.op_class.startswith("VEC")


def _compiled(node: FxNode, reads: Sequence[int]) -> Work:
    """One kernel that reads what comes from outside and writes its result."""
    large = [n for n in reads if n > 1]
    return work(
        "triton",
        bytes_read=SIZE * sum(large),
        bytes_written=SIZE * node.numel,
        numel=node.numel,
        inputs=len(large),
    )


def is_view_made_strided(node: FxNode) -> bool:
    """Whether the output of a node lies strided in memory."""
    if node.op_class in ("misc", "getitem", "fused"):
        last = re.sub(r"_\d+$", "", node.name.rpartition("~")[2])
        if last in ("permute", "transpose", "t", "expand"):
            return True
        if last in _VIEWS or last == "getitem":
            return any(not i.contiguous for i in node.inputs if i.numel > 1)
    return False


def has_parameters(node: FxNode) -> bool:
    """Whether the op owns weights that are trained."""
    return node.op_class in ("Linear", "VECln", "Weight") or is_embedding(node)


def label_of(node: FxNode) -> str:
    """The family that `evaluate` reports for a node's forward op; "" for what it does not."""
    if node.op_class in _LABELS:
        return _LABELS[node.op_class]
    return "elementwise" if node.op_class.startswith("VEC") else ""


_LABELS = {"Linear": "linear", "BMM": "bmm", "VECln": "layer_norm", "VECsoftmax": "softmax"}
_VIEWS = frozenset(
    (
        *("view", "permute", "transpose", "expand", "unsqueeze", "squeeze", "split", "chunk", "to"),
        *("size", "getattr", "detach", "t", "type", "type_as", "float", "long", "empty", "slice"),
        *("finfo", "dim", "empty_like", "output", "contiguous", "iter", "len", "int", "getitem"),
    )
)
_FILLS = frozenset(("full", "ones", "zeros", "arange", "tensor", "full_like", "zeros_like"))
_MASKS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "bool"))
_SPECIAL = frozenset(
    ("pow", "powu", "gelu", "tanh", "log", "exp", "rsqrt", "logsumexp", "uniform_")
)


def gemm(batch: int, m: int, n: int, k: int, **more: float) -> Work:
    """[batch, m, k] x [batch, k, n]."""
    return work("gemm", batch=batch, m=m, n=n, k=k, **more)


def _linear(node: FxNode) -> list[Work]:
    plain = node.root == "addmm"
    bias = float(plain or node.name != "lm_head")
    return [
        gemm(1, m, k, n, bias=bias, b_transposed=0 if plain else 1, variant=1)
        for _, (m, n, k) in node.forward
    ]


def _bmm(node: FxNode) -> list[Work]:
    products = [gemm(b, m, k, n, variant=2) for _, (b, m, n, k) in node.forward]
    strided = [i for i in node.inputs if not i.contiguous and len(i.shape) == 4]
    copied = [copy(i.numel) for i in strided if min(i.shape[:2]) > 1]
    if len(strided) > len(copied):
        products = [gemm(b, m, k, n, b_transposed=1, variant=2) for _, (b, m, n, k) in node.forward]
    return products + copied


def _layer_norm(node: FxNode) -> list[Work]:
    return [work("norm", rows=r, cols=c, affine=1) for _, (r, c) in node.forward]


def _softmax(node: FxNode) -> list[Work]:
    return [work("softmax", rows=r, cols=c) for _, (r, c) in node.forward]


def operands(node: FxNode) -> list[int]:
    """Elements of the operands that are tensors and not numbers."""
    return [n for n in map(math.prod, node.input_shapes) if n > 1]


def _vector(node: FxNode) -> list[Work]:
    if node.numel <= 1:
        return []
    read = operands(node) or [node.numel]
    special = node.op_class.removeprefix("VEC") in _SPECIAL
    return [elementwise(node.numel, SIZE * sum(read), SIZE * node.numel, len(read), special)]


def _where(node: FxNode) -> list[Work]:
    n = node.numel
    condition = MASK * math.prod(node.input_shapes[0]) if node.input_shapes else 0
    read = [s for s in map(math.prod, node.input_shapes[1:]) if s > 1]
    return [elementwise(n, condition + SIZE * sum(read), SIZE * n, 1 + len(read))]


def _dropout(node: FxNode) -> list[Work]:
    if drops_nothing(node):
        return []
    n = node.numel
    return [elementwise(n, SIZE * n, (SIZE + MASK) * n, 1, special=True)]


def drops_nothing(node: FxNode) -> bool:
    """A probability of 0, which some models give the attention's scores."""
    after_softmax = any(i.op_class == "VECsoftmax" for i in node.inputs)
    return not node.trains or (after_softmax and not node.attention_dropout)


def _dense(node: FxNode) -> list[Work]:
    strided = any(not i.contiguous for i in node.inputs if i.numel == node.numel)
    return [copy(node.numel)] if strided else []


def is_embedding(node: FxNode) -> bool:
    """Whether the node looks rows up, by its class or its name."""
    if node.op_class == "EMBEDDING":
        return True
    named = re.search(r"embedding|embed_tokens|wpe$|wte$", node.name)
    return (
        bool(named)
        and node.op_class == "misc"
        and len(node.shape) == 3
        and len(node.input_shapes) > 0
    )


def table_rows(node: FxNode) -> int:
    """Rows of an embedding's table: as the graph says, the vocabulary, or the sequence's length."""
    tables = [s[0] for s in node.input_shapes if len(s) == 2 and s[-1] == node.shape[-1]]
    sequence = node.shape[1]
    if tables:
        return tables[0]
    return node.vocabulary or 50_000 if node.op_class == "EMBEDDING" else sequence


def embedding(node: FxNode) -> list[Work]:
    """NeuSight's inputs are all ones: every token is the same one."""
    lookups = node.numel // node.shape[-1]
    distinct = 1 if node.op_class == "EMBEDDING" else node.shape[1] / lookups
    return [
        work(
            "embedding",
            table_rows=table_rows(node),
            dim=node.shape[-1],
            lookups=lookups,
            tables=1,
            unique_fraction=distinct / lookups if distinct == 1 else distinct,
        )
    ]


def _fused(node: FxNode) -> list[Work]:
    return [_compiled(node, operands(node))] if node.forward and node.numel > 1 else []


def _reduction(node: FxNode) -> list[Work]:
    n = max(operands(node), default=1)
    out = node.numel
    return [work("reduce", in_numel=n, out_numel=out, reduced=n / max(out, 1), flops_per_element=1)]


def indexed(node: FxNode) -> list[Work]:
    """Selection by a mask: its positions are found first, then rows are moved."""
    sizes = operands(node)
    if len(sizes) < 2 or node.numel < 1 or (node.op_class == "getitem" and node.shape == (1,)):
        return []
    moved, mask = max(node.numel, 1), min(sizes)
    found = work("sort", numel=mask, segments=1, key_bytes=MASK)
    rows = work(
        "gather",
        out_numel=moved,
        bytes_read=SIZE * moved + 8 * mask,
        bytes_written=SIZE * moved,
        index_numel=mask,
        row_numel=node.shape[-1],
    )
    return [rows, found]


def _misc(node: FxNode) -> list[Work]:
    n, root = node.numel, node.root
    if is_embedding(node):
        return embedding(node)
    if n <= 1 or root in _VIEWS or not node.input_shapes or root.endswith(("dropout", "drop")):
        return []
    if root in _FILLS:
        return [elementwise(n, 0, SIZE * n, 0)]
    if root in ("reshape", "clone"):
        return _dense(node) if root == "reshape" else [copy(n)]
    read = operands(node) or [n]
    size = MASK if root in _MASKS else SIZE
    return [elementwise(n, SIZE * sum(read), size * n, len(read), root in _SPECIAL)]


_FORWARD: dict[str, Callable[[FxNode], list[Work]]] = {
    "Linear": _linear,
    "BMM": _bmm,
    "VECln": _layer_norm,
    "VECsoftmax": _softmax,
    "EMBEDDING": embedding,
    "where": _where,
    "dropout": _dropout,
    "contiguous": _dense,
    "fused": _fused,
    "mean": _reduction,
    "count": _reduction,
    "getitem": indexed,
    "setitem": indexed,
    "output": lambda node: [],
    "Weight": lambda node: [],
}
