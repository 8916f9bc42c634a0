"""Joins the events of a trace: calls to what encloses them, device work to what launched it."""

import re

import numpy as np

from gnnperf.graph import NodeKind, Phase
from gnnperf.graph.model import I64, NONE, Bool
from gnnperf.traces.collectives import mark_collectives
from gnnperf.traces.nesting import enclosing, nearest_marked
from gnnperf.traces.scopes import fill_scopes
from gnnperf.traces.table import TraceTable, full, tolerance_us

_BACKWARD = re.compile(r"evaluate_function|Backward\d*$|^autograd::")
_OPTIMIZER = re.compile(r"^Optimizer\.(step|zero_grad)|^## ?optimizer", re.IGNORECASE)
_LOADER = re.compile(r"DataLoader", re.IGNORECASE)
_INWARD = re.compile(r"HtoD|HostToDevice")
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
    fill_scopes(table)
    _input_copies(table)


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
    for index in np.unique(table.name[table.kind == NodeKind.HOST_OP]).tolist():
        text = texts[index]
        if _BACKWARD.search(text):
            told[index] = Phase.BACKWARD
        elif _OPTIMIZER.search(text):
            told[index] = Phase.OPTIMIZER
        elif _LOADER.search(text):
            told[index] = Phase.DATA
    host = table.kind <= NodeKind.RUNTIME
    own = np.where(table.kind == NodeKind.HOST_OP, told[table.name], 0)
    own[table.backward & (own == 0)] = Phase.BACKWARD
    nearest = nearest_marked(table.parent, own > 0)
    phase = np.append(own, 0)[nearest]
    silent = host & (nearest == NONE)
    phase[silent] = _by_thread(table, phase, host)[table.lane[silent]]
    device = table.kind >= NodeKind.KERNEL
    issuer = np.where(table.launch >= 0, table.launch, table.op)
    from_issuer = np.append(phase, Phase.UNKNOWN)[issuer]
    table.phase = np.where(device, from_issuer, phase).astype(np.uint8)


def _by_thread(table: TraceTable, phase: I64, host: Bool) -> I64:
    """[lanes] phase of what tells none: backward on the threads of the backward pass.

    Those begin with it, or run mostly it beside another thread; one that also loads data or runs
    the optimizer is none. A thread without any op tells nothing.
    """
    lanes = len(table.lanes.kind)
    ops = np.flatnonzero(host & (table.kind == NodeKind.HOST_OP))
    ops = ops[np.argsort(table.start_us[ops], kind="stable")]
    backward = phase[ops] == Phase.BACKWARD
    total = np.bincount(table.lane[ops], minlength=lanes)
    mostly = 2 * np.bincount(table.lane[ops[backward]], minlength=lanes) > total
    mostly &= (total > 0).sum() > 1
    used, first = np.unique(table.lane[ops], return_index=True)
    mostly[used] |= backward[first]
    mostly[table.lane[ops[np.isin(phase[ops], (Phase.OPTIMIZER, Phase.DATA))]]] = False
    return np.where(total > 0, np.where(mostly, Phase.BACKWARD, Phase.FORWARD), Phase.UNKNOWN)


def _input_copies(table: TraceTable) -> None:
    """Copies from the host that the forward pass issues outside of all modules move its data."""
    copies = np.flatnonzero((table.kind == NodeKind.COPY) & (table.phase == Phase.FORWARD))
    copies = copies[table.scope[copies] == NONE] if len(table.module_lane) else copies
    names = table.names
    used = np.unique(table.name[copies]).tolist()
    inward = [i for i in used if _INWARD.search(names[i])]
    table.phase[copies[np.isin(table.name[copies], inward)]] = Phase.DATA
