"""The tables of docs/host.md: `python -m gnnperf.timeline.host_table TRACES RECORDINGS`.

Each set's host time is predicted from the sequence of its ops, by a model of all other sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnperf.graph import ExecutionGraph, Job, Rendezvous
from gnnperf.graph.model import F64, I64
from gnnperf.timeline.host_fit import SetRecords, event_us, fit_host, read_sets, set_records
from gnnperf.timeline.host_measure import Forest, forest, host_records
from gnnperf.timeline.host_model import HostModel, HostSide, host_factor, host_times
from gnnperf.timeline.hostless import HostDefaults
from gnnperf.timeline.replay import run, schedule_of

MOST_STEPS = 6
"""Steps of a set that are looked at."""


@dataclass(frozen=True)
class HostRow:
    """Host time of a step of one set, milliseconds; medians over its steps and ranks."""

    name: str
    free_ms: float
    """the step replayed with all device work free: its host alone, with all that it does"""
    ops_ms: float
    """of its ops, launches and the gaps between them (gaps over 200 us left out)"""
    constant_ms: float
    """25 us per op that launches, 4 us per further launch"""
    pooled_ms: float
    """mean per name of top-level op over the other sets, as in the paper"""
    typical_ms: float
    """this model, factor 1"""
    known_ms: float
    """this model, with the factor of the set's own host"""
    sister_ms: float
    """this model, with the factor of other sets of the same GPU model; NaN without any"""
    factor: float


@dataclass(frozen=True, eq=False)
class _Pool:
    """The paper's scheme: samples of one set."""

    ops: dict[str, F64]
    """host time of each op at top level by name, with what is inside, without launches"""
    gap_us: F64
    launch_us: F64


def _pool(graphs: Sequence[ExecutionGraph]) -> _Pool:
    ops: dict[str, list[float]] = {}
    gaps, launches = [], []
    for graph in graphs:
        records, tree = host_records(graph), forest(graph)
        top = np.flatnonzero(tree.parent < 0)
        inside = np.bincount(_tops(tree), records.own_us, len(tree.node))[top]
        for name, us in zip(records.name[top].tolist(), inside.tolist(), strict=True):
            ops.setdefault(graph.strings[name], []).append(us)
        gaps.append(records.gap_us[np.isfinite(records.gap_us)])
        launches.append(records.launch_us)
    return _Pool(
        {k: np.array(v) for k, v in ops.items()}, np.concatenate(gaps), np.concatenate(launches)
    )


def _tops(tree: Forest) -> I64:
    """[h] the row at top level that each op is in, by pointer doubling."""
    top = np.where(tree.parent < 0, np.arange(len(tree.parent)), tree.parent)
    while not np.array_equal(top, top[top]):
        top = top[top]
    return top


def _mean(values: Sequence[F64]) -> float:
    """Mean without outliers (1.5 times the range of the quartiles, as in the paper's code)."""
    pooled = np.concatenate(values)
    low, high = np.quantile(pooled, [0.25, 0.75])
    width = 1.5 * (high - low)
    return float(pooled[(pooled >= low - width) & (pooled <= high + width)].mean())


def _pooled_us(graph: ExecutionGraph, pools: Sequence[_Pool]) -> float:
    """Host time of a step by the paper's scheme; an op that the pools lack costs its gap only."""
    tree = forest(graph)
    top = tree.node[tree.parent < 0]
    time = _mean([p.gap_us for p in pools]) * len(top)
    time += _mean([p.launch_us for p in pools]) * len(launched(graph))
    names, counts = np.unique(graph.nodes.name[top], return_counts=True)
    for name, many in zip(names.tolist(), counts.tolist(), strict=True):
        text = graph.strings[name]
        samples = [p.ops[text] for p in pools if text in p.ops]
        if samples:
            time += many * _mean(samples)
    return time


def launched(graph: ExecutionGraph) -> I64:
    """Device works with a launch in the trace, one of each launch, in order of launches."""
    nodes = graph.nodes
    device = graph.device_nodes
    device = device[nodes.launch[device] >= 0]
    _, first = np.unique(nodes.launch[device], return_index=True)
    device = device[first]
    return device[np.argsort(nodes.start_us[nodes.launch[device]], kind="stable")]


def _free_us(graph: ExecutionGraph) -> float:
    step = schedule_of(Job((graph,), Rendezvous.none()))
    return run(step, kernel_scale=0.0).iteration_us


def host_rows(folders: Sequence[Path]) -> list[HostRow]:
    """A row per set with a host side and device work, each by a model of the other sets."""
    graphs: dict[str, list[ExecutionGraph]] = {}
    records: dict[str, SetRecords] = {}
    for folder in folders:
        for name, job in read_sets(folder).items():
            found = set_records(name, job.graphs)
            if found is not None:
                records[name] = found
                graphs[name] = _some(job.graphs)
    cost = event_us(folders, fit_host(list(records.values())).factors)
    on_device = [n for n, r in records.items() if np.isfinite(r.launch_us)]
    pools = {n: _pool(graphs[n]) for n in on_device}
    rows = []
    for name in on_device:
        model = fit_host([r for n, r in records.items() if n != name], cost)
        others = [p for n, p in pools.items() if n != name]
        device = graphs[name][0].meta.device
        same = [n for n in on_device if n != name and graphs[n][0].meta.device == device]
        sister = float(np.median([model.factors[n] for n in same])) if same else float("nan")
        table = [_figures(g, model, others, sister) for g in graphs[name]]
        rows.append(HostRow(name, *np.median(np.array(table), axis=0).tolist()))
    return rows


def _some(graphs: Sequence[ExecutionGraph]) -> list[ExecutionGraph]:
    chosen = np.unique(np.linspace(0, len(graphs) - 1, min(MOST_STEPS, len(graphs))).round())
    return [graphs[int(i)] for i in chosen]


def _figures(
    graph: ExecutionGraph, model: HostModel, pools: Sequence[_Pool], sister: float
) -> list[float]:
    works = launched(graph)
    factor = host_factor(graph, model)
    typical = host_times(graph, works, HostSide(profiled=True, model=model)).total_us
    op = graph.nodes.op[works]
    ops = 1 + int((op[1:] != op[:-1]).sum())
    host = HostDefaults()
    constant = host.op_us * ops + host.launch_us * len(works)
    us = [
        _free_us(graph),
        host_records(graph).total_us,
        constant,
        _pooled_us(graph, pools),
        typical,
        factor * typical,
        sister * typical,
    ]
    return [t / 1e3 for t in us] + [factor]
