"""Joins an execution trace to the Kineto trace of the same run: shapes, types and tensors.

Ids are used where they prove right (the names of most ops agree); else the ops of a thread are
found as one run of equal names in the order of a Kineto thread, wherever that run occurs: a
Kineto trace of many steps holds an execution trace of one step many times.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from gnnperf.graph import NodeKind, Tensors
from gnnperf.graph.model import I32, I64, NONE, Arguments
from gnnperf.traces.marks import is_step_mark
from gnnperf.traces.table import CollectiveTable, Signatures, TraceTable, full

PROOF = 0.9
"""Share of names that must agree for ids, or for a run of ops, to be believed."""
RARE = 50
"""Names that occur more often do not vote on where a run starts."""


@dataclass(frozen=True)
class Matched:
    """Ops of a Kineto trace and their nodes of the execution trace."""

    kineto: I64
    node: I64
    by: str
    """record function id, external id, or names in order"""


def join(kineto: TraceTable, trace: TraceTable) -> tuple[TraceTable, Matched]:
    """The Kineto table with the arguments of the execution trace on the ops that match."""
    matched = _match(kineto, trace)
    if not len(matched.kineto):
        warning = f"no op of {trace.meta.source} found in it; its shapes are not used"
        meta = replace(kineto.meta, warnings=(*kineto.meta.warnings, warning))
        return replace(kineto, meta=meta), matched
    base = len(kineto.signatures.arguments.ptr) - 1
    joined = replace(
        kineto,
        signatures=_appended(kineto, trace),
        collectives=_records(kineto, trace, matched),
    )
    joined.signature = kineto.signature.copy()
    joined.signature[matched.kineto] = trace.signature[matched.node] + base
    joined.output_signature = np.full(len(kineto), NONE, np.int32)
    joined.output_signature[matched.kineto] = trace.output_signature[matched.node] + base
    found = len(np.unique(matched.node))
    total = int((trace.kind == NodeKind.HOST_OP).sum())
    notes = (
        *kineto.meta.notes,
        ("execution_trace", trace.meta.source),
        ("execution_trace_sha256", trace.meta.sha256),
        ("execution_trace_link", f"{found} of {total} nodes by {matched.by}"),
    )
    joined.meta = replace(
        kineto.meta,
        format="et+kineto",
        schema=f"{kineto.meta.schema}+{trace.meta.schema}",
        notes=notes,
    )
    return joined, matched


def _match(kineto: TraceTable, trace: TraceTable) -> Matched:
    ops = _ops(kineto)
    nodes = _ops(trace)
    names = {text: i for i, text in enumerate(trace.names)}
    code = np.array([names.get(text, NONE) for text in kineto.names], np.int64)
    for by in ("record_function", "external_id"):
        found = _by_id(kineto, trace, by, (ops, nodes), code)
        if found is not None:
            return found
    pairs = list(_by_names(kineto, trace, ops, nodes, code))
    if not pairs:
        none = np.zeros(0, np.int64)
        return Matched(none, none, "")
    return Matched(
        np.concatenate([k for k, _ in pairs]), np.concatenate([n for _, n in pairs]), "names"
    )


def _ops(table: TraceTable) -> I64:
    """Host ops in the order in which they started."""
    marks = np.array([is_step_mark(n) for n in table.names])
    rows = np.flatnonzero((table.kind == NodeKind.HOST_OP) & ~marks[table.name])
    return rows[np.lexsort((table.external_id[rows], table.start_us[rows]))]


def _by_id(
    kineto: TraceTable, trace: TraceTable, by: str, rows: tuple[I64, I64], code: I64
) -> Matched | None:
    ops, nodes = rows
    if not len(getattr(kineto, by)) or not len(ops):
        return None
    ids = getattr(kineto, by)[ops]
    order = np.argsort(ids, kind="stable")
    wanted = trace.external_id[nodes]
    place = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    found = ops[order[place]]
    agree = (getattr(kineto, by)[found] == wanted) & (wanted > 0)
    agree &= code[kineto.name[found]] == trace.name[nodes]
    if agree.mean() < PROOF:
        return None
    return Matched(found[agree], nodes[agree], by.replace("_", " "))


def _by_names(
    kineto: TraceTable, trace: TraceTable, ops: I64, nodes: I64, code: I64
) -> Iterator[tuple[I64, I64]]:
    """Pairs of rows, a run of equal names at a time."""
    taken: set[int] = set()
    for lane in np.unique(trace.lane[nodes]).tolist():
        own = nodes[trace.lane[nodes] == lane]
        wanted = trace.name[own].astype(np.int64)
        for thread in np.unique(kineto.lane[ops]).tolist():
            if thread in taken:
                continue
            candidates = ops[kineto.lane[ops] == thread]
            starts = _runs(code[kineto.name[candidates]], wanted)
            if starts:
                taken.add(thread)
                for start in starts:
                    yield candidates[start : start + len(own)], own
                break
        else:
            yield from _nearly(kineto, ops, code, own, wanted)


def _runs(names: I64, wanted: I64) -> list[int]:
    """Where a run of names occurs, without overlap."""
    text, pattern = names.tobytes(), wanted.tobytes()
    starts, place = [], text.find(pattern)
    while place >= 0:
        if place % names.itemsize == 0:
            starts.append(place // names.itemsize)
            place = text.find(pattern, place + len(pattern))
        else:
            place = text.find(pattern, place + 1)
    return starts


def _nearly(
    kineto: TraceTable, ops: I64, code: I64, own: I64, wanted: I64
) -> Iterator[tuple[I64, I64]]:
    """The offset on which most rare names agree, if enough ops agree with it."""
    best: tuple[float, I64, I64] = (0.0, own[:0], own[:0])
    for thread in np.unique(kineto.lane[ops]).tolist():
        candidates = ops[kineto.lane[ops] == thread]
        names = code[kineto.name[candidates]]
        votes = [
            place - i
            for i, name in enumerate(wanted.tolist())
            if 0 < len(at := np.flatnonzero(names == name)) <= RARE
            for place in at.tolist()
        ]
        if not votes:
            continue
        offsets, counts = np.unique(votes, return_counts=True)
        offset = int(offsets[np.argmax(counts)])
        index = np.arange(len(own)) + offset
        inside = (index >= 0) & (index < len(candidates))
        agree = inside.copy()
        agree[inside] = names[index[inside]] == wanted[inside]
        if agree.mean() > best[0]:
            best = (float(agree.mean()), candidates[index[agree]], own[agree])
    if best[0] >= PROOF:
        yield best[1], best[2]


def _records(kineto: TraceTable, trace: TraceTable, matched: Matched) -> CollectiveTable:
    """What either says of collectives; the Kineto trace's own record goes first."""
    own, other = kineto.collectives, trace.collectives
    text = np.append(kineto.strings.codes(trace.names), np.int32(NONE))
    row_of = full(len(trace))
    row_of[other.event] = np.arange(len(other.event))
    row = row_of[matched.node]
    new = (row >= 0) & ~np.isin(matched.kineto, own.event)
    events, row = matched.kineto[new], row[new]
    columns = {"event": np.concatenate([own.event, events])}
    for column in fields(CollectiveTable):
        if column.name != "event":
            values = getattr(other, column.name)[row]
            if column.name in ("kind", "group", "ranks"):
                values = text[values]
            columns[column.name] = np.concatenate([getattr(own, column.name), values])
    return CollectiveTable(**columns)


def _appended(kineto: TraceTable, trace: TraceTable) -> Signatures:
    """The signatures of both, those of the execution trace last."""
    left, right = kineto.signatures, trace.signatures
    text: I32 = kineto.strings.codes(trace.names)
    text = np.append(text, np.int32(NONE))
    arguments = Arguments(
        _chained(left.arguments.ptr, right.arguments.ptr),
        np.concatenate([left.arguments.type, text[right.arguments.type]]),
        np.concatenate([left.arguments.value, text[right.arguments.value]]),
        _chained(left.arguments.tensor_ptr, right.arguments.tensor_ptr),
    )
    columns = {
        f.name: np.concatenate([getattr(left.tensors, f.name), getattr(right.tensors, f.name)])
        for f in fields(Tensors)
        if f.name != "dim_ptr"
    }
    pointer = _chained(left.tensors.dim_ptr, right.tensors.dim_ptr)
    return Signatures(arguments, Tensors(dim_ptr=pointer, **columns))


def _chained(left: I64, right: I64) -> I64:
    return np.concatenate([left, right[1:] + left[-1]])
