"""Host times of ops as a trace shows them: before, between and after the things inside an op."""

from dataclasses import dataclass

import numpy as np

from gnnperf.graph.kinds import EdgeKind, NodeKind
from gnnperf.graph.model import F64, I64, NONE, ON_HOST, Bool, ExecutionGraph
from gnnperf.ops.leaf import ancestors_with, on_host_tensors
from gnnperf.timeline.constants import estimate
from gnnperf.timeline.host_classes import ANNOTATION, host_class, would_launch
from gnnperf.timeline.lanes import own_cost
from gnnperf.traces.dependencies import Waits, find_waits

LONGEST_GAP_US = 200.0
"""Between two ops of a thread: more is other work or a wait (data loading, another thread), not
the framework's way from one op to the next (the bound of Lin et al.'s code, T1)."""


@dataclass(frozen=True, eq=False)
class Forest:
    """The host ops of a step in the order in which they begin; annotations are looked through."""

    node: I64
    """[h] node of the graph"""
    parent: I64
    """[h] row of the enclosing op; NONE at top level"""
    last: I64
    """[h] last row inside the op (its own where nothing is)"""
    row: I64
    """[n] row of each node that is an op, else of the op that encloses it; NONE for none"""


def forest(graph: ExecutionGraph) -> Forest:
    """Host ops in order: of their times where those are known, else of their rows."""
    nodes = graph.nodes
    named = np.array([host_class(text) == ANNOTATION for text in graph.strings], np.bool_)
    op = (nodes.kind == NodeKind.HOST_OP) & ~named[nodes.name]
    (inner,) = ancestors_with(nodes.parent, (op, False))
    depth = _depth(nodes.parent.astype(np.int64))
    start = nodes.start_us
    node = np.flatnonzero(op)
    if np.isfinite(start[node]).all():
        node = node[np.lexsort((depth[node], start[node]))]
    row = np.full(graph.num_nodes + 1, NONE, np.int64)
    row[node] = np.arange(len(node))
    above = np.append(inner, NONE)[nodes.parent[node]]
    parent = row[np.where(above == NONE, graph.num_nodes, above)]
    owner = row[np.where(inner == NONE, graph.num_nodes, inner)]
    issuer = np.where((nodes.op >= 0) & (owner == NONE), nodes.op, NONE)
    owner = np.where(issuer >= 0, np.append(owner, NONE)[issuer], owner)
    return Forest(node, parent, _last(parent, depth[node]), owner)


def _depth(parent: I64) -> I64:
    """[n] number of ancestors, by pointer doubling."""
    n = len(parent)
    depth = np.append((parent >= 0).astype(np.int64), 0)
    jump = np.append(np.where(parent < 0, n, parent), n)
    while (jump[:-1] < n).any():
        depth = depth + depth[jump]
        jump = jump[jump]
    return depth[:-1]


def _last(parent: I64, depth: I64) -> I64:
    """[h] last row inside each op, level by level from the innermost."""
    last = np.arange(len(parent))
    order = np.argsort(-depth, kind="stable")
    bounds = np.flatnonzero(np.diff(depth[order])) + 1
    for rows in np.split(order, bounds):
        inside = rows[parent[rows] >= 0]
        np.maximum.at(last, parent[inside], last[inside])
    return last


@dataclass(frozen=True, eq=False)
class HostRecords:
    """One row per host op of a traced step, microseconds; waits for the device are taken out."""

    name: I64
    """[h] index into `names`"""
    names: tuple[str, ...]
    """distinct names of ops, as `op_names` gives them"""
    before_us: F64
    """[h] start of the op to the first op or launch inside it; all of it where nothing is inside"""
    between_us: F64
    """[h] between the ops and launches inside it, in all"""
    after_us: F64
    """[h] end of the last op or launch inside it to its own end"""
    gap_us: F64
    """[h] its end to the next op at top level of its thread; NaN inside others, where it is
    longer than `LONGEST_GAP_US`, and at the end"""
    inside: I64
    """[h] ops and launches directly inside it"""
    launches: I64
    """[h] launches directly inside it"""
    launch_us: F64
    """[l] own time of each call that launched device work"""

    @property
    def own_us(self) -> F64:
        """[h] time of the op itself."""
        return self.before_us + self.between_us + self.after_us

    @property
    def total_us(self) -> float:
        """Time of all ops, launches and the gaps between them."""
        return float(self.own_us.sum() + np.nansum(self.gap_us) + self.launch_us.sum())


def op_names(graph: ExecutionGraph, tree: Forest) -> list[str]:
    """[h] the name of each op, `ON_HOST` behind it where its tensors lie in host memory.

    Traces with launches show it: an op that would launch work launches nothing. Execution traces
    say where each tensor lies.
    """
    nodes = graph.nodes
    works = np.array([would_launch(text) for text in graph.strings], np.bool_)
    here = on_host_tensors(graph)[tree.node]
    launching = np.unique(nodes.launch[graph.device_nodes])
    owner = tree.row[launching[launching >= 0]]
    if len(owner):
        count = np.bincount(owner[owner >= 0], minlength=len(tree.node))
        total = np.concatenate([[0], np.cumsum(count)])
        here |= total[tree.last + 1] == total[np.arange(len(tree.node))]
    here &= works[nodes.name[tree.node]]
    text = [graph.strings[int(n)] for n in nodes.name[tree.node]]
    return [t + ON_HOST if h else t for t, h in zip(text, here.tolist(), strict=True)]


def host_records(graph: ExecutionGraph) -> HostRecords:
    """The host times of a step whose host ops have times."""
    nodes, tree = graph.nodes, forest(graph)
    count = len(tree.node)
    calls = np.flatnonzero(nodes.kind == NodeKind.RUNTIME)
    waits = find_waits(graph)
    cost = own_cost(graph, waits, calls, estimate(graph, waits)) if len(calls) else np.zeros(0)
    launching = np.isin(calls, nodes.launch[graph.device_nodes])
    owner = tree.row[calls]
    start, length = nodes.start_us[tree.node], nodes.duration_us[tree.node]
    # Things directly inside an op: ops and all calls cut its time, ops and launches are counted.
    inner = np.flatnonzero(tree.parent >= 0)
    called = np.flatnonzero(owner >= 0)
    thing = np.concatenate([tree.node[inner], calls[called]])
    holder = np.concatenate([tree.parent[inner], owner[called]])
    counted = np.concatenate([np.ones(len(inner), np.bool_), launching[called]])
    spent = np.bincount(holder, nodes.duration_us[thing], count)
    first, end = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, holder[counted], nodes.start_us[thing[counted]])
    last = nodes.start_us[thing] + nodes.duration_us[thing]
    np.maximum.at(end, holder[counted], last[counted])
    inside = np.bincount(holder[counted], minlength=count)
    quiet = called[~launching[called]]
    small = np.bincount(owner[quiet], cost[quiet], count)
    own: F64 = np.asarray(np.maximum(length - spent, 0.0) + small, np.float64)
    some = inside > 0
    before = np.where(some, np.clip(first - start, 0.0, own), own)
    after = np.where(some, np.clip(start + length - end, 0.0, own - before), 0.0)
    distinct, which = np.unique(np.array(op_names(graph, tree), np.str_), return_inverse=True)
    return HostRecords(
        name=which.astype(np.int64),
        names=tuple(distinct.tolist()),
        before_us=before,
        between_us=np.asarray(own - before - after, np.float64),
        after_us=after,
        gap_us=_gaps(graph, tree, waits),
        inside=inside,
        launches=np.bincount(owner[called[launching[called]]], minlength=count),
        launch_us=cost[launching],
    )


def _gaps(graph: ExecutionGraph, tree: Forest, waits: Waits) -> F64:
    """[h] from each op at top level to the next op, launch or wait of its thread at top level.

    Other calls of the runtime on the way (events, queries) are part of it.
    """
    nodes = graph.nodes
    waiting = waits.dst[waits.of_kind(EdgeKind.HOST_SYNC)]
    cuts = np.zeros(graph.num_nodes + 1, np.bool_)
    cuts[nodes.launch[graph.device_nodes]] = True
    cuts[waiting] = True
    gap = np.full(len(tree.node), np.nan)
    top = np.flatnonzero(tree.parent < 0)
    loose = np.flatnonzero(
        (nodes.kind == NodeKind.RUNTIME) & (tree.row < 0) & cuts[: graph.num_nodes]
    )
    thing = np.concatenate([tree.node[top], loose])
    row = np.concatenate([top, np.full(len(loose), NONE, np.int64)])
    order = np.lexsort((nodes.start_us[thing], nodes.lane[thing]))
    thing, row = thing[order], row[order]
    end = nodes.start_us[thing] + nodes.duration_us[thing]
    length = np.append(nodes.start_us[thing][1:] - end[:-1], np.inf)[: len(thing)]
    same: Bool = np.append(nodes.lane[thing][1:] == nodes.lane[thing][:-1], False)[: len(thing)]
    waited = np.isin(thing, waiting)
    good = same & (row >= 0) & ~waited & (length < LONGEST_GAP_US)
    gap[row[good]] = np.maximum(length[good], 0.0)
    return gap
