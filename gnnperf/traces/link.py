"""Joins the events of a trace: calls to what encloses them, device work to what launched it."""

import re

import numpy as np

from gnnperf.graph import NodeKind, Phase
from gnnperf.graph.model import F64, I32, I64, NONE, Bool
from gnnperf.traces.collectives import mark_collectives
from gnnperf.traces.nesting import enclosing, nearest_marked
from gnnperf.traces.table import TraceTable, full

ROUNDING_US = 0.002
"""Parents and children overlap by up to this where times have nanoseconds."""

_BACKWARD = re.compile(r"evaluate_function|Backward\d*$|^autograd::")
_OPTIMIZER = re.compile(r"^Optimizer\.(step|zero_grad)|^## ?optimizer", re.IGNORECASE)
_LOADER = re.compile(r"DataLoader", re.IGNORECASE)
_LAST = np.int64(1) << 62


def link(table: TraceTable) -> None:
    """Fill parent, op, launch, scope and phase of every event, and mark collectives."""
    given = table.op
    if not len(table.parent):
        table.parent = _parents(table).astype(np.int32)
    host_op = table.kind == NodeKind.HOST_OP
    table.launch = _launches(table).astype(np.int32)
    inner, outer = (nearest_marked(table.parent, m) for m in (table.is_op, host_op))
    runtime = table.kind == NodeKind.RUNTIME
    op = np.where(runtime, np.where(inner >= 0, inner, outer), NONE)
    device = table.kind >= NodeKind.KERNEL
    table.op = np.where(device, np.append(op, NONE)[table.launch], op).astype(np.int32)
    if len(given):
        table.op = np.where(table.op == NONE, given, table.op).astype(np.int32)
    mark_collectives(table)
    _phases(table)
    _scopes(table)


def _parents(table: TraceTable) -> I64:
    """Innermost host op or call that encloses each on its thread."""
    host = np.flatnonzero(table.kind <= NodeKind.RUNTIME)
    start = table.start_us[host]
    runtime = table.kind[host] == NodeKind.RUNTIME
    tie = np.where(runtime, _LAST, table.external_id[host])
    found, _ = enclosing(
        table.lane[host], start, start + table.duration_us[host], tie, tolerance_us(table)
    )
    parent = full(len(table))
    parent[host] = np.append(host, NONE)[found]
    return parent


def tolerance_us(table: TraceTable) -> float:
    """How far the times of one thread may overlap by rounding."""
    fraction = bool((table.duration_us % 1.0 != 0).any())
    if not fraction:
        return 0.0
    return max(ROUNDING_US, 2 * float(np.spacing(table.clock_us)))


def _launches(table: TraceTable) -> I64:
    """Runtime call of equal correlation id, of every device event; NONE without."""
    calls = np.flatnonzero((table.kind == NodeKind.RUNTIME) & (table.correlation > 0))
    launch = full(len(table))
    if not len(calls):
        return launch
    calls = calls[np.argsort(table.correlation[calls], kind="stable")]
    ids = table.correlation[calls]
    device = np.flatnonzero((table.kind >= NodeKind.KERNEL) & (table.correlation > 0))
    place = np.searchsorted(ids, table.correlation[device], side="right") - 1
    found = calls[np.maximum(place, 0)]
    usable = (place >= 0) & (table.correlation[found] == table.correlation[device])
    launch[device] = np.where(usable, found, NONE)
    return launch


def _phases(table: TraceTable) -> None:
    """Phase of the nearest enclosing op that tells one; the rest by what its thread does."""
    texts = table.names
    told = np.zeros(len(texts), np.uint8)
    loader = np.zeros(len(texts), np.bool_)
    for index in np.unique(table.name[table.kind == NodeKind.HOST_OP]).tolist():
        text = texts[index]
        if _BACKWARD.search(text):
            told[index] = Phase.BACKWARD
        elif _OPTIMIZER.search(text):
            told[index] = Phase.OPTIMIZER
        loader[index] = bool(_LOADER.search(text))
    host = table.kind <= NodeKind.RUNTIME
    own = np.where(table.kind == NodeKind.HOST_OP, told[table.name], 0)
    own[table.backward & (own == 0)] = Phase.BACKWARD
    unknown = loader[table.name] & host
    nearest = nearest_marked(table.parent, (own > 0) | unknown)
    phase = np.append(own, 0)[nearest]
    silent = host & (nearest == NONE)
    phase[silent] = _by_thread(table, phase, host)[table.lane[silent]]
    device = table.kind >= NodeKind.KERNEL
    issuer = np.where(table.launch >= 0, table.launch, table.op)
    from_issuer = np.append(phase, Phase.UNKNOWN)[issuer]
    table.phase = np.where(device, from_issuer, phase).astype(np.uint8)


def _by_thread(table: TraceTable, phase: I64, host: Bool) -> I64:
    """[lanes] phase of what tells none: backward on threads that mostly run the backward."""
    lanes = len(table.lanes.kind)
    ops = host & (table.kind == NodeKind.HOST_OP)
    total = np.bincount(table.lane[ops], minlength=lanes)
    backward = np.bincount(table.lane[ops & (phase == Phase.BACKWARD)], minlength=lanes)
    return np.where(2 * backward > total, Phase.BACKWARD, Phase.FORWARD)


def _scopes(table: TraceTable) -> None:
    """Path of the innermost module whose call encloses each host node."""
    n, m = len(table), len(table.module_lane)
    table.scope = np.full(n, NONE, np.int32)
    if m == 0:
        return
    host = np.flatnonzero(table.kind <= NodeKind.RUNTIME)
    lane = np.concatenate([table.module_lane, table.lane[host]])
    start: F64 = np.concatenate([table.module_start_us, table.start_us[host]])
    end = start + np.concatenate([table.module_duration_us, table.duration_us[host]])
    tie = np.concatenate([np.full(m, -2), table.external_id[host]])
    tie[m:][table.kind[host] == NodeKind.RUNTIME] = _LAST
    parent, depth = enclosing(lane, start, end, tie, tolerance_us(table))
    is_module = np.arange(len(lane)) < m
    above = np.append(nearest_marked(parent.astype(np.int32), is_module), NONE)[parent]
    paths = _paths(table, above[:m], depth[:m])
    table.scope[host] = np.append(paths, NONE)[above[m:]]
    device = table.kind >= NodeKind.KERNEL
    from_launch = np.append(table.scope, np.int32(NONE))[table.launch]
    table.scope = np.where(device, from_launch, table.scope)


def _paths(table: TraceTable, above: I64, depth: I64) -> I32:
    """[m] `Model_0.Linear_1` of every module call, as index into strings."""
    paths = full(len(above), np.int32)
    known: dict[tuple[int, int], int] = {}
    for row in np.argsort(depth, kind="stable").tolist():
        outer = int(paths[above[row]]) if above[row] >= 0 else NONE
        key = (outer, int(table.module_name[row]))
        if key not in known:
            own = table.names[key[1]].removeprefix("nn.Module: ")
            path = own if outer == NONE else f"{table.names[outer]}.{own}"
            known[key] = table.strings[path]
        paths[row] = known[key]
    return paths.astype(np.int32)
