"""Which host op stands for the work that is done under it."""

from enum import IntEnum

import numpy as np

from gnnperf.graph import ExecutionGraph, NodeKind
from gnnperf.graph.model import I32, I64, NONE, ON_HOST, U8, Bool
from gnnperf.ops.parsers import has_no_work, is_composite, parser_of


class OpClass(IntEnum):
    """What is known of a host op by its name."""

    NOTHING = 0
    """no work of its own: views, allocation, wrappers, annotations, autograd nodes"""
    UNKNOWN = 1
    """an op that is in no table"""
    COMPOSITE = 2
    """in a table, but other ops inside it do the work where the trace shows them"""
    ATOMIC = 3
    """in a table; what it calls is part of its work"""


def _class_of(name: str) -> OpClass:
    if parser_of(name) is not None:
        return OpClass.COMPOSITE if is_composite(name) else OpClass.ATOMIC
    return OpClass.NOTHING if has_no_work(name) else OpClass.UNKNOWN


def op_classes(graph: ExecutionGraph) -> U8:
    """[n] OpClass of every node; NOTHING for nodes that are no host op."""
    host = graph.nodes.kind == NodeKind.HOST_OP
    names = np.unique(graph.nodes.name[host])
    by_name = np.zeros(len(graph.strings) + 1, np.uint8)
    by_name[names] = [_class_of(graph.strings[int(name)]) for name in names]
    return np.where(host, by_name[graph.nodes.name], OpClass.NOTHING).astype(np.uint8)


def tensor_counts(graph: ExecutionGraph) -> I64:
    """[n] input tensors of each node."""
    at = graph.arguments.tensor_ptr[graph.arguments.ptr]
    return np.diff(at)


def on_host_tensors(graph: ExecutionGraph) -> Bool:
    """[n] ops of a GPU's step all of whose input tensors are said to lie in host memory."""
    arguments = graph.arguments
    named = np.array([text.endswith(ON_HOST) for text in graph.strings] + [False], np.bool_)
    here, some = named[arguments.type], np.diff(arguments.tensor_ptr) > 0
    counts = [
        np.diff(np.concatenate([[0], np.cumsum(which)])[arguments.ptr])
        for which in (some & here, some & ~here)
    ]
    return np.asarray((counts[0] > 0) & (counts[1] == 0), np.bool_)


def ancestors_with(parent: I32, *queries: tuple[Bool, bool]) -> list[I32]:
    """For each query: [n] the innermost of a node and its ancestors that is wanted, else NONE.

    By pointer doubling: log2(depth) vectorized rounds, whatever the depth.

    Args:
        parent: [n] NONE at the top.
        queries: [n] what is wanted, and whether the outermost is asked for instead.
    """
    n = len(parent)
    rows = np.arange(n, dtype=np.int32)
    found = [np.append(np.where(w, rows, np.int32(NONE)), np.int32(NONE)) for w, _ in queries]
    jump = np.append(np.where(parent < 0, n, parent), n).astype(np.int32)
    while (jump[:-1] < n).any():
        for index, (_, outermost) in enumerate(queries):
            above = found[index][jump]
            take = (above != NONE) if outermost else (found[index] == NONE)
            found[index] = np.where(take, above, found[index])
        jump = jump[jump]
    return [answer[:-1] for answer in found]


def work_ops(graph: ExecutionGraph) -> I64:
    """[n] for each host op, the op whose work its launches do; NONE for other nodes.

    The outermost op of a table that does its work itself (a convolution's backward op rather than
    the fill inside it), else the innermost composite one (the trace shows nothing inside it), else
    the innermost op with tensors, else the op itself unless it is an annotation or a wrapper.
    """
    classes = op_classes(graph)
    host = graph.nodes.kind == NodeKind.HOST_OP
    itself = host & (classes != OpClass.NOTHING)
    result = np.where(itself, np.arange(graph.num_nodes), NONE)
    tensors = tensor_counts(graph) > 0
    for found in ancestors_with(
        graph.nodes.parent,
        (host & tensors & (classes != OpClass.NOTHING), False),
        (classes == OpClass.COMPOSITE, False),
        (classes == OpClass.ATOMIC, True),
    ):
        result = np.where(host & (found != NONE), found, result)
    return result


def leaf_ops(graph: ExecutionGraph) -> I64:
    """Host ops that would launch device work, in the order of the rows.

    Atomic ops; composite and unknown ones (with tensors) only if no such op lies inside them.
    Ops on tensors in host memory launch nothing, where the trace tells.
    """
    parent, classes = graph.nodes.parent, op_classes(graph)
    classes = np.where(on_host_tensors(graph), np.uint8(OpClass.NOTHING), classes)
    tensors = tensor_counts(graph) > 0
    (outer,) = ancestors_with(parent, (classes == OpClass.ATOMIC, True))
    leaf = outer == np.arange(graph.num_nodes)
    covered = _with_ancestors(parent, leaf)
    for kind in (OpClass.COMPOSITE, OpClass.UNKNOWN):
        wanted = (classes == kind) & tensors & ~covered & (outer == NONE)
        innermost = wanted & ~_strictly_above(parent, wanted)
        leaf = leaf | innermost
        covered = covered | _with_ancestors(parent, innermost)
    return np.flatnonzero(leaf)


def _with_ancestors(parent: I32, marked: Bool) -> Bool:
    """[n] marked nodes and everything above them."""
    result, frontier = marked.copy(), np.flatnonzero(marked)
    while len(frontier):
        above = np.unique(parent[frontier])
        frontier = above[(above != NONE) & ~result[above]]
        result[frontier] = True
    return result


def _strictly_above(parent: I32, marked: Bool) -> Bool:
    """[n] nodes that have a marked node inside them."""
    result = np.zeros(len(marked), np.bool_)
    above = parent[np.flatnonzero(marked)]
    result[above[above != NONE]] = True
    return _with_ancestors(parent, result)
