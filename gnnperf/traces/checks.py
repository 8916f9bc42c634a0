"""The named checks of a trace, as counts over its linked events or over a graph's nodes."""

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gnnperf.graph import EdgeKind, ExecutionGraph, NodeKind
from gnnperf.graph.model import F64, I32, I64, NONE, U8, Arguments, Bool
from gnnperf.traces.table import ROUNDING_US, TraceTable

_LAUNCH = re.compile(r"LaunchKernel|ModuleLaunch|GraphLaunch|^cuLaunch|[mM]emcpy|[mM]emset")
OVERLAP_US = 1.0
"""Work of one stream that overlaps by less is rounding."""


class Linked(Protocol):
    """Columns that trace tables and nodes of graphs share."""

    @property
    def kind(self) -> U8: ...  # noqa: D102

    @property
    def name(self) -> I32: ...  # noqa: D102

    @property
    def lane(self) -> I32: ...  # noqa: D102

    @property
    def start_us(self) -> F64: ...  # noqa: D102

    @property
    def duration_us(self) -> F64: ...  # noqa: D102

    @property
    def op(self) -> I32: ...  # noqa: D102

    @property
    def launch(self) -> I32: ...  # noqa: D102


@dataclass(frozen=True)
class Links:
    """How device work hangs together with what issued it."""

    host_ops: int = 0
    host_ops_with_shapes: int = 0
    runtime_calls: int = 0
    kernels: int = 0
    copies: int = 0
    collectives: int = 0
    device_with_launch: int = 0
    kernels_with_op: int = 0
    kernels_with_shapes: int = 0
    """kernels and collectives whose innermost op has shapes"""
    launch_without_kernel: int = 0
    kernel_without_launch: int = 0
    negative_gaps: int = 0
    """device work that starts before its launch does"""
    stream_overlaps: int = 0
    missing_shapes: int = 0
    """ops that issue kernels and whose shapes are not recorded"""

    @property
    def working(self) -> int:
        """Kernels and collectives."""
        return self.kernels + self.collectives

    @property
    def device(self) -> int:
        """All device work."""
        return self.working + self.copies

    def __add__(self, other: "Links") -> "Links":
        mine, its = vars(self), vars(other)
        return Links(**{name: mine[name] + its[name] for name in mine})


def count_links(events: Linked, names: list[str], is_op: Bool, shaped: Bool) -> Links:
    """Count; `is_op` [n] tells which host nodes are ops, `shaped` which have shapes."""
    kind = events.kind
    device = kind >= NodeKind.KERNEL
    working = (kind == NodeKind.KERNEL) | (kind == NodeKind.COLLECTIVE)
    linked = device & (events.launch >= 0)
    issuers = events.op[working & (events.op >= 0)]
    issuers = issuers[is_op[issuers]]
    runtime = kind == NodeKind.RUNTIME
    used = np.zeros(len(kind), np.bool_)
    used[events.launch[linked]] = True
    launching = np.array([bool(_LAUNCH.search(n)) for n in names], np.bool_)
    idle = runtime & launching[events.name] & ~used if device.any() else runtime & False
    early = events.start_us[linked] < events.start_us[events.launch[linked]] - ROUNDING_US
    return Links(
        host_ops=int((kind == NodeKind.HOST_OP).sum()),
        host_ops_with_shapes=int(((kind == NodeKind.HOST_OP) & shaped).sum()),
        runtime_calls=int(runtime.sum()),
        kernels=int((kind == NodeKind.KERNEL).sum()),
        copies=int((kind == NodeKind.COPY).sum()),
        collectives=int((kind == NodeKind.COLLECTIVE).sum()),
        device_with_launch=int(linked.sum()),
        kernels_with_op=len(issuers),
        kernels_with_shapes=int(shaped[issuers].sum()),
        launch_without_kernel=int(idle.sum()),
        kernel_without_launch=int((device & (events.launch < 0) & (events.op < 0)).sum()),
        negative_gaps=int(early.sum()),
        stream_overlaps=_overlaps(events, device),
        missing_shapes=int((~shaped[np.unique(issuers)]).sum()),
    )


def _overlaps(events: Linked, device: Bool) -> int:
    rows = np.flatnonzero(device & np.isfinite(events.start_us))
    rows = rows[np.lexsort((events.start_us[rows], events.lane[rows]))]
    end = events.start_us[rows] + events.duration_us[rows]
    same = events.lane[rows[1:]] == events.lane[rows[:-1]]
    return int((same & (events.start_us[rows[1:]] < end[:-1] - OVERLAP_US)).sum())


def table_shapes(table: TraceTable) -> Bool:
    """[n] whether each event has a signature that names tensors."""
    return np.append(_named(table.signatures.arguments), False)[table.signature]


def graph_shapes(graph: ExecutionGraph) -> Bool:
    """[n] whether each node takes tensors of known shape."""
    return _named(graph.arguments)


def _named(arguments: Arguments) -> Bool:
    tensors: I64 = arguments.tensor_ptr[arguments.ptr]
    return np.diff(tensors) > 0


def collectives_before_inputs(graph: ExecutionGraph) -> int | None:
    """Collectives that start before the work that wrote their inputs has ended.

    None where the trace does not identify tensors, so that it cannot be told.
    """
    data = graph.edges.kind == EdgeKind.DATA
    nodes = graph.nodes
    if not data.any() or not len(graph.collectives.node):
        return None
    end = np.full(graph.num_nodes + 1, -np.inf)
    device = graph.device_nodes
    device = device[(nodes.op[device] >= 0) & np.isfinite(nodes.start_us[device])]
    np.maximum.at(end, nodes.op[device], nodes.start_us[device] + nodes.duration_us[device])
    ready = np.full(graph.num_nodes, -np.inf)
    np.maximum.at(ready, graph.edges.dst[data], end[graph.edges.src[data]])
    count = 0
    for node in graph.collectives.node.tolist():
        op, latest = int(nodes.op[node]), -np.inf
        while op != NONE:
            latest = max(latest, float(ready[op]))
            op = int(nodes.parent[op])
        count += latest > float(nodes.start_us[node]) + OVERLAP_US
    return count
