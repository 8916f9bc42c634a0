"""Host time of every op of a step by its name or class; docs/host.md says how it was fitted."""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from gnnperf.config import from_mapping, read_yaml
from gnnperf.errors import InputError
from gnnperf.graph.kinds import NodeKind
from gnnperf.graph.model import F64, I64, NONE, ExecutionGraph
from gnnperf.timeline.host_classes import CUSTOM, host_class
from gnnperf.timeline.host_measure import Forest, forest, host_records, op_names

LEAST = 0.2
"""Share of an op's time that stays at least when the profiler's is taken out."""
FORMAT = 1
"""Number of the YAML's layout; another one is refused."""
DEFAULT = Path(__file__).with_name("host.yaml")


@dataclass(frozen=True)
class OpCost:
    """Host time of one op, microseconds, on a host of factor 1 under the profiler."""

    before_us: float
    """its start to the first op or launch inside it; all of it where nothing is inside"""
    between_us: float
    """besides, for each op or launch inside it"""
    after_us: float
    """the last op or launch inside it to its own end"""
    gap_us: float
    """its end to the next op, where no other op encloses it"""
    launches: float = 0.0
    """launches directly inside it, on average: used where a step's launches are not known"""
    count: int = 0
    """ops that it was estimated from"""
    traces: int = 0
    """sets of traces that they are of"""


@dataclass(frozen=True)
class Profiler:
    """What the profiler adds to a step, microseconds."""

    op_us: float
    """for each host op, on a host of factor 1 that drives a GPU"""
    launch_us: float
    """for each launch there: the runtime call and its record of the device work"""
    recorded_us: float
    """for each host event of a step on the CPU, on the machine of the recordings"""


@dataclass(frozen=True)
class HostModel:
    """Fitted host times. Costs hold what the profiler added; `host_times` takes it out."""

    launch_us: float
    """one call that launches device work, under the profiler"""
    work_us: float
    """host time per device work in all, launch included: where a graph has no host ops"""
    profiler: Profiler
    classes: dict[str, OpCost]
    names: dict[str, OpCost]
    """ops by full name, where enough of them were seen; others cost what their class does"""
    default: OpCost
    """of a class that was not seen"""
    factors: dict[str, float] = field(default_factory=dict)
    """host factor of each set of traces: how many times slower its host is than factor 1"""
    provenance: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def __post_init__(self) -> None:
        """Refuse another layout."""
        if self.format != FORMAT:
            raise ValueError(f"format {self.format}, this version reads {FORMAT}")

    def cost_of(self, name: str) -> OpCost:
        """By name, else by class, else the default."""
        return self.names.get(name) or self.classes.get(host_class(name)) or self.default

    def knows(self, name: str) -> bool:
        """Whether the name or its class was seen in the traces that the model is of."""
        return name in self.names or host_class(name) in self.classes


def load_host_model(path: str | Path) -> HostModel:
    """A host model of a YAML file.

    Raises:
        InputError: The file is absent, or is none; names the key.
    """
    data = read_yaml(path)
    if "classes" not in data:
        raise InputError("no `classes`", path=path, remedy="give a file that host_fit wrote")
    return from_mapping(HostModel, data, path)


@lru_cache(maxsize=1)
def default_host_model() -> HostModel:
    """The model that gnnperf ships."""
    return load_host_model(DEFAULT)


@dataclass(frozen=True)
class HostSide:
    """The host that a step without a host side is put on."""

    factor: float = 1.0
    """how many times slower than the typical host of the model: see `host_factor`"""
    profiled: bool = False
    """whether a profiler runs beside it"""
    model: HostModel | None = None
    """default: the one that gnnperf ships"""


@dataclass(frozen=True, eq=False)
class HostTimes:
    """When the host of a step launches its works, as durations along one chain of launches."""

    gap_us: F64
    """[w] host time before each launch since the launch before it (since the step's start)"""
    launch_us: F64
    """[w] of each launch call"""
    tail_us: float
    """host time from the last launch to the end of the step"""
    unknown: dict[str, int]
    """op -> how many cost the default, because neither its name nor its class was seen"""

    @property
    def total_us(self) -> float:
        """Host time of the step: what it takes when all device work is free."""
        return float(self.gap_us.sum() + self.launch_us.sum() + self.tail_us)


def host_times(graph: ExecutionGraph, works: I64, host: HostSide | None = None) -> HostTimes:
    """Host times of a step from the sequence of its ops alone.

    Args:
        graph: A step; its times are used for the order of its ops and for nothing else.
        works: [w] device nodes, in the order in which the host launches them; or the host ops
            that stand for device work or do the work themselves (leaf ops): then what lies
            inside them is theirs.
        host: The host; default: the typical one, without a profiler.
    """
    host = host or HostSide()
    model, factor = host.model or default_host_model(), host.factor
    tree = forest(graph)
    take = Profiler(0.0, 0.0, 0.0) if host.profiled else model.profiler
    launch = np.full(len(works), max(model.launch_us - take.launch_us, 0.0))
    owner = tree.row[works]
    gap = np.zeros(len(works))
    loose = owner == NONE
    gap[loose] = max(model.work_us - model.launch_us, 0.0)
    if not len(tree.node):
        return HostTimes(factor * gap, factor * launch, 0.0, {})
    opened, closed, unknown = _spent(graph, tree, model, take, owner)
    if any(key == "lowered" for key, _ in graph.meta.notes):
        closed += _further_launches(graph, tree, model, take, owner)
    if len(graph.device_nodes) == 0:
        _nothing_inside(tree, owner, opened, closed)
        launch = np.zeros(len(works))
    at, tail = _between_works(tree, owner, opened, closed)
    return HostTimes(factor * (gap + at), factor * launch, factor * tail, unknown)


def _spent(
    graph: ExecutionGraph, tree: Forest, model: HostModel, take: Profiler, owner: I64
) -> tuple[F64, F64, dict[str, int]]:
    """[h] time when each op begins and when it ends; ops that nothing is known of."""
    count = len(tree.node)
    works = np.bincount(owner[owner >= 0], minlength=count)
    inside = works + np.bincount(tree.parent[tree.parent >= 0], minlength=count)
    distinct, which = np.unique(np.array(op_names(graph, tree), np.str_), return_inverse=True)
    names = distinct.tolist()
    costs = [model.cost_of(text) for text in names]
    before, between, after, gap = (
        np.array([getattr(c, key) for c in costs])[which]
        for key in ("before_us", "between_us", "after_us", "gap_us")
    )
    top = tree.parent < 0
    opened = before + between * inside
    closed = after + np.where(top, gap, 0.0)
    # The profiler's work on an event is done outside of the event: in the op around it.
    added = take.op_us * (inside - works + top)
    left = np.maximum(opened + closed - added, LEAST * (opened + closed))
    share = left / np.maximum(opened + closed, 1e-9)
    seen = np.bincount(which, minlength=len(names)).tolist()
    unknown = {t: n for t, n in zip(names, seen, strict=True) if not model.knows(t)}
    return opened * share, closed * share, unknown


ODD = 3.0
"""An op whose time is so many times off the others' tells nothing of its host's speed."""


def _further_launches(
    graph: ExecutionGraph, tree: Forest, model: HostModel, take: Profiler, owner: I64
) -> F64:
    """[h] host time of launches that no work of the graph stands for.

    An op may make more than the one that stands for its work; a custom autograd node that none
    stands for makes all of its own.
    """
    count = len(tree.node)
    distinct, which = np.unique(graph.nodes.name[tree.node], return_inverse=True)
    names = [graph.strings[int(i)] for i in distinct]
    custom = np.array([host_class(text) == CUSTOM for text in names], np.bool_)[which]
    costs = [model.cost_of(text) for text in names]
    works = np.bincount(owner[owner >= 0], minlength=count)
    launches = np.array([c.launches for c in costs])[which]
    further = np.where(works > 0, np.maximum(launches - 1.0, 0.0), 0.0)
    further = np.where(custom & (works == 0), launches, further)
    launch = max(model.launch_us - take.launch_us, 0.0)
    each: F64 = further * (launch + np.array([c.between_us for c in costs])[which])
    return each


def _nothing_inside(tree: Forest, owner: I64, opened: F64, closed: F64) -> None:
    """Ops that do their work themselves: their time, and of all inside them, is that work."""
    change = np.zeros(len(opened) + 1)
    held = owner[owner >= 0]
    np.add.at(change, held, 1)
    np.add.at(change, tree.last[held] + 1, -1)
    covered = np.cumsum(change[:-1]) > 0
    opened[covered] = 0.0
    closed[covered] = 0.0


def _between_works(tree: Forest, owner: I64, opened: F64, closed: F64) -> tuple[F64, float]:
    """[w] host time before each launch since the one before, and after the last one."""
    ended = np.zeros(len(opened) + 1)
    np.add.at(ended, tree.last + 1, closed)
    until = np.cumsum(opened) + np.cumsum(ended[:-1])
    total = float(opened.sum() + closed.sum())
    known = owner >= 0
    reached = np.where(known, until[np.maximum(owner, 0)], 0.0)
    reached = np.maximum.accumulate(reached) if len(reached) else reached
    gap = np.diff(reached, prepend=0.0)
    return gap, total - (float(reached[-1]) if len(reached) else 0.0)


def host_factor(graph: ExecutionGraph, model: HostModel | None = None) -> float:
    """How many times slower the host of a traced step is than the typical one of the model.

    Time over cost of its ops, gaps included: the mean over their names, weighted by cost, of what
    lies within a factor of `ODD` of the weighted median. 1 for a step whose host ops have no times
    or which launches nothing: on the CPU an op's time is its work.
    """
    model = model or default_host_model()
    host = graph.is_kind(NodeKind.HOST_OP)
    launches = graph.nodes.launch[graph.device_nodes] >= 0
    if not launches.any() or not np.isfinite(graph.nodes.start_us[host]).all():
        return 1.0
    records = host_records(graph)
    distinct, which = np.unique(records.name, return_inverse=True)
    costs = [model.cost_of(records.names[int(i)]) for i in distinct]
    before, between, after, gap = (
        np.array([getattr(c, key) for c in costs])[which]
        for key in ("before_us", "between_us", "after_us", "gap_us")
    )
    spent = before + between * records.inside + after
    spent = spent + np.where(np.isfinite(records.gap_us), gap, 0.0)
    time = records.own_us + np.nan_to_num(records.gap_us)
    each = np.asarray(np.bincount(which, time), np.float64)
    return _ratio(each, np.asarray(np.bincount(which, spent), np.float64))


def _ratio(time: F64, cost: F64) -> float:
    """Time over cost of all names within a factor of `ODD` of the middle one."""
    ratio = time / np.maximum(cost, 1e-9)
    order = np.argsort(ratio, kind="stable")
    total = np.cumsum(cost[order])
    if not len(total) or total[-1] <= 0:
        return 1.0
    middle = float(ratio[order][np.searchsorted(total, total[-1] / 2)])
    fair = (ratio >= middle / ODD) & (ratio <= middle * ODD)
    return float(time[fair].sum() / cost[fair].sum())
