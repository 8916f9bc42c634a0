"""Several files of one job: pairs are joined, ranks told apart, recordings put in a row."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.traces.build import build_graphs
from gnnperf.traces.link import link
from gnnperf.traces.pair import join
from gnnperf.traces.table import TraceTable

_RANK_IN_NAME = (
    re.compile(r"rank[_\-.]?(\d{1,5})(?!\d)", re.IGNORECASE),
    re.compile(r"worker[_\-.]?(\d{1,5})(?!\d)", re.IGNORECASE),
    re.compile(r"[._](\d{1,5})\.(?:et|json|pt)"),
)

_PROFILER_STEP = re.compile(r"ProfilerStep#\s*(\d+)")


@dataclass
class Recordings:
    """The tables of a job's files, linked, each with the number of its first step."""

    tables: list[TraceTable] = field(default_factory=list)
    first_step: list[int] = field(default_factory=list)

    def graphs(self) -> list[ExecutionGraph]:
        """All steps of all ranks, by rank and step."""
        found = []
        for table, first in zip(self.tables, self.first_step, strict=True):
            for graph in build_graphs(table):
                meta = replace(graph.meta, step=graph.meta.step + first)
                found.append(replace(graph, meta=meta) if first else graph)
        return sorted(_same_steps(found), key=lambda g: (g.meta.rank, g.meta.step))


def _same_steps(graphs: list[ExecutionGraph]) -> list[ExecutionGraph]:
    """Steps of several ranks numbered by `ProfilerStep#k`, so that equal numbers are one step."""
    if len({g.meta.rank for g in graphs}) < 2:
        return graphs
    numbers = [_PROFILER_STEP.fullmatch(g.meta.step_name) for g in graphs]
    if not all(numbers):
        return graphs
    steps = [int(n[1]) for n in numbers if n]
    first = min(steps)
    return [
        replace(g, meta=replace(g.meta, step=step - first))
        for g, step in zip(graphs, steps, strict=True)
    ]


def assemble(tables: Sequence[TraceTable]) -> Recordings:
    """Join execution traces to their Kineto traces, give ranks and steps, link the events."""
    kept = _ranked(_paired(list(tables)))
    result = Recordings()
    steps: dict[int, int] = defaultdict(int)
    for table in kept:
        link(table)
        result.tables.append(table)
        rank = table.meta.rank
        result.first_step.append(steps[rank])
        if len(kept) > 1:
            steps[rank] += len(table.marks[0].start_us)
    return result


def _paired(tables: list[TraceTable]) -> list[TraceTable]:
    """Every execution trace joined to the Kineto trace of its rank (or to the only one)."""
    traces = [t for t in tables if t.meta.format == "pytorch-et"]
    kinetos = [t for t in tables if t.meta.format == "kineto"]
    if not traces or not kinetos:
        return tables
    joined: dict[int, TraceTable] = {}
    left: list[TraceTable] = []
    for trace in traces:
        only = len(traces) == len(kinetos) == 1
        mate = next(
            (i for i, k in enumerate(kinetos) if only or k.meta.rank == trace.meta.rank), None
        )
        if mate is None or mate in joined:
            left.append(trace)
        else:
            joined[mate], _ = join(kinetos[mate], trace)
    others = [t for t in tables if t.meta.format not in ("pytorch-et", "kineto")]
    return [joined.get(i, k) for i, k in enumerate(kinetos)] + left + others


def _ranked(tables: list[TraceTable]) -> list[TraceTable]:
    """Tables ordered by rank and time, with a rank each.

    Files that record the same rank, or none, are the ranks that their names tell if those
    differ; else recordings of one rank if they do not overlap in time; else ranks in the order
    of their names.
    """
    groups: dict[int, list[TraceTable]] = defaultdict(list)
    for table in tables:
        groups[table.meta.rank].append(table)
    result: list[TraceTable] = []
    for rank, group in groups.items():
        result += _told_apart(group, rank) if len(group) > 1 else group
    return sorted(result, key=lambda t: (t.meta.rank, t.origin_us))


def _told_apart(group: list[TraceTable], rank: int) -> list[TraceTable]:
    if any(dict(t.meta.notes).get("rank_recorded") == "true" for t in group):
        if not _in_turn(group):
            line = f"{len(group)} files of the same time say they are rank {rank}: taken in a row"
            for table in group:
                table.meta = replace(table.meta, warnings=(*table.meta.warnings, line))
        return group
    named = [_rank_in_name(t.meta.source) for t in group]
    if None not in named and len(set(named)) == len(group):
        ranks = [n if n is not None else rank for n in named]
        how = "rank taken from the file's name"
    elif _in_turn(group):
        return group
    else:
        ranks = list(range(len(group)))
        how = "no rank recorded: ranks given in the order of the files"
    size = max(ranks) + 1
    for table, number in zip(group, ranks, strict=True):
        table.meta = replace(
            table.meta,
            rank=number,
            world_size=max(table.meta.world_size, size),
            warnings=(*table.meta.warnings, how),
        )
    return group


def _rank_in_name(name: str) -> int | None:
    base = re.split(r"[/\\:]", name)[-1]
    for pattern in _RANK_IN_NAME:
        found = pattern.search(base)
        if found:
            return int(found.group(1))
    return None


def _in_turn(group: list[TraceTable]) -> bool:
    """Whether the recordings follow one another."""
    spans = sorted((t.origin_us, t.origin_us + _end(t)) for t in group)
    return all(t.timed for t in group) and all(
        first[1] <= second[0] for first, second in pairwise(spans)
    )


def _end(table: TraceTable) -> float:
    ends = table.start_us + table.duration_us
    return float(np.nanmax(ends)) if np.isfinite(ends).any() else 0.0
