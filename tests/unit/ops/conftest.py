"""Graphs of a few nodes, built by hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import pytest

from gnnperf.graph import (
    Arguments,
    Collectives,
    Edges,
    ExecutionGraph,
    GraphMeta,
    LaneKind,
    Lanes,
    NodeKind,
    Nodes,
    Tensors,
)
from gnnperf.graph.model import NONE

Shape = tuple[int, ...]


@dataclass
class Spec:
    """A node: `tensors` are its arguments (None: no tensor), `values` their concrete values."""

    kind: NodeKind
    name: str
    parent: int = NONE
    op: int = NONE
    tensors: Sequence[Shape | list[Shape] | None] = ()
    values: Sequence[str | None] = ()
    dtype: int = 1
    columns: dict[str, float] = field(default_factory=dict)


def build(specs: Sequence[Spec], **meta: object) -> ExecutionGraph:
    strings: list[str] = []

    def intern(text: str) -> int:
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    n = len(specs)
    names = np.array([intern(s.name) for s in specs], np.int32)
    kinds = np.array([s.kind for s in specs], np.uint8)
    device = kinds >= NodeKind.KERNEL
    table: dict[str, np.ndarray] = {
        "kind": kinds,
        "name": names,
        "lane": device.astype(np.int32),
        "start_us": np.arange(n, dtype=np.float64),
        "duration_us": np.ones(n),
        "parent": np.array([s.parent for s in specs], np.int32),
        "op": np.array([s.op for s in specs], np.int32),
        "phase": np.zeros(n, np.uint8),
    }
    for column in fields(Nodes):
        base = table.get(column.name, np.full(n, NONE, np.int64))
        for i, s in enumerate(specs):
            if column.name in s.columns:
                base[i] = s.columns[column.name]
        table[column.name] = base
    arg_ptr, tensor_ptr, values, dims, dim_ptr, types = [0], [0], [], [], [0], []
    for s in specs:
        for i, argument in enumerate(s.tensors):
            shapes = argument if isinstance(argument, list) else [argument]
            for shape in shapes:
                if shape is not None:
                    dims.extend(shape)
                    dim_ptr.append(len(dims))
                    types.append(s.dtype)
            tensor_ptr.append(len(types))
            text = s.values[i] if i < len(s.values) else None
            values.append(NONE if text is None else intern(text))
        arg_ptr.append(len(values))
    blank = intern("")
    t = len(types)
    tensors = Tensors(
        np.array(types, np.int8),
        np.array(dim_ptr, np.int64),
        np.array(dims, np.int64),
        np.full(len(dims), NONE, np.int64),
        np.full(t, NONE, np.int64),
        np.full(t, NONE, np.int64),
    )
    empty = np.zeros(0, np.int64)
    return ExecutionGraph(
        strings=tuple(strings),
        nodes=Nodes(**table),
        arguments=Arguments(
            np.array(arg_ptr, np.int64),
            np.full(len(values), blank, np.int32),
            np.array(values, np.int32),
            np.array(tensor_ptr, np.int64),
        ),
        inputs=tensors,
        outputs=Tensors(np.zeros(0, np.int8), np.zeros(1, np.int64), empty, empty, empty, empty),
        output_ptr=np.zeros(n + 1, np.int64),
        edges=Edges(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint8)),
        lanes=Lanes(
            np.array([LaneKind.THREAD, LaneKind.STREAM], np.uint8),
            np.array([NONE, 0], np.int32),
            np.array([1, 7], np.int64),
            np.array([blank, blank], np.int32),
        ),
        collectives=Collectives(
            *(np.zeros(0, np.int32) for _ in range(3)),
            *(np.zeros(0, np.int64) for _ in range(3)),
            np.zeros(0, np.int32),
            np.zeros(1, np.int64),
            np.zeros(0, np.int32),
        ),
        meta=GraphMeta(**meta),  # type: ignore[arg-type]
    )


@pytest.fixture
def graph_of() -> Callable[..., ExecutionGraph]:
    return build


@pytest.fixture
def host() -> Callable[..., Spec]:
    return lambda name, **more: Spec(NodeKind.HOST_OP, name, **more)


@pytest.fixture
def kernel() -> Callable[..., Spec]:
    return lambda name, op, **columns: Spec(NodeKind.KERNEL, name, op=op, columns=columns)
