"""From the rows of an op graph to a model graph: real edges, the repeated layer, three passes."""

import ast
import csv
import heapq
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.data.importers.fx_backward import accumulation_work, backward_work
from gnnperf.data.importers.fx_ops import (
    FxNode,
    compiled_work,
    elementwise,
    forward_work,
    has_parameters,
    is_view_made_strided,
    label_of,
)
from gnnperf.data.model_graphs import ModelGraph, ModelMeta, Pass, Span
from gnnperf.errors import InputError
from gnnperf.ops import OpBatch, family_index
from gnnperf.ops.call import Work

COLUMNS = ("Name", "OpName", "FwOps", "AccOps", "Prev", "InputShapes", "OutputShape")
_FIRST_LAYER = re.compile(r"(?:^|_)(?:layer|layers|h|block|blocks)_0_")
_SECOND_LAYER = re.compile(r"(?:^|_)(?:layer|layers|h|block|blocks)_1_")
_NO_GRADIENT = frozenset(
    (
        *("size", "getattr", "dim", "finfo", "len", "int", "output", "eq", "ne", "lt", "le", "gt"),
        *("ge", "bool", "long", "argmax", "one_hot", "count_nonzero", "nonzero"),
    )
)


def read_nodes(file: Path, *, trains: bool, config: dict[str, Any]) -> list[FxNode]:
    """The nodes of an op graph, inputs first (fused graphs are not written in that order).

    Raises:
        InputError: A column is missing, a cell cannot be parsed, or edges form a cycle.
    """
    csv.field_size_limit(1 << 30)
    with file.open(encoding="utf-8", newline="") as lines:
        table = csv.DictReader(lines)
        missing = [c for c in COLUMNS if c not in (table.fieldnames or ())]
        if missing:
            raise InputError("no such column", path=file, field=missing[0])
        rows = list(table)
    facts = {"trains": trains, "vocabulary": config.get("vocab_size", 0)}
    facts["attention_dropout"] = bool(config.get("attention_dropout", 0.1))
    nodes: dict[str, FxNode] = {}
    place: dict[str, int] = {}
    number = 0
    try:
        before = [_literal(r["Prev"]) if r["Prev"] != "set()" else set() for r in rows]
        for number in _inputs_first([r["Name"] for r in rows], before):
            row = rows[number]
            inputs = tuple(nodes[p] for p in sorted(before[number], key=place.__getitem__))
            place[row["Name"]] = len(place)
            nodes[row["Name"]] = _node(row, inputs, facts)
    except (ValueError, SyntaxError, TypeError, KeyError) as why:
        raise InputError(f"cannot be parsed ({why})", path=file, field=f"row {number}") from why
    return list(nodes.values())


def _inputs_first(names: list[str], before: list[set[str]]) -> list[int]:
    """Rows in an order in which inputs come first, else as they are; ValueError for a cycle."""
    row = {name: i for i, name in enumerate(names)}
    waits = [len(b) for b in before]
    readers: list[list[int]] = [[] for _ in names]
    for i, inputs in enumerate(before):
        for name in inputs:
            readers[row[name]].append(i)
    ready = [i for i, count in enumerate(waits) if not count]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for reader in readers[i]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(names):
        raise ValueError("its edges form a cycle")
    return order


def _node(row: dict[str, str], inputs: tuple[FxNode, ...], facts: dict[str, Any]) -> FxNode:
    node = FxNode(
        name=row["Name"],
        op_class=row["OpName"],
        forward=_ops(row["FwOps"]),
        accumulated=_ops(row["AccOps"]),
        input_shapes=tuple(_shape(s) for s in _literal(row["InputShapes"])),
        shape=_shape(_literal(row["OutputShape"])),
        inputs=inputs,
        **facts,
    )
    return replace(node, contiguous=not is_view_made_strided(node))


@lru_cache(maxsize=65536)
def _literal(text: str) -> Any:  # noqa: ANN401
    return ast.literal_eval(text)  # the same few shapes again and again


def _shape(value: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(v) for v in value)


def _ops(text: str) -> tuple[tuple[str, Any], ...]:
    return () if text == "[]" else tuple((str(kind), sizes) for kind, sizes in _literal(text))


class GraphBuilder:
    """Expands the nodes of an op graph into passes and keeps the result for every device.

    `compiled` says that the model ran under torch.compile.
    """

    def __init__(self, nodes: Sequence[FxNode], layers: int, compiled: bool = False) -> None:
        self._nodes = nodes
        self._index = {node.name: i for i, node in enumerate(nodes)}
        self._layer = _layer_region(nodes)
        self._forward_work = compiled_work(nodes) if compiled else [forward_work(n) for n in nodes]
        self.layers = layers if self._layer else 1
        self._rows: list[tuple[str, str, int, int]] = []
        self._work: list[Work] = []
        self._owner: list[int] = []
        self._edges: list[tuple[int, int, int]] = []
        spans = self._fx_edges()
        forward = self._forward(spans)
        if nodes and nodes[0].trains:
            self._backward(spans, forward)

    def graph(self, meta: ModelMeta) -> ModelGraph:
        """The graph of one measured model, times not filled in."""
        rows, edges = self._rows, np.array(sorted(set(self._edges)), np.int32).reshape(-1, 3)
        return ModelGraph(
            batch=OpBatch(
                np.array([family_index(w.family) for w in self._work], np.int16),
                np.array([w.dims for w in self._work], np.float64),
                np.array([w.dtype for w in self._work], np.int8),
                np.array([w.known for w in self._work], np.bool_),
            ),
            owner=np.array(self._owner, np.int32),
            names=tuple(r[0] for r in rows),
            labels=tuple(r[1] for r in rows),
            kind=np.array([r[2] for r in rows], np.int8),
            duration_us=np.full(len(rows), np.nan),
            repeat=np.array([r[3] for r in rows], np.int32),
            src=edges[:, 0],
            dst=edges[:, 1],
            span=edges[:, 2].astype(np.int8),
            meta=meta,
        )

    def _add(self, node: int, kind: Pass, work: list[Work], suffix: str = "") -> int:
        """A graph node that owns pieces of work; returns its index."""
        fx = self._nodes[node]
        label = label_of(fx)
        if suffix or (label and kind == Pass.ACCUMULATION):
            label = ""
        elif label and kind == Pass.BACKWARD:
            label = f"{label} backward"
        self._rows.append(
            (fx.name + suffix, label, kind, self.layers if node in self._layer else 1)
        )
        self._work += work
        self._owner += [len(self._rows) - 1] * len(work)
        return len(self._rows) - 1

    def _fx_edges(self) -> list[dict[int, set[int]]]:
        """For each node: input node -> spans of the edge, the carried edges of the layer added."""
        spans: list[dict[int, set[int]]] = []
        carried = self._layer_output()
        size = self._nodes[carried].numel if carried is not None else -1
        for i, node in enumerate(self._nodes):
            mine: dict[int, set[int]] = {}
            for source in (self._index[n.name] for n in node.inputs):
                inside = (source in self._layer, i in self._layer)
                stream = carried is not None and self._nodes[source].numel == size
                if inside == (False, True) and stream and carried is not None:
                    mine.setdefault(source, set()).add(Span.FIRST)
                    mine.setdefault(carried, set()).add(Span.NEXT)
                elif inside == (False, True):
                    mine.setdefault(source, set()).add(Span.EVERY)
                else:
                    span = Span.LAST if inside == (True, False) else Span.SAME
                    mine.setdefault(source, set()).add(span)
            spans.append(mine)
        return spans

    def _layer_output(self) -> int | None:
        """The node of the layer that the next layer reads: what the first node after it reads."""
        for node in self._nodes[self._layer.stop :]:
            found = [self._index[n.name] for n in node.inputs if n.numel > 1]
            found = [i for i in found if i in self._layer]
            if found:
                return found[-1]
        return None

    def _forward(self, spans: list[dict[int, set[int]]]) -> dict[int, int]:
        """Forward nodes and their edges; returns op graph node -> graph node."""
        made: dict[int, int] = {}
        reach: dict[int, set[tuple[int, int]]] = {}
        for i, work in enumerate(self._forward_work):
            if work:
                made[i] = self._add(i, Pass.FORWARD, work)
                reach[i] = {(made[i], Span.SAME)}
        for i in range(len(self._nodes)):
            found = {
                (source, joined)
                for before, kinds in spans[i].items()
                for kind in kinds
                for source, first in self._reached(before, reach, spans)
                if (joined := _compose(first, kind)) is not None
            }
            if i in made:
                self._edges += [(source, made[i], span) for source, span in found]
        return made

    def _reached(
        self,
        node: int,
        reach: dict[int, set[tuple[int, int]]],
        spans: list[dict[int, set[int]]],
    ) -> set[tuple[int, int]]:
        """Graph nodes whose result a node passes on, through nodes without work."""
        if node not in reach:
            reach[node] = set()
            reach[node] = {
                (source, joined)
                for before, kinds in spans[node].items()
                for kind in kinds
                for source, first in self._reached(before, reach, spans)
                if (joined := _compose(first, kind)) is not None
            }
        return reach[node]

    def _backward(self, spans: list[dict[int, set[int]]], forward: dict[int, int]) -> None:
        """Backward, gradient sums where a result has several readers, accumulation."""
        trained = self._needs_gradient()
        users: list[list[tuple[int, int]]] = [[] for _ in self._nodes]
        for i, mine in enumerate(spans):
            if trained[i]:
                for source, kinds in mine.items():
                    users[source] += [(i, _MIRROR.get(Span(kind), kind)) for kind in kinds]
        total: dict[int, int] = {}
        main: dict[int, int] = {}
        added: dict[int, int] = {}
        for i in reversed(range(len(self._nodes))):
            node, readers = self._nodes[i], _readers(users[i])
            if not trained[i]:
                continue
            if readers > 1 and i in forward:
                sums = [elementwise(node.numel, 8 * node.numel, 4 * node.numel, 2)] * (readers - 1)
                total[i] = self._add(i, Pass.BACKWARD, sums, "/sum of gradients")
            if work := backward_work(node):
                main[i] = self._add(i, Pass.BACKWARD, work)
            if work := accumulation_work(node):
                added[i] = self._add(i, Pass.ACCUMULATION, work)
        self._backward_edges(users, forward, total, main, added)

    def _backward_edges(
        self,
        users: list[list[tuple[int, int]]],
        forward: dict[int, int],
        total: dict[int, int],
        main: dict[int, int],
        added: dict[int, int],
    ) -> None:
        """Gradients flow from readers to the sum, to the op, to the accumulation."""
        memo: dict[int, set[tuple[int, int]]] = {}

        def arriving(i: int) -> set[tuple[int, int]]:
            """What delivers the gradient of the result of op graph node i, before any sum."""
            if i not in memo:
                memo[i] = set()
                memo[i] = {
                    (source, span)
                    for user, kind in users[i]
                    for source, first in leaving(user)
                    if (span := _compose(first, kind)) is not None
                }
            return memo[i]

        def summed(i: int) -> set[tuple[int, int]]:
            return {(total[i], int(Span.SAME))} if i in total else arriving(i)

        def leaving(i: int) -> set[tuple[int, int]]:
            """What delivers the gradients of its inputs."""
            return {(main[i], int(Span.SAME))} if i in main else summed(i)

        for i, node in total.items():
            self._edges += [(source, node, span) for source, span in arriving(i)]
        for i, node in main.items():
            self._edges += [(source, node, span) for source, span in summed(i)]
            if i in forward:
                self._edges.append((forward[i], node, Span.SAME))
        for i, node in added.items():
            self._edges += [(source, node, span) for source, span in leaving(i)]

    def _needs_gradient(self) -> list[bool]:
        """Per node whether its result depends on a parameter through ops with a gradient."""
        found: dict[str, bool] = {}
        for node in self._nodes:
            own = has_parameters(node)
            inherited = any(found[i.name] for i in node.inputs)
            found[node.name] = (own or inherited) and node.root not in _NO_GRADIENT
        return list(found.values())


def _readers(users: list[tuple[int, int]]) -> int:
    """Readers of one copy of a result (the last layer has others than the ones before)."""
    return max(
        len({user for user, kind in users if kind in (Span.SAME, kinds)})
        for kinds in (Span.FIRST, Span.LAST, Span.PREVIOUS)
    )


def _compose(first: int, second: int) -> int | None:
    """Span of a path of two edges; None where it joins copies that no single span names."""
    if first == Span.SAME:
        return second
    return first if second == Span.SAME else None


_MIRROR = {Span.NEXT: Span.PREVIOUS, Span.PREVIOUS: Span.NEXT}


def _layer_region(nodes: Sequence[FxNode]) -> range:
    """Nodes of the repeated layer: from its first module to the first module that follows it.

    Empty where the graph spells every layer out.
    """
    inside = [i for i, n in enumerate(nodes) if _FIRST_LAYER.search(n.name)]
    if not inside or any(_SECOND_LAYER.search(n.name) for n in nodes):
        return range(0)
    after = (
        i
        for i in range(inside[-1] + 1, len(nodes))
        if "_" in nodes[i].root.rstrip("_") or nodes[i].op_class == "output"
    )
    return range(inside[0], next(after, len(nodes)))
