"""The engine of steps: network and formulas together, formulas where nothing was trained."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gnnperf.api.engines import AnalyticEngine, NetworkEngine, Times, over_links
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import Hardware
from gnnperf.ops import Description, family_index

NETWORK_SHARE = 0.35
"""of the logarithm of a GPU kernel's time, the rest is the formulas': the geometric mean errs less
than either on traces of left-out GPUs and on left-out traces of known ones (docs/replay.md)"""
LONG_US = 50.0
LEARNED = ("gemm", "attention", "moe", "moe_gemm")
"""Families whose kernels of that length are the network's alone: its tables hold thousands of them,
which it predicts two to three times as well as formulas on left-out GPUs (docs/network.md)."""


class MixedEngine:
    """A trained network and formulas; formulas alone for kinds of work without training data."""

    name = "gnn"

    def __init__(self, network: NetworkEngine) -> None:
        self.network = network

    def times(self, graph: ExecutionGraph, described: Description, hardware: Hardware) -> Times:
        """See `Engine`. On a CPU, whose ops were recorded as traces see them, the network alone."""
        if hardware.kind == "cpu":
            return self.network.times(graph, described, hardware)
        from gnnperf.nn.predict import UNTRAINED  # torch is not needed before

        batch, formulas = described.batch, AnalyticEngine().times(graph, described, hardware)
        links = over_links(described)
        alone = ~self.network.model.trained_on(batch, hardware) | links
        told = _told(alone & ~links, formulas.time_us[~links].sum(), formulas)
        if alone.all():
            return replace(formulas, warnings=told)
        found = self.network.times(graph, described, hardware)
        said = tuple(w for w in found.warnings if UNTRAINED not in w)
        learned = np.isin(batch.family, [family_index(name) for name in LEARNED])
        share = np.where(learned & (formulas.time_us >= LONG_US), 1.0, NETWORK_SHARE)
        us = formulas.time_us ** (1 - share) * found.time_us**share
        moved = us / found.time_us
        return Times(
            np.where(alone, formulas.time_us, us),
            np.where(alone, formulas.low_us, found.low_us * moved),
            np.where(alone, formulas.high_us, found.high_us * moved),
            found.coverage,
            (*said, *told),
        )


def _told(rows: NDArray[np.bool_], whole_us: float, formulas: Times) -> tuple[str, ...]:
    if not rows.any():
        return ()
    share = formulas.time_us[rows].sum() / max(whole_us, 1e-9)
    return (
        f"{int(rows.sum())} kernels ({share:.0%} of the kernels' time) by formulas alone: of a "
        "kind without training data",
    )
