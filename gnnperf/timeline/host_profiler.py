"""What the profiler adds to a step, and a step without it."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnperf.graph.kinds import NodeKind
from gnnperf.graph.model import F64, I64, ExecutionGraph
from gnnperf.recording.manifest import Recording, read_manifest
from gnnperf.timeline.host_measure import host_records
from gnnperf.timeline.host_model import LEAST, HostModel, default_host_model, host_factor
from gnnperf.traces import read_job

LEAST_NOISE = 0.02
"""Relative error that a median step has at least: the machine's state between two runs."""
SPREAD_OF_NORMAL = 2.56
"""Standard deviations between the 10 % and the 90 % quantile of a normal distribution."""
SOFT = 1.0
"""Standard errors by which a recording may be off before it counts less (Huber)."""


@dataclass(frozen=True)
class Overhead:
    """Cost of an event under the profiler, by recordings with and without it."""

    names: tuple[str, ...]
    events: I64
    """[r] host events of a step"""
    slower_us: F64
    """[r] profiled less unprofiled step"""
    noise_us: F64
    """[r] standard error of that: the spread of the iterations, at least `LEAST_NOISE`"""

    @property
    def event_us(self) -> float:
        """By all recordings."""
        return self.without("")

    def without(self, name: str) -> float:
        """The cost of an event by the other recordings: slope of `slower_us`, with Huber's loss."""
        own = np.array([n != name for n in self.names], np.bool_)
        x, y = (v[own] / self.noise_us[own] for v in (self.events, self.slower_us))
        weight = np.ones(len(x))
        slope = 0.0
        for _ in range(50):
            slope = float((weight * x * y).sum() / (weight * x * x).sum())
            weight = 1 / np.maximum(np.abs(y - slope * x), SOFT)
        return max(slope, 0.0)


def fit_overhead(folder: Path) -> Overhead:
    """Compare profiled and unprofiled steps of own recordings.

    Raises:
        InputError: No manifest, or a file that cannot be read.
    """
    recordings = read_manifest(folder).recordings
    return Overhead(
        tuple(r.name for r in recordings),
        np.array([_events(folder, r) for r in recordings], np.int64),
        np.array([r.profiled_us - r.measured.median_us for r in recordings]),
        np.array([_noise_us(r) for r in recordings]),
    )


def _events(folder: Path, recording: Recording) -> int:
    """Host events of a step of the recording, the median over its steps and ranks."""
    files = [folder / f.file for f in recording.files if f.kind == "kineto"]
    return int(np.median([host_events(g) for g in read_job(files).graphs]))


def host_events(graph: ExecutionGraph) -> int:
    """Events that the profiler records of a step's host side."""
    return int(np.isin(graph.nodes.kind, (NodeKind.HOST_OP, NodeKind.RUNTIME)).sum())


def _noise_us(recording: Recording) -> float:
    """Of the difference of the medians: the profiled one is of few steps."""
    measured = recording.measured
    spread = (measured.p90_us - measured.p10_us) / SPREAD_OF_NORMAL
    error = spread * np.sqrt(1 / recording.profiled_steps + 1 / measured.iterations)
    return float(max(error, LEAST_NOISE * measured.median_us))


def without_profiler(graph: ExecutionGraph, event_us: float | None = None) -> ExecutionGraph:
    """A step that ran on the CPU as it would be without a profiler.

    Each host event gives back what recording it cost: half before its start, half after its end;
    where less time lies there, the rest comes out of what follows. No order changes.

    Args:
        graph: A step with times of its host ops and without device work; others come back as
            they are (`host_scale` is for those).
        event_us: What the profiler added to an event; default: as on the machine of the
            recordings that gnnperf ships.
    """
    nodes = graph.nodes
    cost = default_host_model().profiler.recorded_us if event_us is None else event_us
    host = np.flatnonzero(np.isin(nodes.kind, (NodeKind.HOST_OP, NodeKind.RUNTIME)))
    start, length = nodes.start_us[host], nodes.duration_us[host]
    if len(graph.device_nodes) or not len(host) or not np.isfinite(start + length).all():
        return graph
    period = graph.meta.host_step_us
    times = np.concatenate([start, start + length])
    moved = _shortened(times, cost / 2)
    new_start, new_duration = nodes.start_us.copy(), nodes.duration_us.copy()
    new_start[host] = moved[: len(host)]
    new_duration[host] = moved[len(host) :] - moved[: len(host)]
    least = float(moved.max()) if np.isfinite(period) else float("nan")
    return replace(
        graph,
        nodes=replace(nodes, start_us=new_start, duration_us=new_duration),
        meta=replace(graph.meta, host_step_us=float(max(period - cost * len(host), least))),
    )


def _shortened(times: F64, cost: float) -> F64:
    """[t] times on a clock that stops for `cost` at each of them, as far as time lies between."""
    order = np.argsort(times, kind="stable")
    past = times[order] - cost * np.arange(1, len(times) + 1)
    moved = np.empty_like(times)
    moved[order] = np.maximum.accumulate(np.maximum(past, min(float(times.min()), 0.0)))
    return moved


def host_scale(graph: ExecutionGraph, model: HostModel | None = None) -> float:
    """Factor on the host's times of a traced step with launches that takes the profiler out.

    For `gnnperf.timeline.replay.run(step, host_scale=...)`. The profiler's cost of an event and of
    a launch is that of the model times the host's factor (`host_factor`); at least `LEAST` stays.
    1 for a step without launches or without times of its host.
    """
    nodes = graph.nodes
    host = graph.is_kind(NodeKind.HOST_OP)
    launched = nodes.launch[graph.device_nodes]
    launches = len(np.unique(launched[launched >= 0]))
    if not launches or not np.isfinite(nodes.start_us[host]).all():
        return 1.0
    model = model or default_host_model()
    total = host_records(graph).total_us
    added = model.profiler.op_us * int(host.sum()) + model.profiler.launch_us * launches
    return max(1.0 - host_factor(graph, model) * added / max(total, 1e-9), LEAST)
