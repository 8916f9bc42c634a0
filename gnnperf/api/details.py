"""What a prediction says beside the time of the step: kernels, path, savings, phases, scopes."""

from collections.abc import Sequence
from dataclasses import dataclass

from gnnperf.api.prediction import KernelEstimate, PathItem, Saving
from gnnperf.api.step import RankTimes, kernel_estimates, path_items, savings
from gnnperf.timeline.breakdown import critical_path, slack
from gnnperf.timeline.replay import Result
from gnnperf.timeline.shares import Share, by_phase, by_scope


@dataclass(frozen=True)
class Details:
    """The detailed parts of a prediction."""

    kernels: tuple[KernelEstimate, ...] = ()
    critical_path: tuple[PathItem, ...] = ()
    savings: tuple[Saving, ...] = ()
    by_phase: tuple[Share, ...] = ()
    by_scope: tuple[Share, ...] = ()


def details_of(result: Result, ranks: Sequence[RankTimes]) -> Details:
    """All of them, from the timeline and the times that it was run with."""
    path, spare = critical_path(result), slack(result)
    items = path_items(result, path, spare)
    return Details(
        kernel_estimates(result.step.job, ranks, spare),
        items,
        savings(result, items),
        by_phase(result, path),
        by_scope(result, path),
    )


def scopes_of(result: Result) -> str:
    """In words: what the scopes of the step's graphs are."""
    found = set()
    for graph in result.step.job.graphs:
        used = set(graph.nodes.scope[graph.nodes.scope >= 0].tolist())
        found |= {"annotations" if graph.strings[i].startswith("/") else "modules" for i in used}
    return " and ".join(sorted(found, reverse=True)) or "none in the trace"
