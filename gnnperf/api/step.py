"""From times of device work to a predicted step: the timeline, its interval, its parts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnperf.api.prediction import FamilyTotal, KernelEstimate, PathItem, Saving
from gnnperf.graph import ExecutionGraph, Job, Phase
from gnnperf.graph.model import NONE
from gnnperf.ops import Description, family_names
from gnnperf.timeline.breakdown import CriticalPath, saving
from gnnperf.timeline.replay import Result, StepSchedule, run
from gnnperf.timeline.shares import PHASES

F64 = NDArray[np.float64]

TIMELINE_SPREAD = 0.03
"""Half width of the interval that stays when every device time is right: what replay misses."""
CORRELATION = 0.3
"""Of the errors of two ops of one family in a step: so that of steps that were left out 90 % lie
in their interval (docs/evaluation.md, "Intervals of steps")."""
MAX_FAMILIES = 5
"""Families that get a shift of their own in the interval of a step; the others share one."""
UNTRACED_CALL = "launch, by the host model"
"""Name of the host calls of a step that was recorded without them."""
SAVINGS = 10
"""Names of the critical path whose saving is computed (the step is solved again for each)."""


@dataclass(frozen=True, eq=False)
class RankTimes:
    """The predicted times of one rank's described nodes."""

    described: Description
    time_us: F64
    low_us: F64
    high_us: F64
    measured_us: F64
    """[rows] NaN where not measured, or not on this hardware"""


def on_nodes(graph: ExecutionGraph, described: Description, rows: F64) -> F64:
    """[nodes] the rows' values at their nodes, NaN elsewhere."""
    values = np.full(graph.num_nodes, np.nan)
    values[described.node] = rows
    return values


def solve(
    step: StepSchedule, ranks: Sequence[RankTimes], rows: Sequence[F64], scale: float
) -> Result:
    """Run the timeline with the given [rows] times of every rank."""
    graphs = step.job.graphs
    device = [
        on_nodes(g, r.described, values) for g, r, values in zip(graphs, ranks, rows, strict=True)
    ]
    return run(step, device, kernel_scale=scale)


def interval(
    step: StepSchedule, ranks: Sequence[RankTimes], scale: float, predicted_us: float
) -> tuple[float, float]:
    """Low and high of the step's time.

    A family's work is all low, or all high, as far as its errors go together (`CORRELATION`);
    errors of different families and of the timeline itself are independent.
    """
    below = [TIMELINE_SPREAD * predicted_us]
    above = [TIMELINE_SPREAD * predicted_us]
    for group in _family_groups(ranks):
        chosen = [np.isin(r.described.batch.family, group) for r in ranks]
        for name, reach in (("low_us", below), ("high_us", above)):
            rows = [
                np.where(mine, getattr(r, name), r.time_us)
                for r, mine in zip(ranks, chosen, strict=True)
            ]
            end = solve(step, ranks, rows, scale).iteration_us
            sign = 1.0 if name == "high_us" else -1.0
            apart = [np.abs(v - r.time_us) for v, r in zip(rows, ranks, strict=True)]
            reach.append(max(sign * (end - predicted_us), 0.0) * together(np.concatenate(apart)))
    low = predicted_us - float(np.sqrt(np.sum(np.square(below))))
    high = predicted_us + float(np.sqrt(np.sum(np.square(above))))
    return max(low, 0.0), high


def together(deviation: F64) -> float:
    """Deviation of the sum of ops whose errors correlate, over the sum of their deviations.

    sqrt(r + (1 - r) sum(d^2) / sum(d)^2): 1 for one op, sqrt(r) for many.
    """
    total = float(np.nansum(deviation))
    if total <= 0:
        return 1.0
    alone = float(np.nansum(np.square(deviation))) / total**2
    return float(np.sqrt(CORRELATION + (1 - CORRELATION) * alone))


def _family_groups(ranks: Sequence[RankTimes]) -> list[list[int]]:
    totals = np.zeros(len(family_names()))
    for rank in ranks:
        spread = np.nan_to_num(rank.high_us - rank.low_us)
        np.add.at(totals, rank.described.batch.family, spread)
    order = [int(f) for f in np.argsort(-totals) if totals[f] > 0]
    alone, rest = order[:MAX_FAMILIES], order[MAX_FAMILIES:]
    return [[f] for f in alone] + ([rest] if rest else [])


def kernel_estimates(
    job: Job, ranks: Sequence[RankTimes], spare: Sequence[F64]
) -> tuple[KernelEstimate, ...]:
    """One estimate per described node, rank by rank, in order of the graph.

    Args:
        job: The step.
        ranks: The times of every rank.
        spare: For each graph [nodes] slack.
    """
    names = family_names()
    found = []
    for graph, rank, room in zip(job.graphs, ranks, spare, strict=True):
        label = [graph.strings[int(i)] for i in graph.lanes.label]
        prefix = f"rank {graph.meta.rank} " if len(job.graphs) > 1 else ""
        streams = [prefix + text for text in label]
        node = rank.described.node
        columns = (
            graph.nodes.name[node].tolist(),
            rank.described.batch.family.tolist(),
            graph.nodes.lane[node].tolist(),
            rank.time_us.tolist(),
            rank.low_us.tolist(),
            rank.high_us.tolist(),
            [None if v != v else v for v in rank.measured_us.tolist()],
            [None if v != v else v for v in room[node].tolist()],
        )
        for name, family, lane, *times in zip(*columns, strict=True):
            found.append(KernelEstimate(graph.strings[name], names[family], streams[lane], *times))
    return tuple(found)


def family_totals(ranks: Sequence[RankTimes]) -> tuple[FamilyTotal, ...]:
    """Totals by family over all ranks, the heaviest first."""
    names = family_names()
    family = np.concatenate([r.described.batch.family for r in ranks])
    us = np.concatenate([r.time_us for r in ranks])
    measured = np.concatenate([r.measured_us for r in ranks])
    count = np.bincount(family, minlength=len(names))
    total = np.bincount(family, us, len(names))
    known = np.bincount(family, measured, len(names))
    whole = total.sum() or 1.0
    return tuple(
        FamilyTotal(
            names[f],
            int(count[f]),
            float(total[f]),
            None if np.isnan(known[f]) else float(known[f]),
            float(total[f] / whole),
        )
        for f in np.argsort(-total).tolist()
        if count[f]
    )


def path_items(result: Result, path: CriticalPath, spare: Sequence[F64]) -> tuple[PathItem, ...]:
    """The critical path, node by node, the earliest first.

    Args:
        result: The step.
        path: Its critical path.
        spare: For each graph [nodes] slack.
    """
    graphs = result.step.job.graphs
    origin = float(path.start_us[0]) if len(path.start_us) else 0.0
    items = []
    for row, (node, issued) in enumerate(
        zip(path.node.tolist(), path.issued.tolist(), strict=True)
    ):
        rank = int(path.graph[row])
        graph = graphs[rank]
        name, lane, slack, phase, scope = UNTRACED_CALL, "host", None, Phase.UNKNOWN, None
        if node != NONE:
            name = graph.name_of(node)
            lane = graph.strings[int(graph.lanes.label[graph.nodes.lane[node]])]
            slack = float(spare[rank][node])
        if issued != NONE:
            phase = Phase(int(graph.nodes.phase[issued]))
            index = int(graph.nodes.scope[issued])
            scope = None if index == NONE else graph.strings[index]
        items.append(
            PathItem(
                name,
                lane,
                graph.meta.rank,
                float(path.start_us[row]) - origin,
                float(path.own_us[row]),
                float(path.before_us[row]),
                None if slack is None or slack != slack else slack,
                PHASES[phase],
                scope,
            )
        )
    return tuple(items)


def savings(result: Result, items: Sequence[PathItem]) -> tuple[Saving, ...]:
    """For the names that hold most of the critical path: the step with all their calls free."""
    count = Counter(item.name for item in items)
    total = dict.fromkeys(count, 0.0)
    for item in items:
        total[item.name] += item.duration_us
    found = []
    for name, us in sorted(total.items(), key=lambda pair: -pair[1])[:SAVINGS]:
        found.append(Saving(name, count[name], us, saving(result, _named(result, name))))
    return tuple(sorted(found, key=lambda s: -s.saving_us))


def _named(result: Result, name: str) -> NDArray[np.bool_]:
    """[m] nodes of the schedule that have a name, on all ranks."""
    step = result.step
    found = np.zeros(step.schedule.num_nodes, np.bool_)
    for g, graph in enumerate(step.job.graphs):
        own = np.flatnonzero(step.graph == g)
        node = step.node[own]
        if name == UNTRACED_CALL:
            found[own] = node == NONE
        elif name in graph.strings:
            named = graph.nodes.name == graph.strings.index(name)
            found[own] = named[node] & (node != NONE)
    return found
