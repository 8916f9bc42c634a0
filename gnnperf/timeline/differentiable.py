"""The same exact solution as a torch function: gradients flow along the critical path.

Imported by those who train through the timeline; the rest of the package needs no torch.
"""

from typing import Any

import torch
from torch import Tensor

from gnnperf.timeline.critical import derivatives
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


def _numbers(tensor: Tensor) -> Any:  # noqa: ANN401
    return tensor.detach().to("cpu", torch.float64).numpy()
