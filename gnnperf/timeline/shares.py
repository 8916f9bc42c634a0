"""Where the time of a step goes by what issued its work: phases, and scopes of the model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnperf.graph.kinds import Phase
from gnnperf.graph.model import F64, I64, NONE, ExecutionGraph
from gnnperf.timeline.breakdown import CriticalPath, segments, works_of
from gnnperf.timeline.replay import Result

PHASES: dict[Phase, str] = {
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
    Phase.DATA: "data loading",
    Phase.UNKNOWN: "other",
}
"""Every phase and its name in the output."""


@dataclass(frozen=True)
class Share:
    """The part of a step that one phase or one scope (with all inside it) has."""

    name: str
    count: int
    """works of the device, of all ranks"""
    device_us: float
    """their durations, the mean over the ranks"""
    exposed_us: float
    """time in which they run and no other work does, the mean over the ranks"""
    path_us: float
    """time that the critical path spends in them, in the host's calls for them, and before both"""


def by_phase(result: Result, path: CriticalPath) -> tuple[Share, ...]:
    """The phases that have any device work or any of the critical path."""
    number = {phase: i for i, phase in enumerate(PHASES)}
    table = np.array([number[p] for p in sorted(PHASES)])
    groups = [table[graph.nodes.phase] for graph in result.step.job.graphs]
    found = _shares(result, path, groups, tuple(PHASES.values()))
    return tuple(s for s in found if s.count or s.path_us > 0)


def by_scope(result: Result, path: CriticalPath) -> tuple[Share, ...]:
    """Every scope of the trace that has device work, the outer ones with all inside them.

    Nothing if the trace holds neither modules nor annotations. The heaviest of each level first,
    level after level.
    """
    graphs = result.step.job.graphs
    chains = [[_ancestors(text) for text in _scopes(graph)] for graph in graphs]
    deepest = max((len(c) for chain in chains for c in chain), default=0)
    found: list[Share] = []
    for level in range(deepest):
        names: dict[str, int] = {}
        groups = []
        for graph, chain in zip(graphs, chains, strict=True):
            number = [
                names.setdefault(c[level], len(names)) if len(c) > level else NONE for c in chain
            ]
            used = np.unique(graph.nodes.scope)
            table = np.full(len(graph.strings) + 1, NONE, np.int64)
            table[used[used >= 0]] = number
            groups.append(table[graph.nodes.scope])
        shares = _shares(result, path, groups, tuple(names))
        found += sorted((s for s in shares if s.count), key=lambda s: -s.device_us)
    return tuple(found)


def _scopes(graph: ExecutionGraph) -> list[str]:
    used = np.unique(graph.nodes.scope)
    return [graph.strings[i] for i in used[used >= 0].tolist()]


def level_of(scope: str) -> int:
    """How many scopes a scope lies in."""
    return len(_ancestors(scope)) - 1


def _ancestors(scope: str) -> list[str]:
    """A scope and what it lies in, the outermost first: `A`, `A.b`; `/f`, `/f/g`."""
    mark = "/" if scope.startswith("/") else "."
    parts = scope.split(mark)
    first = 2 if mark == "/" else 1
    return [mark.join(parts[:n]) for n in range(first, len(parts) + 1)]


def _shares(
    result: Result, path: CriticalPath, groups: Sequence[I64], names: tuple[str, ...]
) -> list[Share]:
    """One share per name; `groups` gives [nodes] number of the name for each graph, or NONE."""
    size = len(names)
    count, device, exposed, way = (np.zeros(size + 1) for _ in range(4))
    for g, group in enumerate(groups):
        works, start, end = works_of(result, g)
        own = np.where(group[works] == NONE, size, group[works])
        count += np.bincount(own, minlength=size + 1)
        device += np.bincount(own, end - start, size + 1)
        exposed += _alone(start, end, own, size, result.period_us)
        mine = np.flatnonzero((path.graph == g) & (path.issued != NONE))
        passed = group[path.issued[mine]]
        spent = path.own_us[mine] + path.before_us[mine]
        way += np.bincount(np.where(passed == NONE, size, passed), spent, size + 1)
    ranks = len(groups)
    return [
        Share(
            name,
            int(count[i]),
            *(float(x) for x in (device[i] / ranks, exposed[i] / ranks, way[i])),
        )
        for i, name in enumerate(names)
    ]


def _alone(start: F64, end: F64, group: I64, size: int, period: float) -> F64:
    """[size + 1] time in which works of one group run and of no other."""
    lengths, which, change = segments(start, end, period)
    if not len(which):
        return np.zeros(size + 1)
    number = group[which]
    running = np.cumsum(change)[:-1]
    total, squares = (np.cumsum(change * number**k)[:-1] for k in (1, 2))
    # All n running works are of one group where n times the squares is the square of the sum.
    one = (running > 0) & (running * squares == total**2)
    return np.bincount(total[one] // running[one], lengths[one], size + 1).astype(np.float64)
