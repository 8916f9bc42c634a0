"""The same exact solution as a torch function: gradients flow along the critical path.

Imported by those who train through the timeline; the rest of the package needs no torch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnperf.graph.model import F64
from gnnperf.timeline.assemble import StepSchedule
from gnnperf.timeline.breakdown import walk_back
from gnnperf.timeline.critical import derivatives
from gnnperf.timeline.replay import Result, solve_step
from gnnperf.timeline.scan import Scan
from gnnperf.timeline.schedule import Links, Schedule


class _Solve(torch.autograd.Function):
    """Event times of one schedule; its derivative is the indicator of the critical paths."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        duration: Tensor,
        gap: Tensor,
        lag: Tensor,
        schedule: Schedule,
    ) -> Tensor:
        old = schedule.links
        links = Links(old.src, old.dst, old.kind, _numbers(lag), old.back)
        problem = Schedule(schedule.lane_ptr, _numbers(duration), _numbers(gap), links)
        times = Scan(problem).solve()
        ctx.problem, ctx.times, ctx.like = problem, times, duration
        return torch.from_numpy(times.event_us).to(duration)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # noqa: ANN401
        parts = derivatives(ctx.problem, ctx.times, _numbers(grad[0]))
        by = [torch.from_numpy(part).to(ctx.like) for part in parts]
        return by[0], by[1], by[2], None


def solve(
    schedule: Schedule,
    duration_us: Tensor,
    gap_us: Tensor | None = None,
    lag_us: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Start and end of every node, differentiable by durations, gaps and lags.

    Args:
        schedule: The problem; its own numbers stand where no tensor is given.
        duration_us: [n] durations of its nodes.
        gap_us: [n] gaps of its nodes.
        lag_us: [e] lags of its edges.

    Returns:
        [n] starts and [n] ends, of the type and on the device of `duration_us`. Where two
        dependencies tie, the gradient goes to one of them.
    """
    gap = torch.from_numpy(schedule.gap_us).to(duration_us) if gap_us is None else gap_us
    lag = torch.from_numpy(schedule.links.lag_us).to(duration_us) if lag_us is None else lag_us
    event: Tensor = _Solve.apply(duration_us, gap, lag, schedule)  # type: ignore[no-untyped-call]
    return event[0::2], event[1::2]


class _Iteration(torch.autograd.Function):
    """Time of a repeated step; its derivative counts how often a period passes each node."""

    @staticmethod
    def forward(ctx: Any, duration: Tensor, step: StepSchedule) -> Tensor:  # noqa: ANN401
        result = solve_step(step, _numbers(duration), step.schedule.gap_us)
        ctx.result, ctx.like = result, duration
        return duration.new_tensor(result.iteration_us)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        by = torch.from_numpy(step_gradient(ctx.result)).to(ctx.like)
        return by * grad[0], None


def iteration_us(step: StepSchedule, device_us: Sequence[Tensor]) -> Tensor:
    """The time of a step as `replay.run` gives it, differentiable by the works' durations.

    Args:
        step: The schedule of the step.
        device_us: For each graph [nodes] durations; NaN keeps the measured one.

    Returns:
        A scalar of the type and on the device of the durations.
    """
    duration = torch.from_numpy(step.schedule.duration_us).to(device_us[0])
    for g, given in enumerate(device_us):
        own = np.flatnonzero((step.graph == g) & step.is_work & (step.node >= 0))
        values = given[torch.from_numpy(step.node[own].astype(np.int64)).to(given.device)]
        known = torch.isfinite(values)
        rows = torch.from_numpy(own).to(given.device)[known]
        duration = duration.index_put((rows,), values[known])
    joined = torch.from_numpy(np.flatnonzero(step.meeting >= 0)).to(duration.device)
    if len(joined):
        meeting = torch.from_numpy(step.meeting.astype(np.int64)).to(duration.device)[joined]
        least = torch.full((int(meeting.max()) + 1,), float("inf")).to(duration)
        least = least.scatter_reduce(0, meeting, duration[joined], "amin")
        duration = duration.index_put((joined,), least[meeting])
    time: Tensor = _Iteration.apply(duration, step)  # type: ignore[no-untyped-call]
    return time


def step_gradient(result: Result) -> F64:
    """[m] derivative of a step's time by the duration of each node of its schedule.

    Of a repeated step: how often the path to this repetition's event passes a node, less how
    often the path to the one before does. An edge that comes a share of its source's duration
    early (a last wave) counts against it.
    """
    step, last = result.step, len(result.times) - 1
    total = np.zeros(len(step.node))
    for count, event, weight in _ends(result, last):
        for hop in walk_back(result, count, event):
            if hop.target % 2 == 1 and hop.source == hop.target - 1:
                total[hop.target // 2] += weight
            elif hop.row >= 0:
                total[hop.source // 2] -= weight * step.tail[hop.row]
    return total


def _ends(result: Result, last: int) -> list[tuple[int, int, float]]:
    """(repetition, event, weight): a step's time is the weighted sum of these events' times."""
    if np.isfinite(result.period_us):
        return [(last, 2 * result.sink, 1.0), (last - 1, 2 * result.sink, -1.0)]
    step, times = result.step, result.times[0]
    spans = []
    for g in range(len(step.job.graphs)):
        own = np.flatnonzero((step.graph == g) & step.device)
        begin = int(own[np.argmin(times.start_us[own])])
        end = int(own[np.argmax(times.end_us[own])])
        spans.append((float(times.end_us[end] - times.start_us[begin]), begin, end))
    spans.sort()
    middle = spans[(len(spans) - 1) // 2 : len(spans) // 2 + 1]
    weight = 1.0 / len(middle)
    return [
        part
        for _, begin, end in middle
        for part in ((0, 2 * end + 1, weight), (0, 2 * begin, -weight))
    ]


def _numbers(tensor: Tensor) -> Any:  # noqa: ANN401
    return tensor.detach().to("cpu", torch.float64).numpy()
