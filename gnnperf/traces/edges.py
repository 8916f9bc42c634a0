"""The edges that a trace states: order of threads and streams, launches, tensors."""

import numpy as np

from gnnperf.graph import EdgeKind, Edges, NodeKind, Nodes, Tensors
from gnnperf.graph.model import I64, NONE, Arguments


def order_edges(nodes: Nodes) -> Edges:
    """PROGRAM, LAUNCH and STREAM edges of nodes that stand in order of time in each lane.

    PROGRAM joins every host node to the next one that starts on its thread (so a node comes
    before what it encloses), STREAM every device node to the next one on its stream.
    """
    device = nodes.kind >= NodeKind.KERNEL
    rows = np.argsort(nodes.lane, kind="stable")
    same = nodes.lane[rows[1:]] == nodes.lane[rows[:-1]]
    src, dst = rows[:-1][same], rows[1:][same]
    kind = np.where(device[dst], EdgeKind.STREAM, EdgeKind.PROGRAM)
    launched = np.flatnonzero(nodes.launch >= 0)
    return Edges(
        np.concatenate([src, nodes.launch[launched]]).astype(np.int32),
        np.concatenate([dst, launched]).astype(np.int32),
        np.concatenate([kind, np.full(len(launched), EdgeKind.LAUNCH)]).astype(np.uint8),
    )


def data_edges(arguments: Arguments, inputs: Tensors, output_ptr: I64, outputs: Tensors) -> Edges:
    """DATA edges: from the last earlier op that put a tensor out to each op that takes it in.

    Nodes stand in the order in which they ran. Tensors are the same where their ids are; a view
    has its own id, so the last op that put out any tensor of the same storage counts as well.
    """
    reader = _owner(arguments.tensor_ptr[arguments.ptr])
    writer = _owner(output_ptr)
    found = [
        _last_writers(writer, getattr(outputs, column), reader, getattr(inputs, column))
        for column in ("tensor_id", "storage_id")
    ]
    pairs = np.unique(np.concatenate(found), axis=0)
    return Edges(
        pairs[:, 0].astype(np.int32),
        pairs[:, 1].astype(np.int32),
        np.full(len(pairs), EdgeKind.DATA, np.uint8),
    )


def _last_writers(writer: I64, written: I64, reader: I64, wanted: I64) -> I64:
    """[e, 2] pairs of rows: the last writer before each reader of the same id."""
    wrote, read = written != NONE, wanted != NONE
    writer, written, reader, wanted = writer[wrote], written[wrote], reader[read], wanted[read]
    if not len(written) or not len(wanted):
        return np.zeros((0, 2), np.int64)
    _, code = np.unique(np.concatenate([written, wanted]), return_inverse=True)
    n = np.int64(max(writer.max(), reader.max()) + 1)
    key = np.sort(code[: len(written)] * n + writer)
    query = code[len(written) :] * n + reader
    place = np.searchsorted(key, query) - 1
    found = key[np.maximum(place, 0)]
    usable = (place >= 0) & (found // n == code[len(written) :])
    return np.stack([found[usable] % n, reader[usable]], axis=1)


def _owner(ptr: I64) -> I64:
    """Row that each entry of a CSR table belongs to."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def no_edges() -> Edges:
    """A table of no edges."""
    none = np.zeros(0, np.int32)
    return Edges(none, none, np.zeros(0, np.uint8))


def join_edges(*tables: Edges) -> Edges:
    """All edges of several tables."""
    return Edges(
        np.concatenate([t.src for t in tables]),
        np.concatenate([t.dst for t in tables]),
        np.concatenate([t.kind for t in tables]),
    )
