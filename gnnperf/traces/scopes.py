"""The scope of every node: the module whose call encloses it, or the annotation of the user."""

import numpy as np

from gnnperf.graph import NodeKind
from gnnperf.graph.model import F64, I32, I64, NONE, Bool
from gnnperf.traces.marks import is_step_mark
from gnnperf.traces.nesting import enclosing, nearest_marked
from gnnperf.traces.table import TraceTable, full, tolerance_us

_LAST = np.int64(1) << 62


def fill_scopes(table: TraceTable) -> None:
    """Fill the scope of every event.

    Host nodes take the path of the modules that enclose them (`Model_0.Linear_1`); the backward
    of an op that of its forward op, by their sequence number; without, the path of the user's
    annotations (`/forward/embedding`). Device work takes that of its launch.
    """
    n = len(table)
    table.scope = np.full(n, NONE, np.int32)
    if len(table.module_lane):
        _modules(table)
        _of_forward(table)
    _annotations(table)
    device = table.kind >= NodeKind.KERNEL
    issuer = np.where(table.launch >= 0, table.launch, table.op)
    from_issuer = np.append(table.scope, np.int32(NONE))[issuer]
    table.scope = np.where(device, from_issuer, table.scope).astype(np.int32)


def _modules(table: TraceTable) -> None:
    """Path of the innermost module whose call encloses each host node."""
    m = len(table.module_lane)
    host = np.flatnonzero(table.kind <= NodeKind.RUNTIME)
    lane = np.concatenate([table.module_lane, table.lane[host]])
    start: F64 = np.concatenate([table.module_start_us, table.start_us[host]])
    end = start + np.concatenate([table.module_duration_us, table.duration_us[host]])
    tie = np.concatenate([np.full(m, -2), table.external_id[host]])
    tie[m:][table.kind[host] == NodeKind.RUNTIME] = _LAST
    parent, depth = enclosing(lane, start, end, tie, tolerance_us(table))
    is_module = np.arange(len(lane)) < m
    above = np.append(nearest_marked(parent.astype(np.int32), is_module), NONE)[parent]
    paths = _paths(table, table.module_name, above[:m], depth[:m], ("", "."))
    table.scope[host] = np.append(paths, NONE)[above[m:]]


def _annotations(table: TraceTable) -> None:
    """Host nodes that no module encloses: path of the annotations that do, innermost last."""
    if not len(table.annotation):
        return
    names = table.names
    step = np.zeros(len(names), np.bool_)
    for index in np.unique(table.name[table.annotation]).tolist():
        step[index] = is_step_mark(names[index])
    rows = np.flatnonzero(table.annotation & ~step[table.name])
    marked = np.zeros(len(table), np.bool_)
    marked[rows] = True
    nearest = nearest_marked(table.parent, marked)
    outer = np.append(nearest, NONE)[table.parent]
    place = full(len(table) + 1)
    place[rows] = np.arange(len(rows))
    # An annotation starts after the one around it: the order of starts is one of depths.
    depth = np.argsort(np.argsort(table.start_us[rows], kind="stable"), kind="stable")
    paths = _paths(table, table.name[rows], place[outer[rows]], depth, ("/", "/"))
    open_ = (table.scope == NONE) & (table.kind <= NodeKind.RUNTIME)
    table.scope[open_] = np.append(paths, NONE)[place[nearest[open_]]]


def _of_forward(table: TraceTable) -> None:
    """Host nodes of the backward pass: the scope of the forward op whose gradient they compute."""
    if not len(table.autograd):
        return
    numbered = (table.autograd >= 0) & (table.kind == NodeKind.HOST_OP)
    backward = np.flatnonzero(numbered & (table.forward_thread > 0))
    forward = np.flatnonzero(numbered & (table.forward_thread <= 0) & (table.scope >= 0))
    linked = np.full(len(table), NONE, np.int32)
    for thread in np.unique(table.forward_thread[backward]).tolist():
        mine = backward[table.forward_thread[backward] == thread]
        made = _thread_of(table, mine, forward)
        # Ops that make no node of the graph carry the number of the next one that does.
        made = made[np.lexsort((table.start_us[made], table.autograd[made]))]
        numbers = table.autograd[made]
        place = np.searchsorted(numbers, table.autograd[mine], side="right") - 1
        found = made[np.maximum(place, 0)] if len(made) else np.zeros(len(mine), np.int64)
        same = (place >= 0) & (table.autograd[found] == table.autograd[mine])
        linked[mine[same]] = table.scope[found[same]]
    nearest = nearest_marked(table.parent, linked >= 0)
    open_: Bool = (table.scope == NONE) & (table.kind <= NodeKind.RUNTIME)
    table.scope[open_] = np.append(linked, np.int32(NONE))[nearest[open_]]


def _thread_of(table: TraceTable, backward: I64, forward: I64) -> I64:
    """The forward ops of the thread that most of the backward ops' numbers are from."""
    shared = np.isin(table.autograd[forward], table.autograd[backward])
    lanes, count = np.unique(table.lane[forward[shared]], return_counts=True)
    if not len(lanes):
        return forward[:0]
    made: I64 = forward[table.lane[forward] == lanes[np.argmax(count)]]
    return made


def _paths(table: TraceTable, name: I32, above: I64, depth: I64, marks: tuple[str, str]) -> I32:
    """[m] `Model_0.Linear_1` of every module call (annotation), as index into strings.

    Args:
        table: The trace.
        name: [m] name of each.
        above: [m] the one around each; NONE for the outermost.
        depth: [m] grows from the outer to the inner ones.
        marks: What a path begins with, and what stands between its parts.
    """
    paths = full(len(above), np.int32)
    known: dict[tuple[int, int], int] = {}
    for row in np.argsort(depth, kind="stable").tolist():
        outer = int(paths[above[row]]) if above[row] >= 0 else NONE
        key = (outer, int(name[row]))
        if key not in known:
            own = table.names[key[1]].removeprefix("nn.Module: ")
            start = marks[0] if outer == NONE else f"{table.names[outer]}{marks[1]}"
            known[key] = table.strings[start + own]
        paths[row] = known[key]
    return paths.astype(np.int32)
