"""Replay of a step: only durations are given, every start time comes out of dependencies.

The step of every rank becomes lanes (its host chain, its streams), the collectives join the
ranks, and the step is repeated until its period is steady. docs/replay.md states the rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.errors import GnnperfError
from gnnperf.graph.job import Job
from gnnperf.graph.model import F64, I64
from gnnperf.timeline.assemble import StepSchedule, schedule_of
from gnnperf.timeline.hostless import HostDefaults
from gnnperf.timeline.lanes import RULES, STREAM, Part
from gnnperf.timeline.scan import Scan, Times
from gnnperf.timeline.schedule import Schedule

__all__ = [
    "RULES",
    "HostDefaults",
    "Result",
    "StepSchedule",
    "durations",
    "run",
    "schedule_of",
    "solve_step",
    "typical_step",
]

STEPS = 12
"""Repetitions of the step after which a period counts as steady (a backlog may still grow)."""
STEADY = 1e-9
"""Relative difference of two periods that counts as none."""


@dataclass(frozen=True, eq=False)
class Result:
    """A replayed step."""

    step: StepSchedule
    schedule: Schedule
    """with the durations that were run"""
    iteration_us: float
    how: str
    """what `iteration_us` is: the period of the repeated step, or the span of a single one"""
    times: tuple[Times, ...]
    """of each repetition, the last one last"""
    period_us: float
    """NaN for a single step"""
    assumed: tuple[str, ...]
    sink: int
    """the node of the schedule whose recurrence (of a single step: whose end) is the step's"""

    def node_times(self, graph: int) -> tuple[F64, F64]:
        """Start and end of every node of a graph in the last repetition, NaN where not on a lane.

        Times are microseconds from the start of that repetition's first device work of the rank.
        """
        step = self.step
        count = step.job.graphs[graph].num_nodes
        start, end = np.full(count, np.nan), np.full(count, np.nan)
        own = np.flatnonzero(step.graph == graph)
        last = self.times[-1]
        origin = last.start_us[step.marker[graph]]
        own = own[step.node[own] >= 0]
        begins = own[step.part[own] != Part.SECOND]
        start[step.node[begins]] = last.start_us[begins] - origin
        ends = own[step.part[own] != Part.FIRST]
        end[step.node[ends]] = last.end_us[ends] - origin
        return start, end


def durations(
    step: StepSchedule,
    device_us: Sequence[F64] | None = None,
    host_scale: float = 1.0,
    kernel_scale: float = 1.0,
) -> F64:
    """[m] durations of the schedule's nodes with replacements and scales put in.

    Args:
        step: The schedule of the step.
        device_us: For each graph [nodes] durations that replace the measured ones, of host nodes
            too; NaN keeps the measured one.
        host_scale: Factor on host calls (their gaps: see `run`).
        kernel_scale: Factor on all device work (of a step on the CPU: its leaf ops).

    Raises:
        GnnperfError: Work has neither a measured nor a given duration.
    """
    result = np.where(step.unknown, np.nan, step.schedule.duration_us)
    if device_us is not None:
        for g, given in enumerate(device_us):
            own = np.flatnonzero((step.graph == g) & step.is_work & (step.node >= 0))
            value = np.asarray(given, np.float64)[step.node[own]]
            result[own] = np.where(np.isfinite(value), value, result[own])
    missing = np.flatnonzero(np.isnan(result))
    if len(missing):
        first = int(missing[0])
        name = step.job.graphs[int(step.graph[first])].name_of(int(step.node[first]))
        raise GnnperfError(
            f"{len(missing)} works have no measured duration (the first: {name}); "
            "choose an engine that predicts them"
        )
    result *= np.where(step.device, kernel_scale, host_scale)
    joined = step.meeting >= 0
    if joined.any():
        least = np.full(int(step.meeting.max()) + 1, np.inf)
        np.minimum.at(least, step.meeting[joined], result[joined])
        result[joined] = least[step.meeting[joined]]
    return result


def run(
    step: StepSchedule,
    device_us: Sequence[F64] | None = None,
    *,
    host_scale: float = 1.0,
    kernel_scale: float = 1.0,
    steps: int = STEPS,
) -> Result:
    """Run a step's schedule: see `durations` for the replacements and scales.

    `host_scale` also scales the host's own gaps. The step is repeated until all of it recurs
    after the same time, at most `steps` times.
    """
    lane = step.schedule.lane_of
    host = np.array([not n.startswith(STREAM) for n in step.lane_names])[lane]
    gap = np.where(host, step.schedule.gap_us * host_scale, step.schedule.gap_us)
    duration = durations(step, device_us, host_scale, kernel_scale)
    return solve_step(step, duration, gap, steps)


def typical_step(job: Job, steps: Sequence[int], most: int = 6) -> int:
    """The step whose replay is the (lower) median of at most `most` of the given steps.

    One step's replay misses its own period by up to 5 % where host times vary; the median of
    several does not. Steps with works of unknown duration count as the longest.
    """
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(most, len(steps))).round().astype(int))
    times = []
    for number in chosen.tolist():
        step = schedule_of(job.of_step(steps[number]))
        times.append(np.inf if step.unknown.any() else run(step).iteration_us)
    order = np.argsort(times, kind="stable")
    return steps[int(chosen[order[(len(order) - 1) // 2]])]


def solve_step(step: StepSchedule, duration_us: F64, gap_us: F64, steps: int = STEPS) -> Result:
    """Run a step's schedule with the given durations and gaps, [m] each."""
    old = step.schedule.links
    schedule = replace(
        step.schedule,
        duration_us=duration_us,
        links=replace(old, lag_us=old.lag_us - step.tail * duration_us[old.src]),
        gap_us=gap_us,
    )
    if not step.periodic:
        return _single(step, schedule)
    history = repeat(schedule, steps)
    watched = _watched(step, schedule)
    shift = history[-1].start_us[watched] - history[-2].start_us[watched]
    period = float(shift.max())
    sink = int(watched[np.argmax(shift >= period - STEADY * max(period, 1.0))])
    what = "device work" if any(len(g.device_nodes) for g in step.job.graphs) else "op"
    how = f"period of the first {what}, step repeated {len(history)} times"
    return Result(step, schedule, period, how, tuple(history), period, step.assumed, sink)


def _watched(step: StepSchedule, schedule: Schedule) -> I64:
    """Nodes that tell the period: each rank's first device work, and the first of every stream.

    The slowest of them does: streams that nothing joins drift apart.
    """
    first = schedule.first_of_lane
    return np.concatenate([step.marker, first[step.device[first]]])


def _single(step: StepSchedule, schedule: Schedule) -> Result:
    """A step that is not repeated: how long its device work takes, the median over the ranks."""
    least = np.full(2 * schedule.num_nodes, -np.inf)
    least[2 * schedule.first_of_lane] = step.release_us[np.diff(schedule.lane_ptr) > 0]
    times = Scan(schedule).solve(least)
    spans = []
    for g in range(len(step.job.graphs)):
        own = np.flatnonzero((step.graph == g) & step.device)
        spans.append(float(times.end_us[own].max() - times.start_us[own].min()))
    how = "first to last device work of the only step, the median over the ranks"
    span, nan = float(np.median(spans)), float("nan")
    sink = int(np.argmax(np.where(step.device, times.end_us, -np.inf)))
    return Result(step, schedule, span, how, (times,), nan, step.assumed, sink)


def repeat(schedule: Schedule, steps: int) -> list[Times]:
    """The times of one repetition after the other, until every node recurs after one period."""
    scan = Scan(schedule)
    rows = np.flatnonzero(schedule.links.back > 0)
    links = schedule.links.take(rows)
    last = schedule.lane_ptr[1:] - 1
    filled = np.diff(schedule.lane_ptr) > 0
    history: list[Times] = []
    for count in range(max(steps, 2)):
        least = np.full(2 * schedule.num_nodes, -np.inf)
        ready = np.full(len(last), -np.inf)
        if history:
            ready[filled] = history[-1].end_us[last[filled]]
        else:
            least[2 * schedule.first_of_lane] = 0.0
        for back in np.unique(links.back[links.back <= count]).tolist():
            here = np.flatnonzero(links.back == back)
            value = history[count - back].event_us[links.source_event[here]] + links.lag_us[here]
            np.maximum.at(least, links.target_event[here], value)
        history.append(scan.solve(least, ready))
        if len(history) > 2 and _steady(history):
            break
    return history


def _steady(history: list[Times]) -> bool:
    """Whether the last repetition came as long after the one before as that after its own.

    Not every node recurs after the same time then: a host that is ahead of its device stays so
    until the queue is full. What grows fastest, the step's period, waits for nothing slower.
    """
    last = history[-1].event_us - history[-2].event_us
    before = history[-2].event_us - history[-3].event_us
    return float(np.abs(last - before).max()) <= STEADY * max(float(last.max()), 1.0)
