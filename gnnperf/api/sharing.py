"""Device work that runs side by side: predicted alone, it takes longer beside other work."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.api.evidence import evidence_of, rows_with_evidence
from gnnperf.api.placing import Placement
from gnnperf.api.step import RankTimes, solve
from gnnperf.timeline.contention import contend, overlaps
from gnnperf.timeline.demand import demand_of
from gnnperf.timeline.replay import Result, StepSchedule

UNSETTLED = 1e-3
"""Share of the step by which a duration may still change before it is told."""


@dataclass(frozen=True, eq=False)
class Shared:
    """A step whose works share their device, and the times that they have there."""

    result: Result
    ranks: tuple[RankTimes, ...]
    added_us: float
    """of the step's time, by contention"""
    warnings: tuple[str, ...] = ()


def share_device(
    step: StepSchedule,
    placed: Placement,
    ranks: Sequence[RankTimes],
    scale: float = 1.0,
    trust: float | None = None,
) -> Shared:
    """Solve the step with works that slow one another down where they overlap.

    Times that come from measured ones (work of unknown size, and all that has evidence) hold
    already what ran beside them and stay.

    Args:
        step: The schedule of the step.
        placed: The job on its device.
        ranks: Times of every rank, as alone.
        scale: Factor on all device work.
        trust: That was asked for in the trace's own kernel times; see `evidence_of`.
    """
    graphs, target = step.job.graphs, placed.target
    alone = solve(step, ranks, [r.time_us for r in ranks], scale)
    if target is None or not overlaps(alone):
        return Shared(alone, tuple(ranks), 0.0)
    believed = evidence_of(placed.own, target, trust).trust > 0
    demands = []
    for graph, rank in zip(graphs, ranks, strict=True):
        measured = graph.nodes.duration_us[rank.described.node]
        settled = ~rank.described.batch.known & np.isfinite(measured)
        if believed:
            settled |= rows_with_evidence(graph, rank.described, measured)
        demands.append(demand_of(graph, rank.described, target, settled))
    found = contend(alone, demands, [target.sm_count] * len(graphs), scale)
    slower = []
    for rank, factor in zip(ranks, found.factor, strict=True):
        by = factor[rank.described.node]
        slower.append(
            replace(
                rank, time_us=rank.time_us * by, low_us=rank.low_us * by, high_us=rank.high_us * by
            )
        )
    said: tuple[str, ...] = ()
    if found.rest_us > UNSETTLED * max(found.result.iteration_us, 1.0):
        said = (f"contention: durations still change by {found.rest_us:.0f} us",)
    return Shared(found.result, tuple(slower), found.added_us, said)
