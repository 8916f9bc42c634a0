"""The engine of steps: the network where it was trained, formulas where it was not."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gnnperf.api.engines import AnalyticEngine, NetworkEngine, Times, is_collective
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import Hardware
from gnnperf.ops import Description

SHORT_US = 50.0
"""Kernels that formulas take to be shorter are theirs: ops of that length are timed with their
launch in the network's tables and left out, or run again and again with warm caches. What it gives
on traces: docs/replay.md."""


class MixedEngine:
    """A trained network; formulas for short kernels and for kinds of work without training data."""

    name = "gnn"

    def __init__(self, network: NetworkEngine) -> None:
        self.network = network

    def times(self, graph: ExecutionGraph, described: Description, hardware: Hardware) -> Times:
        """See `Engine`. On a CPU, whose ops were recorded as traces see them, the network alone."""
        if hardware.kind == "cpu":
            return self.network.times(graph, described, hardware)
        from gnnperf.nn.predict import UNTRAINED  # torch is not needed before

        batch, formulas = described.batch, AnalyticEngine().times(graph, described, hardware)
        by_formula = formulas.time_us < SHORT_US
        by_formula |= ~self.network.model.trained_on(batch, hardware)
        by_formula |= is_collective(described)
        if by_formula.all():
            return replace(formulas, warnings=_told(by_formula, formulas.time_us, described))
        found = self.network.times(graph, described, hardware)
        said = tuple(w for w in found.warnings if UNTRAINED not in w)
        us = np.where(by_formula, formulas.time_us, found.time_us)
        return Times(
            us,
            np.where(by_formula, formulas.low_us, found.low_us),
            np.where(by_formula, formulas.high_us, found.high_us),
            found.coverage,
            (*said, *_told(by_formula, us, described)),
        )


def _told(
    by_formula: NDArray[np.bool_], us: NDArray[np.float64], described: Description
) -> tuple[str, ...]:
    rows = by_formula & ~is_collective(described)
    if not rows.any():
        return ()
    share = us[rows].sum() / max(us[~is_collective(described)].sum(), 1e-9)
    return (
        f"{int(rows.sum())} kernels ({share:.0%} of the kernels' time) by formulas: shorter than "
        f"{SHORT_US:.0f} us, or of a kind without training data",
    )
