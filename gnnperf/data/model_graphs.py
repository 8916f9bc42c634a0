"""Models whose ops were timed one by one: device work with real edges, the repeated layer once.

A node is one measured op (forward, backward, or the accumulation of its gradients) and owns one or
more pieces of device work. The layer that a model repeats stands once; `repeat` tells how often it
runs, and `unrolled` gives the edges of the whole step.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnperf.errors import InputError
from gnnperf.ops import OpBatch

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I8 = NDArray[np.int8]
FORMAT = 1


class Pass(IntEnum):
    """When a node runs."""

    FORWARD = 0
    BACKWARD = 1
    ACCUMULATION = 2
    """gradients added to those that are there"""


class Span(IntEnum):
    """Which copies of the repeated layer an edge joins."""

    SAME = 0
    """both ends in the same copy, or both outside of the layer"""
    FIRST = 1
    """the end that lies in the layer is in its first copy"""
    LAST = 2
    """... in its last copy"""
    NEXT = 3
    """from copy i to copy i + 1"""
    PREVIOUS = 4
    """from copy i + 1 to copy i (gradients)"""
    EVERY = 5
    """the end that lies in the layer is in every copy"""


SLOW_LABELS = 1.15
"""Sum of the timed ops over the model's own time, from which its ops are named as doubtful."""


@dataclass(frozen=True)
class ModelMeta:
    """Which model, where, and what was measured of the whole. Plain values only."""

    id: str
    """the label file without its suffix: NVIDIA_L4/bert_large-inf-512-8"""
    model: str
    mode: str
    """inf or train"""
    sequence: int
    batch: int
    option: str
    """"", fusion, dp4, tp4, pp4_1, ..."""
    device: str
    """the catalogue's name, else as the source writes it"""
    raw_device: str
    source: str = "neusight"
    layers: int = 1
    """copies of the repeated layer"""
    step_us: float = float("nan")
    forward_us: float = float("nan")
    backward_us: float = float("nan")
    """backward and accumulation"""
    peers_us: dict[str, float] = field(default_factory=dict)
    """published predictions of step_us by predictor"""
    classes_us: dict[str, dict[str, float]] = field(default_factory=dict)
    """reported family -> `measured` or a predictor -> published sum over all ops and passes"""


@dataclass(frozen=True, eq=False)
class ModelGraph:
    """One labelled model."""

    batch: OpBatch
    """[c] device work"""
    owner: I32
    """[c] node of each piece of work, ascending; a node's main piece comes first"""
    names: tuple[str, ...]
    """[n] as the op graph names the op"""
    labels: tuple[str, ...]
    """[n] family that `evaluate` reports: linear, bmm, ...; "" for ops that it does not"""
    kind: I8
    """[n] Pass"""
    duration_us: F64
    """[n] measured once, launch included; NaN where it was not"""
    repeat: I32
    """[n] how often the step runs it"""
    src: I32
    """[e] node"""
    dst: I32
    """[e] node that needs what src makes"""
    span: I8
    """[e] Span"""
    meta: ModelMeta

    def __len__(self) -> int:
        return len(self.kind)

    def sum_by_node(self, values: F64) -> F64:
        """[n] sum of a value of each piece of work over the pieces of each node."""
        total: F64 = np.bincount(self.owner, values, minlength=len(self)).astype(np.float64)
        return total

    def label_ratio(self) -> float:
        """Sum of the measured ops over the measured step; NaN where that is not known."""
        return self.step_sum(np.nan_to_num(self.duration_us)) / self.meta.step_us

    def step_sum(self, by_node: F64, *kinds: Pass) -> float:
        """Sum over the step of a value of each node, repeats counted; all passes if none given."""
        chosen = np.isin(self.kind, kinds) if kinds else np.ones(len(self), np.bool_)
        return float((by_node * self.repeat)[chosen].sum())

    def main_work(self) -> I32:
        """[n] index of the main piece of work of each node."""
        return np.flatnonzero(np.diff(self.owner, prepend=-1)).astype(np.int32)


@dataclass(frozen=True, eq=False)
class PieceEdges:
    """Edges between pieces of work of one graph or of several, one after the other."""

    source: NDArray[np.int64]
    """[e] piece that comes first"""
    destination: NDArray[np.int64]
    """[e] piece that follows, or that reads what the source wrote"""
    data: NDArray[np.bool_]
    """[e] True: a tensor flows from node to node; False: order of launch"""


def piece_edges(graphs: Sequence[ModelGraph]) -> PieceEdges:
    """Data edges from a node's last piece to a reader's main one; launch order between pieces.

    The repeated layer stands once: what flows into its next copy flows back into it.
    """
    source, destination, data, start = [], [], [], 0
    for graph in graphs:
        main, count = graph.main_work().astype(np.int64), len(graph.batch)
        last = np.append(main[1:], count) - 1
        order = np.arange(max(count - 1, 0))
        source += [last[graph.src] + start, order + start]
        destination += [main[graph.dst] + start, order + 1 + start]
        data += [np.ones(len(graph.src), np.bool_), np.zeros(len(order), np.bool_)]
        start += count
    if not source:
        empty = np.zeros(0, np.int64)
        return PieceEdges(empty, empty, np.zeros(0, np.bool_))
    return PieceEdges(np.concatenate(source), np.concatenate(destination), np.concatenate(data))


def unrolled(graph: ModelGraph) -> tuple[I32, I32, I32]:
    """The whole step: [m] node that each instance is a copy of, [k] source, [k] destination.

    Instances are ordered by node, the copies of a node one after the other.
    """
    start = np.concatenate([[0], np.cumsum(graph.repeat)])
    template = np.repeat(np.arange(len(graph)), graph.repeat)
    copies = np.maximum(graph.repeat[graph.src], graph.repeat[graph.dst])
    inside = (graph.repeat[graph.src] > 1, graph.repeat[graph.dst] > 1)
    step = np.isin(graph.span, (Span.NEXT, Span.PREVIOUS))
    both = (graph.span == Span.SAME) | (graph.span == Span.EVERY)
    count = np.where(step, copies - 1, np.where(both, copies, 1))
    edge = np.repeat(np.arange(len(graph.src)), count)
    i = np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count)
    span = graph.span[edge]
    i = np.where(span == Span.LAST, copies[edge] - 1, i)
    ends = []
    for end, shifted, within in (
        (graph.src, Span.PREVIOUS, inside[0]),
        (graph.dst, Span.NEXT, inside[1]),
    ):
        copy = np.where(within[edge], i + (span == shifted), 0)
        ends.append((start[end[edge]] + copy).astype(np.int32))
    return template.astype(np.int32), ends[0], ends[1]


_NODE = ("kind", "duration_us", "repeat")
_EDGE = ("src", "dst", "span")


def save_graphs(graphs: Sequence[ModelGraph], path: str | Path) -> Path:
    """Write graphs as one compressed `.npz` without pickle; returns the path."""
    arrays: dict[str, NDArray[Any]] = {}
    header: dict[str, Any] = {"gnnperf_model_graphs": FORMAT, "graphs": []}
    for index, graph in enumerate(graphs):
        header["graphs"].append(
            {"meta": asdict(graph.meta), "names": graph.names, "labels": graph.labels}
        )
        for name in ("family", "dims", "dtype", "known"):
            arrays[f"{index}/batch/{name}"] = getattr(graph.batch, name)
        for name in ("owner", *_NODE, *_EDGE):
            arrays[f"{index}/{name}"] = getattr(graph, name)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with Path(path).open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return Path(path)


def load_graphs(path: str | Path) -> list[ModelGraph]:
    """Read what `save_graphs` wrote.

    Raises:
        InputError: The file is none of that kind, is damaged, or has a newer format.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            if header["gnnperf_model_graphs"] > FORMAT:
                raise InputError(
                    f"format {header['gnnperf_model_graphs']} is newer than {FORMAT}", path=path
                )
            return [_graph(arrays, i, h) for i, h in enumerate(header["graphs"])]
    except (OSError, KeyError, ValueError, TypeError) as why:
        raise InputError(
            f"no model graphs of gnnperf ({type(why).__name__})",
            path=path,
            remedy="make them with `gnnperf dataset import neusight`",
        ) from why


def _graph(arrays: Any, index: int, header: dict[str, Any]) -> ModelGraph:  # noqa: ANN401
    batch = OpBatch(*(arrays[f"{index}/batch/{n}"] for n in ("family", "dims", "dtype", "known")))
    return ModelGraph(
        batch=batch,
        names=tuple(header["names"]),
        labels=tuple(header["labels"]),
        meta=ModelMeta(**header["meta"]),
        **{n: arrays[f"{index}/{n}"] for n in ("owner", *_NODE, *_EDGE)},
    )
