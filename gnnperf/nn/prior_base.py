"""What the analytic priors share: fitted coefficients, effects of devices, power, soft extrema.

Every coefficient starts at a physical guess and is fitted by gradient descent through the whole
expression; a penalty holds what the data do not determine near its start.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gnnperf.nn.inputs import Inputs

EFFECTS: dict[str, tuple[float, float]] = {
    "compute": (0.05, 0.05),
    "bandwidth": (0.05, 0.05),
    "launch": (0.15, 0.15),
    "cache": (0.15, 0.1),
    "power": (0.2, 0.1),
    "epilogue": (0.3, 0.3),
    "call": (0.3, 0.1),
}
"""Random effects, log scale: standard deviation over devices and over implementations.

They keep the shared coefficients from being bent by one device's oddities; a device or an
implementation that was not trained on has none.
"""


class Start(NamedTuple):
    """Where a positive coefficient starts."""

    value: float
    spread: float = 0.5
    """standard deviation of its logarithm, for the penalty"""
    asynchronous: float | None = None
    """where it may differ on asynchronous matrix units (log scale): start of the difference"""
    tensor_memory: float | None = None
    """the same, on top, for devices with tensor memory"""
    stacked: float | None = None
    """the same for devices with stacked memory (HBM)"""
    amd: float | None = None
    """the same for AMD's devices and libraries"""
    shift_spread: float = 0.3
    """standard deviation of the differences, for the penalty"""


_FLAGS = {
    "asynchronous": "async_matrix",
    "tensor_memory": "tensor_memory",
    "stacked": "stacked_memory",
    "amd": "amd",
}
"""Fields of `Start` that hold a difference -> column of the hardware that says where it applies."""


class Terms(NamedTuple):
    """What a prior tells of its rows, for the network and for calibration. All [n]."""

    log_time: Tensor
    launch: Tensor
    """us"""
    compute: Tensor
    memory: Tensor
    cache: Tensor
    throttle: Tensor
    """slowdown by power, >= 1"""
    hit: Tensor
    """share of the traffic that the cache serves"""
    tail: Tensor
    """waves rounded up over waves, >= 1"""
    waves: Tensor

    def features(self) -> Tensor:
        """[n, len(features.TERMS)] in the order and with the transforms of `features.TERMS`."""
        total = self.log_time
        shares = [
            (torch.log(part.clamp(min=1e-9)) - total).clamp(-8, 2)
            for part in (self.launch, self.compute, self.memory, self.cache)
        ]
        rest = [torch.log(self.throttle), self.hit, torch.log(self.tail), torch.log(self.waves)]
        return torch.stack([total, *shares, *rest], dim=1)


class Prior(nn.Module):
    """A positive expression of coefficients and of effects of the device and implementation."""

    parents: Tensor

    def __init__(
        self,
        starts: dict[str, Start],
        devices: int,
        parents: tuple[int, ...],
        effects: dict[str, tuple[float, float]] = EFFECTS,
    ) -> None:
        super().__init__()
        self.starts = starts
        self.deviations = torch.tensor(list(effects.values()))
        self.base = _parameters({n: math.log(s.value) for n, s in starts.items()})
        self.asynchronous = _shifts(starts, "asynchronous")
        self.tensor_memory = _shifts(starts, "tensor_memory")
        self.stacked = _shifts(starts, "stacked")
        self.amd = _shifts(starts, "amd")
        self.register_buffer("parents", torch.tensor((*parents, -1)), persistent=False)
        self.device_effects = nn.Parameter(torch.zeros(devices + 1, len(EFFECTS)))
        self.variant_effects = nn.Parameter(torch.zeros(len(parents) + 1, len(EFFECTS)))

    def value(self, x: Inputs, name: str) -> Tensor:
        """A coefficient: [] or, where it depends on the device's generation, [n]."""
        log_value: Tensor = self.base[name]
        for flag, column in _FLAGS.items():
            shifts = getattr(self, flag)
            if name in shifts:
                log_value = log_value + shifts[name] * x.figure(column)
        return log_value.exp()

    def effects(self, x: Inputs) -> dict[str, Tensor]:
        """[n] factors by name; 1 for what is not known.

        An implementation has its own effect and that of its framework (`parents`), so that one
        that only a device left out has is at least of its framework.
        """
        parent = self.parents[x.variant]
        total = _row(self.device_effects, x.device) + _row(self.variant_effects, x.variant)
        total = total + _row(self.variant_effects, parent)
        return {name: total[:, i].exp() for i, name in enumerate(EFFECTS)}

    def penalty(self) -> Tensor:
        """Squared distance of all coefficients from their start, in standard deviations."""
        total = torch.zeros(())
        for name, start in self.starts.items():
            total = total + ((self.base[name] - math.log(start.value)) / start.spread) ** 2
        for flag in _FLAGS:
            for name, value in getattr(self, flag).items():
                start = self.starts[name]
                total = total + ((value - getattr(start, flag)) / start.shift_spread) ** 2
        for column, effects in enumerate((self.device_effects, self.variant_effects)):
            total = total + ((effects / self.deviations[:, column]) ** 2).sum()
        return total

    def forward(self, x: Inputs) -> Terms:
        """Time and terms of the rows."""
        raise NotImplementedError(type(self).__name__)

    def terms(self, x: Inputs) -> Terms:
        """`forward`, typed."""
        found: Terms = self(x)
        return found


def _parameters(values: dict[str, float]) -> nn.ParameterDict:
    return nn.ParameterDict({n: nn.Parameter(torch.tensor(float(v))) for n, v in values.items()})


def _shifts(starts: dict[str, Start], flag: str) -> nn.ParameterDict:
    given = {name: getattr(start, flag) for name, start in starts.items()}
    return _parameters({name: value for name, value in given.items() if value is not None})


def _row(table: Tensor, index: Tensor) -> Tensor:
    known = (index >= 0).unsqueeze(1)
    return torch.where(known, table[index], torch.zeros(()))


def throttle(prior: Prior, x: Inputs, effect: Tensor) -> Tensor:
    """[n] slowdown >= 1 of a long kernel where the board's power does not carry full speed.

    demand = c (peak / power) clock^a node^b flop_per_clock_sm^-d, all relative to common values.
    """
    peak_clock = x.peak / (x.figure("sms") * 1e3)
    per_clock = torch.exp2(torch.round(torch.log2(peak_clock / x.figure("clock"))))
    clock = peak_clock / per_clock
    demand = (
        prior.value(x, "power")
        * (x.peak / x.figure("power") * 1e-6)
        * (clock / 1.8) ** prior.value(x, "power_clock")
        * (x.figure("node") / 4) ** prior.value(x, "power_node")
        * (per_clock / 4096) ** -prior.value(x, "power_width")
        * effect
    )
    return demand.clamp(min=1.0) ** prior.value(x, "power_exponent")


def soft_maximum(parts: list[Tensor], sharpness: Tensor) -> Tensor:
    """The p-norm of positive times: their maximum for large p, more where they compete."""
    logs = torch.log(torch.stack(parts).clamp(min=1e-9))
    return torch.exp(torch.logsumexp(sharpness * logs, 0) / sharpness)


def cache_hit(prior: Prior, x: Inputs, footprint: Tensor) -> Tensor:
    """[n] share of the traffic served by the last cache, from footprint over usable capacity."""
    usable = torch.where(
        x.figure("l2_split") > 0, prior.value(x, "capacity_split"), prior.value(x, "capacity")
    )
    room = torch.log(usable * x.figure("l2_bytes") / footprint.clamp(min=1.0))
    return torch.sigmoid(room / prior.value(x, "capacity_width"))
