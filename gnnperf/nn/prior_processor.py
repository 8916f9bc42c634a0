"""Ops on the processor that runs the program: alone, or in a step with what a step adds."""

from typing import Any

import torch
from torch import Tensor, nn

from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior_base import Start
from gnnperf.nn.prior_stream import STARTS, StreamPrior
from gnnperf.ops import family_index, family_names

PROCESSOR_STARTS = STARTS | {
    "launch": Start(2.0, 0.5),
    "ramp": Start(3.0, 0.5),
    "capacity": Start(0.5, 0.3),
    "items_per_sm": Start(16.0, 0.5),
    "bytes_per_sm": Start(64.0, 0.5),
    "rows_per_sm": Start(1.0, 0.4),
    "random": Start(20.0, 0.5),
    "window": Start(20.0, 0.5),
    "cold": Start(2.0, 0.4),
    "fault": Start(200.0, 0.6),
    "fault_mb": Start(2.0, 0.5),
    "fault_width": Start(1.0, 0.3),
}
WHOLE_TABLE = 1
"""Direction of an embedding that makes the gradient of every row (docs/families.md)."""
IN_STEP = {"bandwidth": (0.5, 0.2), "work": (0.3, 0.1), "call": (0.7, 0.5)}
"""What a step changes: deviation of the factor's logarithm, common to all families and beyond."""


class ProcessorPrior(StreamPrior):
    """As `StreamPrior`; in a step rates and calls are others, and outputs are new.

    An op timed alone finds its operands in the cache and its output in memory that it has just
    given back. In a step other ops' data lie between (`cold`: the footprint counts more), and
    large outputs are pages that the system hands out on first touch: `fault` us per MB of them,
    for outputs of about `fault_mb` MB on (the allocator keeps small pieces). `random` and `window`:
    ns x GHz for a random number and for an element that a pool compares, one by one. What a step
    changes is learned for all families together and for each beyond, so that a family that no
    recorded step held has at least the common part.
    """

    def __init__(self, devices: int, parents: tuple[int, ...]) -> None:
        super().__init__(devices, parents, PROCESSOR_STARTS)
        count = len(family_names())
        self.in_step = nn.ParameterDict({n: nn.Parameter(torch.zeros(count)) for n in IN_STEP})
        self.common = nn.ParameterDict({n: nn.Parameter(torch.zeros(())) for n in IN_STEP})
        self.embedding, self.pool = family_index("embedding"), family_index("pool")

    def penalty(self) -> Tensor:
        """As `StreamPrior.penalty`, with what differs in a step."""
        total = super().penalty()
        for name, (together, beyond) in IN_STEP.items():
            total = total + (self.common[name] / together) ** 2
            total = total + ((self.in_step[name] / beyond) ** 2).sum()
        return total

    def own(self, x: Inputs) -> dict[str, Tensor]:
        """See `StreamPrior.own`."""
        found = super().own(x)
        for name in IN_STEP:
            change = self.common[name] + self.in_step[name][x.family]
            found[name] = found[name] * torch.exp(change * x.in_model)
        return found

    def written(self, x: Inputs) -> Tensor:
        """See `StreamPrior.written`; the gradient of a whole table is filled with zeros first."""
        table = (x.family == self.embedding) & (x.dims[:, 4] == WHOLE_TABLE)
        return x.written + torch.where(table, x.dims[:, 0] * x.dims[:, 1] * x.element, 0.0)

    def footprint(self, x: Inputs, moved: Tensor) -> Tensor:
        """See `StreamPrior.footprint`."""
        return moved * self.value(x, "cold") ** x.in_model

    def first_touch(self, x: Inputs) -> Tensor:
        """See `StreamPrior.first_touch`."""
        in_place = (x.family == self.elementwise) & (x.dims[:, 7] > 0)
        fresh = torch.where(in_place, 0.0, self.written(x)) * x.in_model
        size = torch.log((fresh / 1e6).clamp(min=1e-6) / self.value(x, "fault_mb"))
        share = torch.sigmoid(size / self.value(x, "fault_width"))
        return fresh * 1e-6 * share * self.value(x, "fault")

    def drawn(self, x: Inputs) -> Tensor:
        """See `StreamPrior.drawn`."""
        random = (x.family == self.elementwise) & (x.dims[:, 6] > 0) & (x.dims[:, 4] < 1)
        pooled = (x.family == self.pool) & (x.dims[:, 3] < 1)
        us = torch.where(random, x.dims[:, 0], 0.0) * self.value(x, "random")
        us = us + torch.where(pooled, x.dims[:, 0] * x.dims[:, 1], 0.0) * self.value(x, "window")
        return us * 1e-3 / x.figure("clock")

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        *rest: Any,  # noqa: ANN401
    ) -> None:
        """Checkpoints from before the step's part existed have none: it stays as it starts."""
        for name, value in self.state_dict(prefix=prefix).items():
            state_dict.setdefault(name, value)
        super()._load_from_state_dict(state_dict, prefix, *rest)
