"""The work of every device node of a graph, or of the leaf ops of a CPU graph, as one batch."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gnnperf.graph import ExecutionGraph, NodeKind, dtype_index
from gnnperf.graph.model import I64, NONE, Tensors
from gnnperf.ops.base import MAX_DIMS, OpBatch, family_index
from gnnperf.ops.call import Call, TensorSpec, Work, base_name, compute_dtype
from gnnperf.ops.collective import communication, kind_of
from gnnperf.ops.conv import gradient_shapes
from gnnperf.ops.distribute import distribute, op_work
from gnnperf.ops.embedding import SPARSE
from gnnperf.ops.kernels import Kernel
from gnnperf.ops.leaf import leaf_ops, work_ops
from gnnperf.ops.listed import ASSUMED, with_types
from gnnperf.ops.signature import U64, call_signatures, fold, mix

INT64 = dtype_index("int64")


@dataclass(frozen=True, eq=False)
class Description:
    """A batch and where its rows belong."""

    batch: OpBatch
    node: I64
    """[rows] node that each row describes, ascending"""
    op: I64
    """[rows] host op whose work the row is (a part of); NONE if none is known"""
    row: I64
    """[n] row of each node; NONE for nodes that are not described"""
    unknown: dict[str, int]
    """name of op (or kernel) -> rows whose sizes or family are not known"""
    assumed: dict[str, int]
    """what was assumed -> how often"""


def describe(graph: ExecutionGraph) -> Description:
    """Describe the graph's device nodes; of a graph without any, its leaf host ops.

    Equal calls that launched equal kernels are parsed once.
    """
    graph, typed = with_types(graph)
    found = _describe_device(graph) if len(graph.device_nodes) else _describe_hosts(graph)
    return replace(found, assumed=found.assumed | ({ASSUMED: len(typed)} if len(typed) else {}))


def _describe_device(graph: ExecutionGraph) -> Description:
    nodes = graph.device_nodes
    nodes, op = _in_groups(graph, nodes)
    first = np.flatnonzero(np.append(True, (op[1:] != op[:-1]) | (op[1:] == NONE)))
    ptr = np.append(first, len(nodes))
    calls = np.append(call_signatures(graph), np.uint64(0))
    known = _known_sizes(graph, calls)
    _, example, which = np.unique(
        calls[op[first]] ^ fold(ptr, _node_hashes(graph, nodes)),
        return_index=True,
        return_inverse=True,
    )
    table = _Table()
    for group in example.tolist():
        members, issuer = nodes[ptr[group] : ptr[group + 1]], int(op[first[group]])
        call = _completed(read_call(graph, issuer), known) if issuer != NONE else None
        table.add(_works(graph, call, members, table.notes))
    counts = np.bincount(which, minlength=len(example))
    starts = np.concatenate([[0], np.cumsum(table.sizes)])[:-1].astype(np.int64)
    rows = (
        np.repeat(starts[which], np.diff(ptr))
        + np.arange(len(nodes))
        - np.repeat(first, np.diff(ptr))
    )
    return _description(graph, table, (rows, nodes, op), counts)


Shapes = tuple[tuple[int, ...], tuple[int, ...]]


class _Sizes(NamedTuple):
    """What other ops of the graph tell of sizes that an op's own record does not hold."""

    outputs: dict[Shapes, TensorSpec]
    """of convolutions by the shapes of input and weight, as the backward ops show: old traces hold
    shapes and no values, so that the stride of a forward op is told by this only"""
    rows: dict[tuple[int, ...], int]
    """lookups behind the sparse gradient of a table by the table's shape"""


def _known_sizes(graph: ExecutionGraph, signatures: U64) -> _Sizes:
    convolutions = _examples(graph, signatures, "convolution_backward")
    gradients = (gradient_shapes(call) for call in convolutions)
    outputs = {shapes[:2]: shapes[2] for shapes in gradients if shapes is not None}
    rows: dict[tuple[int, ...], int] = {}
    for call in _examples(graph, signatures, "embedding"):
        work = op_work(call)
        if work.family == "embedding" and work.known and work.dims[4] == SPARSE:
            rows[int(work.dims[0]), int(work.dims[1])] = int(work.dims[2])
    return _Sizes(outputs, rows)


def _examples(graph: ExecutionGraph, signatures: U64, name: str) -> list[Call]:
    """The distinct calls of backward ops with a part of their name."""
    named = np.array([name in text and "backward" in text for text in graph.strings], np.bool_)
    nodes = np.flatnonzero((graph.nodes.kind == NodeKind.HOST_OP) & named[graph.nodes.name])
    _, example = np.unique(signatures[nodes], return_index=True)
    return [read_call(graph, int(nodes[i])) for i in example]


def _completed(call: Call, known: _Sizes) -> Call:
    return _with_output(_of_rows(call, known.rows), known.outputs)


def _of_rows(call: Call, rows: dict[tuple[int, ...], int]) -> Call:
    """The sum of a table and a sparse gradient, a tensor without strides, as one of its rows."""
    tensors = [arg[0] for arg in call.args[:2] if arg]
    if len(tensors) < 2 or base_name(call.name) != "add":
        return call
    table, gradient = tensors
    count = rows.get(table.shape)
    if count is None or table.strides is None or gradient.strides is not None:
        return call
    index, values = TensorSpec((count,), INT64), TensorSpec((count, *table.shape[1:]), table.dtype)
    return replace(
        call, name="aten::index_add_", args=((table,), (), (index,), (values,)), values=()
    )


def _with_output(call: Call, gradients: dict[Shapes, TensorSpec]) -> Call:
    """A forward convolution whose trace holds no outputs gets its output from the backward op."""
    shapes = tuple(arg[0].shape for arg in call.args[:2] if arg)
    output = gradients.get(shapes) if len(shapes) == 2 else None
    if call.outputs or output is None or "convolution" not in call.name:
        return call
    return replace(call, outputs=(output,))


def _describe_hosts(graph: ExecutionGraph) -> Description:
    nodes, signatures = leaf_ops(graph), call_signatures(graph)
    known = _known_sizes(graph, signatures)
    _, example, which = np.unique(signatures[nodes], return_index=True, return_inverse=True)
    table = _Table()
    for index in example.tolist():
        call = _completed(read_call(graph, int(nodes[index])), known)
        notes = table.notes
        work = op_work(call)
        notes.extend(call.assumed)
        table.add([work])
    counts = np.bincount(which, minlength=len(example))
    return _description(graph, table, (which.astype(np.int64), nodes, nodes), counts)


class _Table:
    """Distinct rows, in groups, with what was assumed for each group."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.sizes: list[int] = []
        self.assumed: list[list[str]] = []
        self.notes: list[str] = []

    def add(self, works: list[Work]) -> None:
        """Close a group; what is in `notes` was assumed for it."""
        self.works.extend(works)
        self.sizes.append(len(works))
        self.assumed.append(list(self.notes))
        self.notes.clear()

    def batch(self) -> OpBatch:
        dims = np.zeros((len(self.works), MAX_DIMS))
        for row, work in enumerate(self.works):
            dims[row, : len(work.dims)] = work.dims
        families = {work.family: family_index(work.family) for work in self.works}
        return OpBatch(
            np.array([families[w.family] for w in self.works], np.int16),
            dims,
            np.array([w.dtype for w in self.works], np.int8),
            np.array([w.known for w in self.works], np.bool_),
        )


def _description(
    graph: ExecutionGraph, table: _Table, placed: tuple[I64, I64, I64], counts: I64
) -> Description:
    order = np.argsort(placed[1])
    rows, nodes, op = (column[order] for column in placed)
    batch = table.batch().take(rows)
    row = np.full(graph.num_nodes, NONE, np.int64)
    row[nodes] = np.arange(len(nodes))
    missing = np.flatnonzero(~batch.known)
    named = np.where(op[missing] != NONE, op[missing], nodes[missing])
    names, number = np.unique(graph.nodes.name[named], return_counts=True)
    unknown = {graph.strings[int(n)]: int(c) for n, c in zip(names, number, strict=True)}
    assumed: Counter[str] = Counter()
    for notes, count in zip(table.assumed, counts.tolist(), strict=True):
        for note in notes:
            assumed[note] += count
    return Description(batch, nodes, op, row, unknown, dict(assumed))


def _in_groups(graph: ExecutionGraph, nodes: I64) -> tuple[I64, I64]:
    """Device nodes ordered by the op whose work they do, then by start; and that op."""
    work = np.append(work_ops(graph), NONE)
    op = work[graph.nodes.op[nodes]]
    start = np.nan_to_num(graph.nodes.start_us[nodes], nan=0.0)
    order = np.lexsort((nodes, start, op))
    return nodes[order], op[order]


def _node_hashes(graph: ExecutionGraph, nodes: I64) -> U64:
    table = graph.nodes
    total = mix(table.name[nodes], 11) + mix(table.kind[nodes], 12) + mix(table.bytes[nodes], 13)
    total = total + mix(table.grid_blocks[nodes], 14) + mix(table.block_threads[nodes], 15)
    facts = graph.collectives
    known = mix(facts.kind, 16) + mix(facts.input_bytes, 17) + mix(facts.output_bytes, 18)
    by_node = np.zeros(graph.num_nodes, np.uint64)
    by_node[facts.node] = known + mix(facts.group_size, 19)
    return total + by_node[nodes]


def _works(graph: ExecutionGraph, call: Call | None, nodes: I64, notes: list[str]) -> list[Work]:
    """Rows of one group: collectives by their record, the rest by the call."""
    table = graph.nodes
    kernels = [
        Kernel(
            graph.name_of(node),
            NodeKind(int(table.kind[node])),
            int(table.bytes[node]),
            int(table.grid_blocks[node]),
            int(table.block_threads[node]),
        )
        for node in nodes.tolist()
    ]
    rest = [i for i, kernel in enumerate(kernels) if kernel.kind != NodeKind.COLLECTIVE]
    rows = dict(zip(rest, distribute(call, [kernels[i] for i in rest], notes), strict=True))
    return [
        rows[i] if i in rows else _collective(graph, int(node), call)
        for i, node in enumerate(nodes.tolist())
    ]


def _collective(graph: ExecutionGraph, node: int, call: Call | None) -> Work:
    """A communication kernel: kind, bytes and ranks as recorded, else from the op's tensors."""
    facts = graph.collectives
    found = np.flatnonzero(facts.node == node)
    kind, entering, leaving, ranks = "", 0.0, 0.0, 0.0
    if len(found):
        at = int(found[0])
        kind = graph.strings[int(facts.kind[at])] if facts.kind[at] != NONE else ""
        entering, leaving = float(facts.input_bytes[at]), float(facts.output_bytes[at])
        ranks = float(facts.group_size[at])
    kind = kind_of(kind or graph.name_of(node)) or kind_of(call.name if call else "") or ""
    tensors = call.tensors if call else []
    moved = sum(t.nbytes for t in tensors) if entering <= 0 and leaving <= 0 else 0.0
    dtype = compute_dtype(tensors) if tensors else 0
    return communication(kind, max(entering, moved), max(leaving, moved), max(ranks, 0.0), dtype)


def read_call(graph: ExecutionGraph, node: int) -> Call:
    """The call that a host node is: its tensors and values."""
    arguments = graph.arguments
    span = range(int(arguments.ptr[node]), int(arguments.ptr[node + 1]))
    args = tuple(
        tuple(
            _tensor(graph.inputs, t)
            for t in range(int(arguments.tensor_ptr[a]), int(arguments.tensor_ptr[a + 1]))
        )
        for a in span
    )
    values = tuple(
        graph.strings[int(arguments.value[a])] if arguments.value[a] != NONE else None for a in span
    )
    outputs = range(int(graph.output_ptr[node]), int(graph.output_ptr[node + 1]))
    return Call(
        graph.name_of(node), args, values, tuple(_tensor(graph.outputs, t) for t in outputs)
    )


def _tensor(tensors: Tensors, index: int) -> TensorSpec:
    part = slice(int(tensors.dim_ptr[index]), int(tensors.dim_ptr[index + 1]))
    shape, strides = tensors.dims[part].tolist(), tensors.strides[part].tolist()
    recorded = tuple(strides) if all(s != NONE for s in strides) else None
    return TensorSpec(tuple(shape), int(tensors.dtype[index]), recorded)
