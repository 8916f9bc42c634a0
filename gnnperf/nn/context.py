"""What surrounds each piece of device work: the edges that the network passes messages along."""

import numpy as np

from gnnperf.graph import EdgeKind, ExecutionGraph
from gnnperf.graph.model import I64, NONE
from gnnperf.nn.predict import RowEdges
from gnnperf.ops import Description


def row_edges(graph: ExecutionGraph, described: Description) -> RowEdges:
    """Edges between rows: order of each stream (or thread), and tensors from op to op."""
    before, after = _order(graph, described)
    source, reader = _data(graph, described)
    return RowEdges(
        np.concatenate([before, source]),
        np.concatenate([after, reader]),
        np.concatenate([np.zeros(len(before), np.bool_), np.ones(len(source), np.bool_)]),
    )


def _order(graph: ExecutionGraph, described: Description) -> tuple[I64, I64]:
    lane = graph.nodes.lane[described.node]
    start = np.nan_to_num(graph.nodes.start_us[described.node], nan=0.0)
    order = np.lexsort((described.node, start, lane))
    same = lane[order[1:]] == lane[order[:-1]]
    return order[:-1][same], order[1:][same]


def _data(graph: ExecutionGraph, described: Description) -> tuple[I64, I64]:
    """From the last row of the op that wrote a tensor to the first row of the op that reads it."""
    first = np.full(graph.num_nodes + 1, NONE, np.int64)
    last = first.copy()
    rows = np.arange(len(described.op))
    last[described.op] = rows
    first[described.op[::-1]] = rows[::-1]
    first[NONE] = last[NONE] = NONE
    data = graph.edges.kind == EdgeKind.DATA
    source, reader = last[graph.edges.src[data]], first[graph.edges.dst[data]]
    known = (source >= 0) & (reader >= 0) & (source != reader)
    pairs = np.unique(np.stack([source[known], reader[known]], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]
