"""From paths to the one step that is predicted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gnnperf.errors import InputError
from gnnperf.graph import Job
from gnnperf.recording.manifest import measured_of
from gnnperf.traces import read_job, steady_steps, step_time_us


def chosen_step(paths: Sequence[Path], step: int | None = None) -> Job:
    """The job of one step: the one asked for, else the one of median time among the steady ones.

    Raises:
        InputError: A file cannot be read, holds no step, or not the step asked for.
    """
    job = read_job(list(paths))
    if not job.graphs:
        raise InputError("no step in it", path=paths[0], remedy="record at least one whole step")
    if step is not None:
        return job.of_step(step)
    steady = steady_steps(job) or job.steps
    times = [
        np.median([step_time_us(job.graphs[i]) for i in job.indices_of_step(s)]) for s in steady
    ]
    order = np.argsort(times, kind="stable")
    return job.of_step(steady[int(order[(len(order) - 1) // 2])])


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
