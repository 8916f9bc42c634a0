"""What a trace holds and what is wrong with it, as a report."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gnnperf.graph import ExecutionGraph, Job, NodeKind
from gnnperf.graph.model import F64
from gnnperf.traces.assemble import Recordings, assemble
from gnnperf.traces.build import choose_marks
from gnnperf.traces.checks import (
    Links,
    collectives_before_inputs,
    count_links,
    graph_shapes,
    table_shapes,
)
from gnnperf.traces.kineto import DROPPED, REPAIRED, UNTIMED
from gnnperf.traces.reader import Inputs, open_inputs, steady_steps
from gnnperf.traces.rendezvous import match_collectives
from gnnperf.traces.table import TraceTable

SKEW_US = 100.0
"""Ends of one collective on two ranks of one host agree to less than this."""

CHECKS = {
    "launch_without_kernel": "launches, copies and memsets that no device work answers",
    "kernel_without_launch": "device work whose launch is not in the trace",
    "negative_gaps": "device work that starts before its launch",
    "stream_overlaps": "device work that overlaps with the one before it on its stream",
    "collective_before_inputs": "collectives that start before their inputs are written",
    "missing_shapes": "ops that issue kernels and have no recorded shapes",
    "truncated_file": "files cut off (these are refused)",
    "dropped_events": "messages of the profiler about dropped events",
    "events_without_time": "events whose time is no number, of negative length or past 285 years",
    "repaired_values": "values that are no JSON (NaN, control characters), blanked",
    "clock_skew": "ranks whose collectives end more than 100 us off the others'",
    "unmatched_collectives": "collectives of a step that not all ranks have",
}
"""Name of a check -> what it counts."""


@dataclass(frozen=True)
class FileReport:
    """What one file (or one rank of a graph file) holds. Shares are percentages of kernels."""

    file: str
    sha256: str
    format: str
    schema: str
    device: str
    device_type: str
    rank: int
    world_size: int
    steps: int
    step_delimiter: str
    step_names: tuple[str, ...]
    links: Links
    device_with_launch_pct: float | None
    kernels_with_op_pct: float | None
    kernels_with_shapes_pct: float | None
    host_ops_with_shapes_pct: float | None
    linked_by: str
    checks: dict[str, int | None]
    """name -> count; None where the trace cannot tell"""
    events: dict[str, int] = field(default_factory=dict)
    """events by category, as the file names them"""
    left_out: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """All files of one job."""

    files: tuple[FileReport, ...]
    ranks: tuple[int, ...]
    steady_steps: tuple[int, ...]
    checks: dict[str, int | None]
    """over all files and between ranks"""
    clock_skew_us: dict[int, float] = field(default_factory=dict)
    """rank -> median difference of its collectives' ends to the median of all ranks"""


def validate(paths: Sequence[str | Path] | str | Path) -> Report:
    """Read files, folders or archives and report on them.

    Raises:
        InputError: A file cannot be read; says which and why.
    """
    inputs: Inputs = open_inputs(paths)
    if inputs.job is not None:
        job = inputs.job
        files = tuple(_rank_report(job, rank) for rank in job.ranks)
    else:
        recordings = assemble(inputs.tables)
        graphs = recordings.graphs()
        job = Job(tuple(graphs), match_collectives(graphs))
        files = _file_reports(recordings, graphs)
    skew = clock_skew_us(job)
    checks = _total([f.checks for f in files])
    several = len(job.ranks) > 1
    checks["clock_skew"] = sum(abs(s) > SKEW_US for s in skew.values()) if skew else None
    checks["unmatched_collectives"] = _unmatched(job) if several else None
    return Report(files, tuple(job.ranks), tuple(steady_steps(job)), checks, skew)


def _file_reports(
    recordings: Recordings, graphs: Sequence[ExecutionGraph]
) -> tuple[FileReport, ...]:
    before: dict[str, int | None] = {}
    for graph in graphs:
        count, source = collectives_before_inputs(graph), graph.meta.sha256
        if count is not None:
            before[source] = (before.get(source) or 0) + count
    return tuple(_file_report(t, before.get(t.meta.sha256)) for t in recordings.tables)


def _file_report(table: TraceTable, before_inputs: int | None) -> FileReport:
    meta = table.meta
    marks, step = choose_marks(table)
    present = np.unique(step[step >= 0])
    links = count_links(table, table.names, table.is_op, table_shapes(table))
    counts = dict(table.counts)
    checks = _link_checks(links, before_inputs) | {
        "dropped_events": counts.get(DROPPED, 0),
        "events_without_time": counts.get(UNTIMED, 0),
        "repaired_values": counts.get(REPAIRED, 0),
    }
    return FileReport(
        file=meta.source,
        sha256=meta.sha256,
        format=meta.format,
        schema=meta.schema,
        device=meta.device,
        device_type=meta.device_type,
        rank=meta.rank,
        world_size=meta.world_size,
        steps=len(present),
        step_delimiter=marks.delimiter,
        step_names=tuple(marks.names[i] for i in present),
        links=links,
        device_with_launch_pct=_percent(links.device_with_launch, links.device),
        kernels_with_op_pct=_percent(links.kernels_with_op, links.working),
        kernels_with_shapes_pct=_percent(links.kernels_with_shapes, links.working),
        host_ops_with_shapes_pct=_percent(links.host_ops_with_shapes, links.host_ops),
        linked_by=_linked_by(links),
        checks=checks,
        events=table.taken,
        left_out=table.left_out,
        versions=dict(meta.versions),
        notes=dict(meta.notes),
        warnings=meta.warnings,
    )


def _rank_report(job: Job, rank: int) -> FileReport:
    graphs = [g for g in job.graphs if g.meta.rank == rank]
    meta = graphs[0].meta
    links, before = Links(), None
    for graph in graphs:
        is_op = graph.is_kind(NodeKind.HOST_OP)
        links = links + count_links(graph.nodes, list(graph.strings), is_op, graph_shapes(graph))
        count = collectives_before_inputs(graph)
        before = before if count is None else (before or 0) + count
    return FileReport(
        file=meta.source,
        sha256=meta.sha256,
        format=f"gnnperf graph ({meta.format})",
        schema=meta.schema,
        device=meta.device,
        device_type=meta.device_type,
        rank=rank,
        world_size=meta.world_size,
        steps=len(graphs),
        step_delimiter=meta.step_delimiter,
        step_names=tuple(g.meta.step_name for g in graphs),
        links=links,
        device_with_launch_pct=_percent(links.device_with_launch, links.device),
        kernels_with_op_pct=_percent(links.kernels_with_op, links.working),
        kernels_with_shapes_pct=_percent(links.kernels_with_shapes, links.working),
        host_ops_with_shapes_pct=_percent(links.host_ops_with_shapes, links.host_ops),
        linked_by=_linked_by(links),
        checks=_link_checks(links, before),
        versions=dict(meta.versions),
        notes=dict(meta.notes),
        warnings=tuple(dict.fromkeys(w for g in graphs for w in g.meta.warnings)),
    )


def _link_checks(links: Links, before_inputs: int | None) -> dict[str, int | None]:
    return {
        "launch_without_kernel": links.launch_without_kernel,
        "kernel_without_launch": links.kernel_without_launch,
        "negative_gaps": links.negative_gaps,
        "stream_overlaps": links.stream_overlaps,
        "collective_before_inputs": before_inputs if links.collectives else 0,
        "missing_shapes": links.missing_shapes if links.working else None,
        "truncated_file": 0,
    }


def _percent(part: int, whole: int) -> float | None:
    return round(100.0 * part / whole, 1) if whole else None


def _linked_by(links: Links) -> str:
    if not links.device:
        return "no device work"
    if links.device_with_launch:
        return "correlation id to the runtime call, then the innermost op around it on its thread"
    return "op named by the device node" if links.kernels_with_op else "nothing: no launches"


def _total(checks: Sequence[dict[str, int | None]]) -> dict[str, int | None]:
    """Sums over files; None where no file can tell."""
    result: dict[str, int | None] = {}
    for name in CHECKS:
        known = [c for one in checks if (c := one.get(name)) is not None]
        result[name] = sum(known) if known else None
    return result


def clock_skew_us(job: Job) -> dict[int, float]:
    """Rank -> median, over matched collectives, of its end minus the median end of all ranks."""
    parts: dict[int, list[float]] = {}
    joined = job.rendezvous
    for start, stop in zip(joined.ptr[:-1].tolist(), joined.ptr[1:].tolist(), strict=True):
        graphs, nodes = joined.graph[start:stop].tolist(), joined.node[start:stop].tolist()
        ends: F64 = np.array([_end(job.graphs[g], n) for g, n in zip(graphs, nodes, strict=True)])
        if not np.isfinite(ends).all():
            continue
        for graph, late in zip(graphs, (ends - np.median(ends)).tolist(), strict=True):
            parts.setdefault(job.graphs[graph].meta.rank, []).append(late)
    return {rank: round(float(np.median(late)), 3) for rank, late in sorted(parts.items())}


def _end(graph: ExecutionGraph, node: int) -> float:
    nodes = graph.nodes
    return graph.meta.step_start_us + float(nodes.start_us[node] + nodes.duration_us[node])


def _unmatched(job: Job) -> int:
    """Collectives that stand in no row of all ranks."""
    total = sum(int((g.nodes.kind == NodeKind.COLLECTIVE).sum()) for g in job.graphs)
    sizes = np.diff(job.rendezvous.ptr)
    return total - int(sizes[sizes == len(job.ranks)].sum())
