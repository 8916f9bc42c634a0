"""Chakra execution traces (`.et`): length-delimited protobuf messages.

Field numbers: mlcommons/chakra, schema/protobuf/et_def.proto (version 0.0.4).
"""

import ast
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from gnnperf.errors import InputError
from gnnperf.graph import EdgeKind, Edges, GraphMeta, LaneKind, Lanes, NodeKind
from gnnperf.graph.model import NONE, U8
from gnnperf.traces.signatures import SignatureBuilder, execution_trace_row
from gnnperf.traces.source import Source
from gnnperf.traces.table import CollectiveTable, Interner, StepMarks, TraceTable, empty_table

MEMORY, COMPUTE, SEND, RECEIVE, COLLECTIVE = (2, 3), 4, 5, 6, 7
"""Values of a node's type."""
_TYPES = range(1, 11)
KINDS = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all",
    "reduce_scatter", "reduce_scatter", "barrier",
)  # fmt: skip
"""Kinds of collectives, by the number in `comm_type`."""

_SCALARS = {
    "double": (3, "double"), "float": (5, "float"), "int32": (7, "int32"), "int64": (9, "int64"),
    "uint32": (11, "uint32"), "uint64": (13, "uint64"), "sint32": (15, "sint32"),
    "sint64": (17, "sint64"), "fixed32": (19, "fixed32"), "fixed64": (21, "fixed64"),
    "bool": (27, "bool"), "string": (29, "string"),
}  # fmt: skip
_NODE = (
    ("id", 1, "uint64", False), ("name", 2, "string", False), ("type", 3, "int32", False),
    ("ctrl_deps", 4, "uint64", True), ("data_deps", 5, "uint64", True),
    ("start_time_micros", 6, "uint64", False), ("duration_micros", 7, "uint64", False),
    ("inputs", 8, "IOInfo", False), ("outputs", 9, "IOInfo", False),
    ("attr", 10, "AttributeProto", True),
)  # fmt: skip
_IO = (
    ("values", 1, "string", False),
    ("shapes", 2, "string", False),
    ("types", 3, "string", False),
)
_METADATA = (("version", 1, "string", False), ("attr", 2, "AttributeProto", True))
_PACKAGE = "gnnperf.chakra"


@cache
def messages() -> dict[str, Any]:
    """The message classes `Node`, `GlobalMetadata`, `AttributeProto`, `IOInfo`."""
    attribute = (
        ("name", 1, "string", False),
        *((f"{name}_val", number, kind, False) for name, (number, kind) in _SCALARS.items()),
    )
    tables = {
        "AttributeProto": attribute,
        "IOInfo": _IO,
        "Node": _NODE,
        "GlobalMetadata": _METADATA,
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="gnnperf_chakra.proto", package=_PACKAGE, syntax="proto3"
    )
    scalar = descriptor_pb2.FieldDescriptorProto
    for message, rows in tables.items():
        made = file.message_type.add(name=message)
        for name, number, kind, repeated in rows:
            label = scalar.LABEL_REPEATED if repeated else scalar.LABEL_OPTIONAL
            entry = made.field.add(name=name, number=number, label=label)
            if kind in tables:
                entry.type, entry.type_name = scalar.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                entry.type = getattr(scalar, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in tables
    }


def sniff(source: Source) -> bool:
    """Whether a file is a run of length-delimited Chakra messages: the first two must parse."""
    try:
        for index, raw in enumerate(_delimited(source.data)):
            if not (_is_node(raw) or (index == 0 and _is_metadata(raw))):
                return False
            if index == 1:
                break
    except (DecodeError, ValueError):
        return False
    return len(source.data) > 0


def _is_node(raw: bytes) -> bool:
    try:
        node = messages()["Node"].FromString(raw)
    except DecodeError:
        return False
    return node.type in _TYPES and bool(node.name)


def _is_metadata(raw: bytes) -> bool:
    try:
        metadata = messages()["GlobalMetadata"].FromString(raw)
    except DecodeError:
        return False
    return bool(metadata.version) or any(a.name for a in metadata.attr)


def _delimited(data: bytes) -> Iterator[bytes]:
    """The messages of a file, each after its length as a varint."""
    place, end = 0, len(data)
    while place < end:
        size = shift = 0
        while True:
            if place >= end or shift > 63:
                raise ValueError("a length is cut off")
            byte = data[place]
            place += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if place + size > end:
            raise ValueError(f"a message of {size} bytes is cut off at byte {place}")
        yield data[place : place + size]
        place += size


def read(source: Source) -> TraceTable:
    """The nodes of one file: ops of the CPU as host ops, the rest as device work.

    Raises:
        InputError: A message is cut off or of another layout; the file holds no node.
    """
    nodes, version = [], ""
    try:
        for index, raw in enumerate(_delimited(source.data)):
            if index == 0 and not _is_node(raw):
                version = messages()["GlobalMetadata"].FromString(raw).version
            else:
                nodes.append(messages()["Node"].FromString(raw))
    except (DecodeError, ValueError) as why:
        raise InputError(
            f"truncated or damaged Chakra trace after {len(nodes)} nodes: {why}",
            path=source.name,
            remedy="write it again",
        ) from why
    if not nodes:
        raise InputError("holds no node", path=source.name)
    return _table(source, nodes, version)


def _table(source: Source, nodes: list[Any], version: str) -> TraceTable:
    strings = Interner()
    attributes = [{a.name: _value(a) for a in node.attr} for node in nodes]
    kinds = np.array([_kind(n, a) for n, a in zip(nodes, attributes, strict=True)], np.uint8)
    keys = [
        (LaneKind.THREAD if k == NodeKind.HOST_OP else LaneKind.STREAM, _lane(n, a))
        for k, n, a in zip(kinds, nodes, attributes, strict=True)
    ]
    rows = sorted(set(keys))
    lanes = Lanes(
        np.array([k for k, _ in rows], np.uint8),
        np.array([NONE if k == LaneKind.THREAD else 0 for k, _ in rows], np.int32),
        np.array([number for _, number in rows], np.int64),
        np.array([strings[f"{k.name.lower()} {number}"] for k, number in rows], np.int32),
    )
    table = empty_table(len(nodes), strings, lanes, _meta(source, version, attributes))
    table.kind = np.where(kinds == NodeKind.COLLECTIVE, NodeKind.KERNEL, kinds).astype(np.uint8)
    table.name = strings.codes([n.name for n in nodes])
    place = {key: i for i, key in enumerate(rows)}
    table.lane = np.array([place[k] for k in keys], np.int32)
    table.bytes = np.array([int(a.get("tensor_size", NONE)) for a in attributes], np.int64)
    _times(table, nodes)
    _edges(table, nodes)
    _arguments(table, nodes)
    table.collectives = _collectives(table, kinds, nodes, attributes)
    table.marks = [StepMarks("whole", ("whole",), np.array([-np.inf]), np.array([_end(table)]))]
    return table


def _value(attribute: Any) -> Any:  # noqa: ANN401
    """The value of an attribute, whichever of its fields is set; None for a list."""
    for field, value in attribute.ListFields():
        if field.name != "name":
            return value
    return 0


def _kind(node: Any, attributes: dict[str, Any]) -> NodeKind:  # noqa: ANN401
    if attributes.get("is_cpu_op"):
        return NodeKind.HOST_OP
    if node.type in (SEND, RECEIVE, COLLECTIVE):
        return NodeKind.COLLECTIVE
    return NodeKind.COPY if node.type in MEMORY else NodeKind.KERNEL


def _lane(node: Any, attributes: dict[str, Any]) -> int:  # noqa: ANN401
    """Thread or stream as recorded; else one stream for what computes, others for the rest."""
    for name in ("stream", "tid"):
        if name in attributes:
            return int(attributes[name] or 0)
    return 0 if node.type == COMPUTE else int(node.type)


def _times(table: TraceTable, nodes: list[Any]) -> None:
    start = np.array([n.start_time_micros for n in nodes], np.float64)
    duration = np.array([n.duration_micros for n in nodes], np.float64)
    # Communication of no time has not been timed: simulators fill it in.
    silent = np.array([n.type in (SEND, RECEIVE, COLLECTIVE) for n in nodes]) & (duration == 0)
    known = ~silent if duration.any() else np.zeros(len(nodes), np.bool_)
    table.duration_us = np.where(known, duration, np.nan)
    if start.any():
        table.origin_us = float(start.min())
        table.start_us = start - table.origin_us


def _end(table: TraceTable) -> float:
    """When the last node ends; infinite where no start is known."""
    ends = table.start_us + table.duration_us
    return float(np.nanmax(ends)) if np.isfinite(ends).any() else np.inf


def _edges(table: TraceTable, nodes: list[Any]) -> None:
    """Data dependencies as DATA, control dependencies as PROGRAM; a parent is one as well."""
    row = {node.id: i for i, node in enumerate(nodes)}
    found: list[tuple[int, int, int]] = []
    for i, node in enumerate(nodes):
        found += [(row[d], i, EdgeKind.DATA) for d in node.data_deps if d in row]
        found += [(row[d], i, EdgeKind.PROGRAM) for d in node.ctrl_deps if d in row]
        above = next((row[d] for d in node.ctrl_deps if d in row), NONE)
        if above != NONE and table.kind[above] == NodeKind.HOST_OP:
            if table.kind[i] == NodeKind.HOST_OP:
                table.parent[i] = above if above < i else NONE
            else:
                table.op[i] = above
    missing = sum(d not in row for n in nodes for d in (*n.data_deps, *n.ctrl_deps))
    if missing:
        table.counts["dependencies on nodes that are not there"] = missing
    columns = np.array(found, np.int64).reshape(-1, 3)
    table.edges = Edges(
        columns[:, 0].astype(np.int32),
        columns[:, 1].astype(np.int32),
        columns[:, 2].astype(np.uint8),
    )


def _arguments(table: TraceTable, nodes: list[Any]) -> None:
    builder = SignatureBuilder(table.strings)
    for node in nodes:
        for side in (node.inputs, node.outputs):
            values, shapes, types = (_literal(t) for t in (side.values, side.shapes, side.types))
            execution_trace_row(builder, values, shapes, types)
            builder.end_row()
    table.signatures = builder.build()
    host = table.kind == NodeKind.HOST_OP
    rows = np.arange(len(nodes), dtype=np.int32)
    table.signature = np.where(host, 2 * rows, NONE).astype(np.int32)
    table.output_signature = np.where(host, 2 * rows + 1, NONE).astype(np.int32)


def _literal(text: str) -> list[Any]:
    """A list that was written as Python source; empty if it is none."""
    if not text:
        return []
    try:
        value = msgspec.json.decode(text.replace("'", '"'))
    except msgspec.DecodeError:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return []
    return list(value) if isinstance(value, (list, tuple)) else []


def _collectives(
    table: TraceTable,
    kinds: U8,
    nodes: list[Any],
    attributes: list[dict[str, Any]],
) -> CollectiveTable:
    rows = np.flatnonzero(kinds == NodeKind.COLLECTIVE)
    kind, size = [], []
    for i in rows.tolist():
        number = attributes[i].get("comm_type", NONE)
        named = nodes[i].type == COLLECTIVE and 0 <= int(number) < len(KINDS)
        kind.append(table.strings[KINDS[int(number)] if named else "send_recv"])
        size.append(int(attributes[i].get("comm_size", NONE)))
    none = np.full(len(rows), NONE, np.int32)
    return CollectiveTable(
        rows,
        np.array(kind, np.int32),
        none,
        none.astype(np.int64),
        np.array(size, np.int64),
        np.array(size, np.int64),
        none,
        none,
    )


def _meta(source: Source, version: str, attributes: list[dict[str, Any]]) -> GraphMeta:
    ranks = [int(a["rank"]) for a in attributes if "rank" in a]
    return GraphMeta(
        source=source.label,
        sha256=source.sha256,
        format="chakra",
        schema=version,
        rank=ranks[0] if ranks else 0,
        notes=(("rank_recorded", str(bool(ranks)).lower()),),
    )
