"""Own recordings as training data: ops inside steps, and steps whose unprofiled time is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnperf.data.from_traces import merged, table_of
from gnnperf.data.splits import workload_group
from gnnperf.data.tables import RECORDING, KernelTable
from gnnperf.graph import ExecutionGraph, Job
from gnnperf.hardware import Hardware, find_hardware, get_hardware
from gnnperf.recording.manifest import Recording, read_manifest
from gnnperf.timeline.host_profiler import without_profiler
from gnnperf.timeline.replay import run, schedule_of
from gnnperf.traces import read_job, steady_steps

LEAST_US = 0.1
"""An op of a step takes at least that; the profiler's part of short ones is all they took."""
MOST_SCALE = 2.5
"""By how much the profiled ops may be off the unprofiled step."""


@dataclass(frozen=True)
class RecordedSteps:
    """A recording's steady steps as they would be without a profiler."""

    recording: Recording
    job: Job
    steps: tuple[int, ...]


def workload_of(recording: Recording) -> str:
    """The group that a recording is left out with: by the model it runs, whatever size and mode."""
    return workload_group(recording.name)


def read_recordings(folder: str | Path, leave_out: Sequence[str] = ()) -> Iterator[RecordedSteps]:
    """The recordings of a set but those of the groups (`workload_of`) left out.

    Raises:
        InputError: No manifest, or a trace cannot be read.
    """
    place = Path(folder)
    for recording in read_manifest(place).recordings:
        if workload_of(recording) in leave_out:
            continue
        job = read_job([place / f.file for f in recording.files if f.kind == "kineto"])
        plain = replace(job, graphs=tuple(without_profiler(g) for g in job.graphs))
        yield RecordedSteps(recording, plain, tuple(steady_steps(plain) or plain.steps))


def recorded_on(recorded: RecordedSteps) -> Hardware | None:
    """The device that ran a recording; None where the catalogue lacks it."""
    meta = recorded.job.graphs[0].meta
    if meta.device:
        return find_hardware(meta.device)
    return get_hardware("cpu") if meta.device_type == "cpu" else None


def op_scale(recorded: RecordedSteps) -> float:
    """What a recording's op times are multiplied by, so that its step takes its unprofiled time.

    The profiled steps ran in another state of the machine: up to 40 % slower or 15 % faster, in
    all ops alike. The host's gaps are kept. At most `MOST_SCALE`, at least its inverse.
    """
    measured = recorded.recording.measured.median_us
    scales = []
    for number in recorded.steps:
        step = schedule_of(recorded.job.of_step(number))
        free, whole = (run(step, kernel_scale=s).iteration_us for s in (0.0, 1.0))
        scales.append((measured - free) / max(whole - free, 1e-3))
    return float(np.clip(np.median(scales), 1 / MOST_SCALE, MOST_SCALE))


def recorded_ops(recordings: Sequence[RecordedSteps]) -> KernelTable:
    """Kernel table of the ops of recorded steps; equal ops of a recording are one row.

    The times are the profiler's, less what recording each event cost, scaled to the unprofiled
    step (`op_scale`).
    """
    parts = []
    for recorded in recordings:
        graphs = tuple(_at_least(g) for g in recorded.job.graphs)
        job = replace(recorded.job, graphs=graphs)
        table = merged(table_of(job, RECORDING, recorded.recording.name).table)
        parts.append(replace(table, duration_us=table.duration_us * op_scale(recorded)))
    return KernelTable.join(parts)


def _at_least(graph: ExecutionGraph) -> ExecutionGraph:
    duration = np.maximum(graph.nodes.duration_us, LEAST_US)  # NaN stays
    return replace(graph, nodes=replace(graph.nodes, duration_us=duration))
