"""Everything that mostly moves bytes: a roofline with fitted coefficients for each family."""

import math

import torch
from torch import Tensor, nn

from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior_attention import SPECIAL_PER_CLOCK
from gnnperf.nn.prior_base import Prior, Start, Terms, cache_hit, soft_maximum, throttle
from gnnperf.ops import family_index, family_names

STARTS: dict[str, Start] = {
    "launch": Start(1.0, 0.5),
    "ramp": Start(2.5, 0.5, 0.0, 0.0),
    "sharpness": Start(3.0, 0.3),
    "cache": Start(0.8, 0.3),
    "capacity_split": Start(0.48, 0.2),
    "capacity": Start(0.9, 0.2),
    "capacity_width": Start(0.3, 0.3),
    "items_per_sm": Start(2000.0, 0.5),
    "bytes_per_sm": Start(20000.0, 0.5),
    "row": Start(0.8, 0.5),
    "rows_per_sm": Start(8.0, 0.4),
    "special": Start(1.0, 0.4),
    "norm_passes": Start(1.0, 0.5),
    "softmax_passes": Start(1.5, 0.5),
    "rows_resident": Start(8.0, 0.4),
    "resident_width": Start(0.6, 0.3),
    "power": Start(5.0, 0.3),
    "power_exponent": Start(0.3, 0.3),
    "power_clock": Start(0.5, 0.1),
    "power_node": Start(0.6, 0.15),
    "power_width": Start(0.02, 0.2),
    "power_time": Start(400.0, 0.5),
}
BY_FAMILY: dict[str, tuple[float, float]] = {
    "bandwidth": (0.78, 0.4),
    "work": (0.6, 0.6),
    "kernels": (1.0, 0.6),
    "call": (25.0, 0.6),
}
"""Coefficients that every family has of its own: start and deviation of the logarithm."""
PERSISTENT_SOFTMAX = 1024
"""PyTorch's softmax holds rows up to this length in registers (SoftMax.cu, persistent softmax)"""
_ROWWISE = ("norm", "softmax")


class StreamPrior(Prior):
    """T = launches + p-norm(bytes over bandwidth, work over peak, exponentials, rows in waves)."""

    def __init__(
        self, devices: int, parents: tuple[int, ...], starts: dict[str, Start] | None = None
    ) -> None:
        super().__init__(STARTS if starts is None else starts, devices, parents)
        count = len(family_names())
        self.by_family = nn.ParameterDict(
            {n: nn.Parameter(torch.full((count,), math.log(v))) for n, (v, _) in BY_FAMILY.items()}
        )
        self.rowwise = [family_index(name) for name in _ROWWISE]
        self.elementwise = family_index("elementwise")

    def penalty(self) -> Tensor:
        """As `Prior.penalty`, with the coefficients of the families."""
        total = super().penalty()
        for name, (value, spread) in BY_FAMILY.items():
            total = total + (((self.by_family[name] - math.log(value)) / spread) ** 2).sum()
        return total

    def own(self, x: Inputs) -> dict[str, Tensor]:
        """[n] coefficients of each row's family by name."""
        return {name: self.by_family[name][x.family].exp() for name in BY_FAMILY}

    def written(self, x: Inputs) -> Tensor:
        """[n] bytes that the kernels write."""
        return x.written

    def footprint(self, x: Inputs, moved: Tensor) -> Tensor:
        """[n] bytes that want room in the cache."""
        return moved

    def first_touch(self, x: Inputs) -> Tensor:
        """[n] us that outputs in new memory cost."""
        return torch.zeros(())

    def drawn(self, x: Inputs) -> Tensor:
        """[n] us of what is done element by element, beyond what its operations cost."""
        return torch.zeros(())

    def forward(self, x: Inputs) -> Terms:
        """Time and terms of the rows."""
        effect = self.effects(x)
        own = self.own(x)
        sms, clock = x.figure("sms"), x.figure("clock")
        moved = (x.read + self.written(x)).clamp(min=1.0)
        hit = cache_hit(self, x, self.footprint(x, moved))
        cache_rate = x.figure("l2_bandwidth") * self.value(x, "cache") * effect["cache"]
        rate = x.figure("bandwidth") * own["bandwidth"] * effect["bandwidth"]
        busy = moved / (sms * self.value(x, "bytes_per_sm"))
        active = busy / (1 + busy)
        memory = (moved * (1 - hit) / rate + moved * hit / cache_rate) / active.clamp(min=1e-3)
        again = self._read_again(x)
        kept = self._kept(x)
        memory = memory + again * (1 - kept) / rate + self.first_touch(x)
        work = x.flops / (x.peak * own["work"] * effect["compute"])
        limit = throttle(self, x, effect["power"])
        slow = 1 + (limit - 1) * work / (work + self.value(x, "power_time"))
        special = self._exponentials(x) / (sms * clock * 1e3 * SPECIAL_PER_CLOCK)
        compute = work * slow + special * self.value(x, "special") + self.drawn(x)
        rows, exact = self._rows(x, sms)
        latency = rows * self.value(x, "row") / clock
        body = soft_maximum([memory, compute, latency], self.value(x, "sharpness"))
        launch = self.value(x, "launch") * effect["launch"] + self.value(x, "ramp") / clock
        launch = launch * own["kernels"]
        launch = launch + own["call"] * effect["call"] * x.launch_included
        log_time = torch.log(launch + body)
        tail = (rows / exact).clamp(min=1.0)
        return Terms(log_time, launch, compute, memory, latency, slow, hit, tail, exact)

    def _exponentials(self, x: Inputs) -> Tensor:
        rowwise = self._is_rowwise(x) & (x.family == self.rowwise[1])
        elements = x.dims[:, 0] * torch.where(rowwise, x.dims[:, 1], x.dims[:, 6])
        return torch.where(rowwise | (x.family == self.elementwise), elements, 0.0)

    def _read_again(self, x: Inputs) -> Tensor:
        """Bytes that a row's kernel reads after the first pass (statistics first, then values).

        Softmax keeps rows of up to 1,024 elements in registers; longer ones are read again.
        """
        long = (x.family == self.rowwise[1]) & (x.dims[:, 1] > PERSISTENT_SOFTMAX)
        passes = torch.where(long, self.value(x, "softmax_passes"), 0.0)
        norm = x.family == self.rowwise[0]
        return x.read * torch.where(norm, self.value(x, "norm_passes"), passes)

    def _kept(self, x: Inputs) -> Tensor:
        """Share of those bytes that the cache still holds: the rows in flight against its size."""
        in_flight = x.figure("sms") * self.value(x, "rows_resident") * x.dims[:, 1] * x.element
        room = torch.log(x.figure("l2_bytes") / in_flight.clamp(min=1.0))
        return torch.sigmoid(room / self.value(x, "resident_width"))

    def _is_rowwise(self, x: Inputs) -> Tensor:
        return (x.family == self.rowwise[0]) | (x.family == self.rowwise[1])

    def _rows(self, x: Inputs, sms: Tensor) -> tuple[Tensor, Tensor]:
        """Waves of rows (a block each), rounded up, and not."""
        items = x.items.clamp(min=1.0) / (sms * self.value(x, "items_per_sm"))
        by_row = x.dims[:, 0].clamp(min=1.0) / (sms * self.value(x, "rows_per_sm"))
        exact = torch.where(self._is_rowwise(x), by_row, items)
        rounded = torch.where(self._is_rowwise(x), torch.ceil(exact), torch.ones_like(exact))
        return rounded, exact
