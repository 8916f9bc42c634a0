"""What a trace measured as evidence: for work that no engine can compute, and for a near GPU."""

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnnperf.api.engines import Times, is_collective
from gnnperf.graph import ExecutionGraph, NodeKind
from gnnperf.hardware import Hardware
from gnnperf.ops import Description

F64 = NDArray[np.float64]

KEPT_SPREAD, SCALED_SPREAD = 1.1, 2.0
"""The interval's factor of a time kept from the trace, and of one scaled to another device."""
NEAR_TRUST = 0.75
"""Exponent of measured over predicted on the source where both GPUs are of one group; on others a
measured time tells nothing that helps (docs/replay.md, `python -m gnnperf.evaluation.transfer`)."""
NEAR_SPREAD = 1.35
"""Factor within which 90 % of the times then lie, by the same tables."""


@dataclass(frozen=True)
class Evidence:
    """How far the trace's own kernel times are believed on the target."""

    source: Hardware | None
    """the device that ran the trace, if the catalogue knows it"""
    target: Hardware
    trust: float
    """0: not at all, 1: the target is off the prediction by as much as the source was"""
    asked: bool = False
    """whether the trust was given"""

    @property
    def same(self) -> bool:
        """Whether the target ran the trace."""
        return self.source is not None and self.source.name == self.target.name


def evidence_of(source: Hardware | None, target: Hardware, asked: float | None = None) -> Evidence:
    """The trust that was asked for, else the one that measured tables speak for.

    On the GPU that ran the trace the default is 0: a prediction that could not be off would
    tell nothing, and replay (the measured engine) is there for the rest.
    """
    if source is None:
        return Evidence(source, target, 0.0)
    if asked is not None:
        return Evidence(source, target, asked, asked=True)
    near = source.group == target.group and source.name != target.name
    return Evidence(source, target, NEAR_TRUST if near and target.kind == "gpu" else 0.0)


_LIBRARY = re.compile(
    r"cutlass|cudnn|xmma|cublas|gemv|sm\d\d_|ampere_|volta_|turing_|maxwell_|nvjet|cijk_|igemm"
    r"|miopen|\bck::|_ZN2ck|winograd|flash|fmha|nccl|rccl",
    re.IGNORECASE,
)
"""Kernels that a library chose for the GPU that ran the trace."""


def of_libraries(graph: ExecutionGraph, described: Description) -> int:
    """Kernels of libraries that are timed by their op: another GPU's library chooses others."""
    distinct, which = np.unique(graph.nodes.name[described.node], return_inverse=True)
    chosen = np.array([_LIBRARY.search(graph.strings[int(n)]) is not None for n in distinct])
    if not len(distinct):
        return 0
    return int((chosen[which] & described.batch.known).sum())


def rows_with_evidence(
    graph: ExecutionGraph, described: Description, measured_us: F64
) -> NDArray[np.bool_]:
    """[rows] kernels that have both a description and a time of their own.

    Collectives mostly wait, copies between host and device depend on another host: both are
    timed anew.
    """
    timed = np.isfinite(measured_us) & (measured_us > 0)
    copies = graph.nodes.kind[described.node] == NodeKind.COPY
    found: NDArray[np.bool_] = described.batch.known & timed & ~is_collective(described) & ~copies
    return found


def use_evidence(
    times: Times, on_source: F64, measured_us: F64, rows: NDArray[np.bool_], evidence: Evidence
) -> Times:
    """Predicted times moved by how far the source's prediction was off, to the power of the trust.

    Args:
        times: [rows] predicted on the target.
        on_source: [rows] predicted on the source by the same engine.
        measured_us: [rows] of the trace.
        rows: [rows] those of `rows_with_evidence`.
        evidence: Devices and trust.
    """
    ratio = np.where(rows, measured_us, 1.0) / np.where(rows, on_source, 1.0)
    us = times.time_us * ratio**evidence.trust
    bound = KEPT_SPREAD if evidence.same else NEAR_SPREAD
    narrow = rows & (evidence.trust >= NEAR_TRUST)
    below, above = times.time_us / times.low_us, times.high_us / times.time_us
    return replace(
        times,
        time_us=us,
        low_us=us / np.where(narrow, np.minimum(below, bound), below),
        high_us=us * np.where(narrow, np.minimum(above, bound), above),
    )


def told(evidence: Evidence, kernels: int) -> str:
    """In words: how many of the kernels with evidence used it, or why none did."""
    source = "an unknown device" if evidence.source is None else evidence.source.name
    if evidence.trust > 0:
        return (
            f"evidence: {kernels} kernels start from their measured time on {source} "
            f"(trust {evidence.trust:g})"
        )
    why = f"{evidence.target.name} and {source} are not of one group"
    if evidence.asked:
        why = "as asked for"
    elif evidence.same:
        why = "predicted on the GPU that ran them; --engine measured replays them"
    return f"evidence: none of {kernels} measured kernel times is used ({why})"


def with_waits(
    times: Times, described: Description, measured_us: F64, *, same: bool, absent: bool
) -> Times:
    """Collectives of a trace that lacks ranks: what they waited for those is in no prediction.

    On the device that ran the trace they keep their measured time, waiting included; on another
    one they are as if all ranks arrived together, and the waiting is told.

    Args:
        times: [rows] predicted.
        described: The rows.
        measured_us: [rows] of the trace.
        same: Whether the target ran the trace.
        absent: Whether ranks of the job are not in it.
    """
    rows = is_collective(described) & np.isfinite(measured_us) & (measured_us > 0)
    waited = np.where(rows, np.maximum(measured_us - times.time_us, 0.0), 0.0).sum()
    if not absent or waited <= 0:
        return times
    line = f"collectives waited {waited / 1e3:.1f} ms or less for ranks that the trace lacks: "
    if not same:
        line += "timed as if all ranks arrived together"
        return replace(times, warnings=(*times.warnings, line))
    kept = np.where(rows, measured_us, times.time_us)
    return replace(
        times,
        time_us=kept,
        low_us=np.where(rows, kept / KEPT_SPREAD, times.low_us),
        high_us=np.where(rows, kept * KEPT_SPREAD, times.high_us),
        warnings=(*times.warnings, line + f"{int(rows.sum())} keep their measured time"),
    )


def fill_unknown(
    times: Times,
    described: Description,
    measured_us: F64,
    own: Hardware | None,
    target: Hardware,
) -> Times:
    """Times in which rows of unknown size have their measured time instead of a guess.

    On the device that ran the trace the time is kept; on another one it is scaled by the ratio
    of the memory bandwidths, since nothing else is known of such work. Rows without a measured
    time keep what the engine says (bytes moved, or its floor).
    """
    rows = np.flatnonzero(~described.batch.known & np.isfinite(measured_us))
    if not len(rows):
        return times
    same = own is not None and own.name == target.name
    factor, spread = 1.0, KEPT_SPREAD
    if not same:
        spread = SCALED_SPREAD
        if own is not None:
            factor = own.memory_bandwidth_gb_per_s / target.memory_bandwidth_gb_per_s
    us, low, high = times.time_us.copy(), times.low_us.copy(), times.high_us.copy()
    us[rows] = measured_us[rows] * factor
    low[rows], high[rows] = us[rows] / spread, us[rows] * spread
    share = us[rows].sum() / max(us.sum(), 1e-9)
    how = "keep their measured time" if same else f"have their measured time x {factor:.2f}"
    line = f"{len(rows)} kernels of unknown size ({share:.0%} of the device time) {how}"
    return replace(times, time_us=us, low_us=low, high_us=high, warnings=(*times.warnings, line))
