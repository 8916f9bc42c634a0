"""Engines: what gives the time of device work, behind one small protocol."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnperf.analytic import device_time
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import Hardware
from gnnperf.ops import Description, crosses_link, family_index

if TYPE_CHECKING:
    from gnnperf.nn.predict import KernelModel

F64 = NDArray[np.float64]

COVERAGE = 0.9
"""Share of measured times that an interval is meant to hold."""
ANALYTIC_SPREAD = 2.0
"""The analytic engine's times are given as time / spread to time * spread. Of NeuSight's and
pipeweave's kernels 90 % lie in that band (`gnnperf evaluate ... --engine analytic --limit 6000`),
by device and family as few as 32 % (softmax on P100)."""


@dataclass(frozen=True, eq=False)
class Times:
    """Predicted times of the rows of a description, microseconds."""

    time_us: F64
    low_us: F64
    high_us: F64
    coverage: float
    warnings: tuple[str, ...] = ()


class Engine(Protocol):
    """Predicts every described row on a piece of hardware."""

    name: str

    def times(self, graph: ExecutionGraph, described: Description, hardware: Hardware) -> Times:
        """[rows] times of the description's rows."""
        ...


class AnalyticEngine:
    """Formulas alone: roofline, waves, caches, links."""

    name = "analytic"

    def times(self, graph: ExecutionGraph, described: Description, hardware: Hardware) -> Times:
        """See `Engine`."""
        us = device_time(described.batch, hardware).total_us
        return Times(us, us / ANALYTIC_SPREAD, us * ANALYTIC_SPREAD, COVERAGE)


class NetworkEngine:
    """A trained network; collectives and copies over links by the analytic model of links."""

    name = "gnn"

    def __init__(self, model: "KernelModel") -> None:
        self.model = model

    def times(self, graph: ExecutionGraph, described: Description, hardware: Hardware) -> Times:
        """See `Engine`. On a GPU a trace times the kernel alone, on a CPU the whole call.

        The ops are asked for as they run inside a step. Messages on the host did not help
        workloads that were left out (docs/network.md).
        """
        from gnnperf.nn.context import row_edges  # torch is not needed before

        on_host = hardware.kind == "cpu"
        alone = on_host or not self.model.uses_edges
        found = self.model.predict(
            described.batch,
            hardware,
            edges=None if alone else row_edges(graph, described),
            framework="pytorch",
            launch_included=on_host,
            in_model=True,
        )
        communicates = over_links(described)
        links = AnalyticEngine().times(graph, described, hardware)
        return Times(
            np.where(communicates, links.time_us, found.time_us),
            np.where(communicates, links.low_us, found.low_us),
            np.where(communicates, links.high_us, found.high_us),
            found.coverage,
            found.warnings,
        )


def over_links(described: Description) -> NDArray[np.bool_]:
    """[rows] whether each row's time is that of links: collectives, copies from and to a device."""
    return is_collective(described) | crosses_link(described.batch)


def is_collective(described: Description) -> NDArray[np.bool_]:
    """[rows] whether each row communicates."""
    same: NDArray[np.bool_] = described.batch.family == family_index("collective")
    return same
