"""Which device work is a collective, of what kind and size, and how ranks meet in it."""

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import yaml

from gnnperf.graph import Collectives, NodeKind, dtype_bytes
from gnnperf.graph.model import F64, I32, I64, NONE, Bool
from gnnperf.traces.nesting import nearest_marked
from gnnperf.traces.table import CollectiveTable, TraceTable, full


@dataclass(frozen=True)
class Names:
    """The patterns of `collective_names.yaml`."""

    kernels: tuple[re.Pattern[str], ...]
    ops: tuple[re.Pattern[str], ...]
    kinds: tuple[tuple[str, re.Pattern[str]], ...]

    def is_collective(self, name: str) -> bool:
        """Whether a kernel of that name communicates."""
        low = name.lower()
        return any(p.search(low) for p in self.kernels)

    def communicates(self, name: str) -> bool:
        """Whether an op of that name issues collectives."""
        low = name.lower()
        return self.is_collective(name) or any(p.search(low) for p in self.ops)

    def kind(self, name: str) -> str | None:
        """The kind that a name tells; None if it tells none."""
        low = name.lower()
        return next((kind for kind, p in self.kinds if p.search(low)), None)


@cache
def names() -> Names:
    """The patterns, read once."""
    text = resources.files("gnnperf.traces").joinpath("collective_names.yaml").read_text()
    table = yaml.safe_load(text)
    return Names(
        tuple(re.compile(p) for p in table["kernels"]),
        tuple(re.compile(p) for p in table["ops"]),
        tuple((kind, re.compile(p)) for kind, p in table["kinds"]),
    )


def mark_collectives(table: TraceTable) -> None:
    """Give kernels that communicate their kind of node, and one row each of what is known."""
    texts = table.names
    patterns = names()
    kernel = table.kind == NodeKind.KERNEL
    used = np.unique(table.name[kernel])
    communicating = np.zeros(len(texts), np.bool_)
    communicating[used] = [patterns.is_collective(texts[i]) for i in used]
    marked = kernel & communicating[table.name]
    said = np.zeros(len(table), np.bool_)
    said[table.collectives.event] = True
    marked |= kernel & said
    table.kind[marked] = NodeKind.COLLECTIVE
    table.collectives = _rows(table, np.flatnonzero(marked), said)
    table.bytes[table.collectives.event] = np.maximum(
        table.collectives.input_bytes, table.collectives.output_bytes
    )


def _rows(table: TraceTable, nodes: I64, said: Bool) -> CollectiveTable:
    """One row per collective node: from its own record, else from the op that issued it."""
    found = table.collectives
    row_of = full(len(table) + 1)
    row_of[found.event] = np.arange(len(found.event))
    op = table.op[nodes]
    around = np.append(nearest_marked(table.parent, said), NONE)[op]
    row = np.where(row_of[nodes] >= 0, row_of[nodes], row_of[around])
    columns = {}
    for name in ("group", "sequence", "input_bytes", "output_bytes", "group_size", "ranks"):
        values = getattr(found, name)
        columns[name] = np.append(values, values.dtype.type(NONE))[row]
    size = _bytes_of_ops(table, op)
    columns["input_bytes"] = np.where(columns["input_bytes"] >= 0, columns["input_bytes"], size)
    kind = np.append(found.kind, np.int32(NONE))[row]
    return CollectiveTable(event=nodes, kind=_kinds(table, nodes, kind), **columns)


def _kinds(table: TraceTable, nodes: I64, recorded: I32) -> I32:
    """Kind of each collective as index into strings, in the names that gnnperf uses."""
    patterns = names()
    known = [patterns.kind(text) for text in table.names]
    asked = [patterns.communicates(text) for text in table.names]
    result = []
    for node, text in zip(nodes.tolist(), recorded.tolist(), strict=True):
        told = [known[text]] if text >= 0 else []
        told.append(patterns.kind(_kernel_words(table.names[table.name[node]])))
        op = int(table.op[node])
        while op >= 0:
            if asked[table.name[op]]:
                told.append(known[table.name[op]])
            op = int(table.parent[op])
        certain = next((k for k in told if k and k != "send_recv"), None)
        kind = certain or next((k for k in told if k), None)
        result.append(table.strings[kind] if kind else NONE)
    return np.array(result, np.int32)


def _kernel_words(name: str) -> str:
    """A kernel's name without its arguments, which may name other things."""
    return re.sub(r"\(.*", "", name)


def _bytes_of_ops(table: TraceTable, op: I32) -> I64:
    """Bytes that the issuing op (or one around it that communicates) takes in; NONE if unknown."""
    patterns = names()
    used = np.unique(table.name[table.kind == NodeKind.HOST_OP])
    asked = np.zeros(len(table.names), np.bool_)
    asked[used] = [patterns.communicates(table.names[i]) for i in used]
    sizes = np.append(signature_bytes(table), 0.0)
    has = (sizes[table.signature] > 0) & asked[table.name]
    holder = np.append(nearest_marked(table.parent, has), NONE)[op]
    total = sizes[np.append(table.signature, NONE)[holder]]
    return whole_bytes(total, total > 0)


def whole_bytes(count: F64, known: Bool) -> I64:
    """[n] bytes as integers; NONE where not known, or past 64 bits."""
    return np.where(known & (count < 2.0**63), count, NONE).astype(np.int64)


def signature_bytes(table: TraceTable) -> F64:
    """[s] bytes of the first argument that holds tensors, of every signature; 0 if unknown."""
    arguments, tensors = table.signatures.arguments, table.signatures.tensors
    width = np.array([dtype_bytes(int(d)) for d in tensors.dtype])
    dims = np.maximum(tensors.dims, 0).astype(np.float64)
    numel = np.array(
        [np.prod(dims[a:b]) for a, b in zip(tensors.dim_ptr, tensors.dim_ptr[1:], strict=False)]
    )
    cumulated = np.concatenate([[0.0], np.cumsum(numel * width)]) if len(width) else np.zeros(1)
    per_argument = cumulated[arguments.tensor_ptr[1:]] - cumulated[arguments.tensor_ptr[:-1]]
    result = np.zeros(len(arguments.ptr) - 1)
    for row, (a, b) in enumerate(zip(arguments.ptr, arguments.ptr[1:], strict=False)):
        holding = per_argument[a:b]
        result[row] = next((v for v in holding if v > 0), 0.0)
    return result


def graph_collectives(table: TraceTable, new: I64) -> Collectives:
    """The rows of one graph; `new` maps events to its nodes (NONE: not in it)."""
    said = table.collectives
    rows = np.flatnonzero(new[said.event] >= 0)
    texts = table.names
    ranks = [_numbers_of_ranks(texts[r]) if r >= 0 else [] for r in said.ranks[rows]]
    size = said.group_size[rows].astype(np.int32)
    return Collectives(
        node=new[said.event[rows]].astype(np.int32),
        kind=said.kind[rows].astype(np.int32),
        group=said.group[rows].astype(np.int32),
        sequence=said.sequence[rows].astype(np.int64),
        input_bytes=said.input_bytes[rows].astype(np.int64),
        output_bytes=said.output_bytes[rows].astype(np.int64),
        group_size=size,
        rank_ptr=np.concatenate([[0], np.cumsum([len(r) for r in ranks])]).astype(np.int64),
        ranks=np.array([r for row in ranks for r in row], np.int32),
    )


def _numbers_of_ranks(text: str) -> list[int]:
    """The ranks of `[0, 1, 2]`; none where one of them is no rank."""
    found = [int(word) for word in re.findall(r"\d+", text)]
    return found if all(rank <= np.iinfo(np.int32).max for rank in found) else []
