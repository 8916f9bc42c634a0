"""A step without device work (run on a CPU, or known by its ops alone) as a GPU would see it."""

from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from gnnperf.graph import (
    Collectives,
    EdgeKind,
    Edges,
    ExecutionGraph,
    LaneKind,
    Lanes,
    NodeKind,
    Nodes,
    Phase,
)
from gnnperf.graph.model import I64, NONE
from gnnperf.ops.collective import kind_of
from gnnperf.ops.describe import read_call
from gnnperf.ops.leaf import leaf_ops
from gnnperf.ops.parsers import parser_of

TO_HOST_NAME = "Memcpy DtoH (Device -> Pageable)"
_ITEM = "_local_scalar_dense"
_NOTE = (
    "each leaf op is one kernel on one stream, collectives on a second one; "
    "copies of one element to the host block it; host times are defaults"
)


def lower(graph: ExecutionGraph) -> ExecutionGraph:
    """The graph with a device node for each leaf op; unchanged if it has device nodes.

    The new nodes have no times and no launching runtime call: a LAUNCH edge comes from their op,
    and a HOST_SYNC edge leads back to it where the op waits for a value. A collective waits for the
    compute work before it; the compute work that waits for it is the first of the optimizer's, or
    the next one where no phase says.
    """
    if len(graph.device_nodes):
        return graph
    ops = leaf_ops(graph)
    ops = ops[np.argsort(np.nan_to_num(graph.nodes.start_us[ops]), kind="stable")]
    if not len(ops):
        return graph
    kinds, names, sizes = _kinds(graph, ops)
    strings = list(graph.strings)
    index = {text: i for i, text in enumerate(strings)}
    name = np.array([_intern(text, strings, index) for text in names], np.int32)
    labels = [_intern(text, strings, index) for text in ("compute", "communication")]
    n, m = graph.num_nodes, len(ops)
    device = np.arange(n, n + m)
    nodes = _nodes(graph, ops, (kinds, name, sizes))
    collectives = _collectives(graph, device[kinds == NodeKind.COLLECTIVE], nodes, strings)
    arguments = replace(graph.arguments, ptr=_extended(graph.arguments.ptr, m))
    notes = (*graph.meta.notes, ("lowered", _NOTE))
    meta = replace(
        graph.meta,
        device_type="cuda",
        device="",
        host_step_us=float("nan"),
        notes=notes,
    )
    return replace(
        graph,
        strings=tuple(strings),
        nodes=nodes,
        arguments=arguments,
        output_ptr=_extended(graph.output_ptr, m),
        edges=_edges(graph, ops, nodes, device),
        lanes=_lanes(graph, labels),
        collectives=collectives,
        meta=meta,
    )


def _intern(text: str, strings: list[str], index: dict[str, int]) -> int:
    if text not in index:
        index[text] = len(strings)
        strings.append(text)
    return index[text]


def _kinds(
    graph: ExecutionGraph, ops: I64
) -> tuple[NDArray[np.uint8], list[str], NDArray[np.int64]]:
    """Kind, name and bytes of the device node of each op."""
    kinds = np.full(len(ops), NodeKind.KERNEL, np.uint8)
    names, sizes = [graph.name_of(int(op)) for op in ops], np.full(len(ops), NONE, np.int64)
    for row, text in enumerate(names):
        found = parser_of(text)
        if found is not None and found[0] == "collective":
            kinds[row] = NodeKind.COLLECTIVE
            sizes[row] = _tensor_bytes(graph, int(ops[row]))
        elif text.endswith(_ITEM):
            kinds[row], names[row] = NodeKind.COPY, TO_HOST_NAME
            sizes[row] = max(_tensor_bytes(graph, int(ops[row])), 1)
    return kinds, names, sizes


def _tensor_bytes(graph: ExecutionGraph, op: int) -> int:
    tensors = read_call(graph, op).tensors
    return int(sum(t.nbytes for t in tensors if all(size >= 0 for size in t.shape)))


def _nodes(
    graph: ExecutionGraph,
    ops: I64,
    new: tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int64]],
) -> Nodes:
    kinds, name, sizes = new
    old, m = graph.nodes, len(ops)
    lane = len(graph.lanes.kind) + (kinds == NodeKind.COLLECTIVE)
    columns = {
        "kind": kinds,
        "name": name,
        "lane": lane,
        "op": ops,
        "scope": old.scope[ops],
        "phase": old.phase[ops],
        "bytes": sizes,
        "start_us": np.full(m, np.nan),
        "duration_us": np.full(m, np.nan),
    }
    joined = {
        f.name: np.concatenate(
            [getattr(old, f.name), columns.get(f.name, np.full(m, NONE))]
        ).astype(getattr(old, f.name).dtype)
        for f in fields(Nodes)
    }
    return Nodes(**joined)


def _extended(ptr: I64, rows: int) -> I64:
    return np.concatenate([ptr, np.full(rows, ptr[-1])])


def _lanes(graph: ExecutionGraph, labels: list[int]) -> Lanes:
    old = graph.lanes
    return Lanes(
        np.append(old.kind, [LaneKind.STREAM] * 2).astype(old.kind.dtype),
        np.append(old.device, [0, 0]).astype(old.device.dtype),
        np.append(old.number, [0, 1]).astype(old.number.dtype),
        np.append(old.label, labels).astype(old.label.dtype),
    )


def _edges(graph: ExecutionGraph, ops: I64, nodes: Nodes, device: I64) -> Edges:
    kind = nodes.kind[device]
    compute, talk = device[kind != NodeKind.COLLECTIVE], device[kind == NodeKind.COLLECTIVE]
    before = np.searchsorted(compute, talk) - 1
    waiting = _waiting(nodes, compute, talk)
    item = device[kind == NodeKind.COPY]
    parts = [
        (ops, device, EdgeKind.LAUNCH),
        (compute[:-1], compute[1:], EdgeKind.STREAM),
        (talk[:-1], talk[1:], EdgeKind.STREAM),
        (compute[before[before >= 0]], talk[before >= 0], EdgeKind.EVENT_WAIT),
        (talk[waiting >= 0], waiting[waiting >= 0], EdgeKind.EVENT_WAIT),
        (item, nodes.op[item], EdgeKind.HOST_SYNC),
    ]
    old = graph.edges
    return Edges(
        np.concatenate([old.src, *(src for src, _, _ in parts)]).astype(np.int32),
        np.concatenate([old.dst, *(dst for _, dst, _ in parts)]).astype(np.int32),
        np.concatenate([old.kind, *(np.full(len(s), k) for s, _, k in parts)]).astype(np.uint8),
    )


def _waiting(nodes: Nodes, compute: I64, talk: I64) -> I64:
    """For each collective the compute node that waits for it; NONE if none comes after."""
    steps = compute[nodes.phase[compute] == Phase.OPTIMIZER]
    padded = np.append(compute, NONE)
    following = padded[np.searchsorted(compute, talk)]
    if not len(steps):
        return following
    later = np.append(steps, NONE)[np.searchsorted(steps, talk)]
    return np.where(later != NONE, later, following)


def _collectives(
    graph: ExecutionGraph, device: I64, nodes: Nodes, strings: list[str]
) -> Collectives:
    """Rows for the new communication nodes: kind by name, bytes by tensors, all known ranks."""
    index = {text: i for i, text in enumerate(strings)}
    kinds = [
        _intern(kind_of(strings[int(nodes.name[node])]) or "unknown", strings, index)
        for node in device
    ]
    count, ranks = len(device), graph.meta.world_size
    size = nodes.bytes[device]
    return Collectives(
        node=device.astype(np.int32),
        kind=np.array(kinds, np.int32),
        group=np.full(count, NONE, np.int32),
        sequence=np.full(count, NONE, np.int64),
        input_bytes=size,
        output_bytes=size.copy(),
        group_size=np.full(count, ranks if ranks > 1 else NONE, np.int32),
        rank_ptr=np.zeros(count + 1, np.int64),
        ranks=np.zeros(0, np.int32),
    )
