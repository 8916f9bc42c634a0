"""From paths to the one step that is predicted."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnperf.errors import InputError
from gnnperf.graph import ExecutionGraph, Job, NodeKind
from gnnperf.recording.manifest import measured_of
from gnnperf.traces import read_job, steady_steps, step_time_us

CHOICE = "step_choice"
"""Name of the note of a graph that tells how its step was chosen."""
_ALLOCATES = re.compile(r"^(cuda|hip)Malloc(Async|Managed|Pitch)?$|^cuMem(Alloc|Create)")
WORTH_TELLING = 0.01
"""Share of the host's step that allocations take before they are told."""


def chosen_step(paths: Sequence[Path], step: int | None = None) -> Job:
    """The job of one step: the one asked for, else the one of median time among the steady ones.

    The first step of several, which holds allocations and warm-up, is no steady one. The graphs
    note how the step was chosen, and warn where it allocates device memory.

    Raises:
        InputError: No path, or a file cannot be read, holds no step, or not the step asked for.
    """
    if not paths:
        raise InputError("no trace given", remedy="name its file or the folder of its ranks")
    job = read_job(list(paths))
    if not job.graphs:
        raise InputError("no step in it", path=paths[0], remedy="record at least one whole step")
    if step is not None:
        asked = "asked for"
        if len(job.steps) > 1 and step == job.steps[0]:
            asked += ", the first: allocations and warm-up are in it"
        return _noted(job.of_step(step), asked)
    steady = steady_steps(job) or job.steps
    times = [
        np.median([step_time_us(job.graphs[i]) for i in job.indices_of_step(s)]) for s in steady
    ]
    order = np.argsort(times, kind="stable")
    how = "the only one of its trace"
    if len(job.steps) > 1:
        which = f"median of {len(steady)} steady steps" if len(steady) > 1 else "only steady step"
        how = f"the {which} of {len(job.steps)}"
        if job.steps[0] not in steady:
            how += "; the first, with its allocations, is left out"
    return _noted(job.of_step(steady[int(order[(len(order) - 1) // 2])]), how)


def _noted(job: Job, how: str) -> Job:
    graphs = []
    for graph in job.graphs:
        told = allocations(graph)
        warnings = graph.meta.warnings if told is None else (*graph.meta.warnings, told)
        meta = replace(graph.meta, notes=(*graph.meta.notes, (CHOICE, how)), warnings=warnings)
        graphs.append(replace(graph, meta=meta))
    return replace(job, graphs=tuple(graphs))


def allocations(graph: ExecutionGraph) -> str | None:
    """In words: what the step's allocations of device memory cost its host; None if little."""
    nodes = graph.nodes
    calls = np.flatnonzero(graph.is_kind(NodeKind.RUNTIME))
    used = np.unique(nodes.name[calls]).tolist()
    names = [i for i in used if _ALLOCATES.search(graph.strings[i])]
    calls = calls[np.isin(nodes.name[calls], names)]
    spent = float(np.nansum(nodes.duration_us[calls]))
    if not len(calls) or not spent > WORTH_TELLING * graph.meta.host_step_us:
        return None
    return (
        f"the step allocates device memory ({len(calls)} calls, {spent / 1e3:.2f} ms of the host): "
        "steps after the first usually do not"
    )


def recorded_time(paths: Sequence[Path], job: Job) -> tuple[float, str] | None:
    """The time of the step without a profiler, where the trace is an own recording that has it."""
    folders = {path.parent for path in paths}
    recorded = paths[0] if len(paths) == 1 else folders.pop() if len(folders) == 1 else None
    found = None if recorded is None else measured_of(recorded)
    if found is not None:
        return found.median_us, "median of runs without a profiler"
    times = [g.meta.unprofiled_step_us for g in job.graphs]
    known = [t for t in times if np.isfinite(t)]
    return (float(np.median(known)), "without a profiler") if known else None
