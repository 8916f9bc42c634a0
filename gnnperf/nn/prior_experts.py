"""Fused mixture of experts: grouped products over the experts that get tokens."""

import torch
from torch import Tensor

from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior_base import Prior, Start, Terms, soft_maximum, throttle
from gnnperf.ops import family_index

STARTS: dict[str, Start] = {
    "launch": Start(10.0, 0.5, 0.0, 0.0),
    "ramp": Start(10.0, 0.7, 0.0, 0.0),
    "sharpness": Start(3.0, 0.5),
    "temperature": Start(0.08, 0.3),
    "efficiency": Start(0.8, 0.4, 0.0, -0.1),
    "tile": Start(11.0, 0.5, 0.0),
    "latency": Start(0.3, 0.5, -0.3),
    "padding": Start(0.5, 0.3),
    "spread": Start(0.3, 0.5),
    "bandwidth": Start(0.75, 0.2),
    "cache": Start(1.0, 0.3),
    "activations": Start(2.0, 0.5),
    "reach": Start(2.0, 0.5),
    "grouped_launch": Start(3.0, 0.5),
    "power": Start(1.1, 0.15),
    "power_exponent": Start(0.44, 0.1),
    "power_clock": Start(2.0, 0.1),
    "power_node": Start(0.8, 0.15),
    "power_width": Start(0.15, 0.2),
    "power_time": Start(400.0, 0.1),
    "call": Start(60.0, 0.5),
}
_TILES = (16.0, 32.0, 64.0, 128.0)
_TILE_N = 128.0


class ExpertsPrior(Prior):
    """A fused layer (`moe`) or one grouped product of it (`moe_gemm`)."""

    tiles: Tensor

    def __init__(self, devices: int, parents: tuple[int, ...]) -> None:
        super().__init__(STARTS, devices, parents)
        self.register_buffer("tiles", torch.tensor(_TILES), persistent=False)

    def forward(self, x: Inputs) -> Terms:
        """Time and terms of the rows."""
        effect = self.effects(x)
        d = x.dims
        layer = x.family == family_index("moe")
        parts = torch.where(layer, d[:, 6], 1.0).clamp(min=1.0)
        tensor = torch.where(layer, d[:, 5], 1.0).clamp(min=1.0)
        experts = (d[:, 3] / parts).clamp(min=1.0)
        pairs = (d[:, 0] * d[:, 4] / parts).clamp(min=1.0)
        skew = torch.where(layer, d[:, 7], 0.0)
        drawn = experts * (1 - torch.exp(-pairs / experts))
        active = torch.minimum(drawn, pairs) * torch.exp(-self.value(x, "spread") * skew)
        active = active.clamp(min=1.0)
        width = (d[:, 2] / tensor).clamp(min=1.0)
        first_n = torch.where(layer, width * (1 + d[:, 8]), d[:, 5])
        first_k = torch.where(layer, d[:, 1], d[:, 6]).clamp(min=1.0)
        second_n = torch.where(layer, d[:, 1], 0.0)
        products = ((first_n, first_k), (second_n, width))
        compute, exact, tail, slow = self._compute(x, effect, (pairs, active), products)
        memory = self._memory(x, effect, (pairs, active), products, exact)
        body = soft_maximum([compute, memory], self.value(x, "sharpness"))
        launch = torch.where(layer, self.value(x, "launch"), self.value(x, "grouped_launch"))
        launch = launch * effect["launch"]
        ramp = self.value(x, "ramp") / x.figure("clock")
        launch = launch + torch.where(layer, ramp, 0.3 * ramp)
        launch = launch + self.value(x, "call") * effect["call"] * x.launch_included
        nothing = torch.zeros_like(launch)
        log_time = torch.log(launch + body)
        return Terms(log_time, launch, compute, memory, nothing, slow, nothing, tail, exact)

    def _compute(
        self,
        x: Inputs,
        effect: dict[str, Tensor],
        load: tuple[Tensor, Tensor],
        products: tuple[tuple[Tensor, Tensor], ...],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows of each expert padded to a tile; a soft minimum over the tile's height."""
        pairs, active = (part.unsqueeze(1) for part in load)
        sms, clock = x.figure("sms").unsqueeze(1), x.figure("clock").unsqueeze(1)
        tile = self.tiles
        padded = pairs + self.value(x, "padding") * active * tile
        padded = torch.maximum(padded, active * tile)
        shape = 1 + self.value(x, "tile").reshape(-1, 1) * (1 / tile + 1 / _TILE_N)
        peak = (x.peak * self.value(x, "efficiency") * effect["compute"]).unsqueeze(1)
        step = 2 * tile * _TILE_N * sms * shape / peak
        latency = self.value(x, "latency").reshape(-1, 1) / clock / 64
        total = torch.zeros_like(padded)
        waves = torch.zeros_like(padded)
        rounded = torch.zeros_like(padded)
        for columns, depth in products:
            exact = padded / tile * torch.ceil(columns / _TILE_N).unsqueeze(1) / sms
            whole = torch.ceil(exact - 1e-4)
            used = 0.5 * (whole + exact.clamp(min=1.0)) * (columns > 0).unsqueeze(1)
            total = total + used * depth.unsqueeze(1) * torch.maximum(step, latency)
            waves, rounded = waves + exact, rounded + whole
        temperature = self.value(x, "temperature")
        score = -torch.log(total.clamp(min=1e-6)) / temperature
        weight = torch.softmax(score, 1)
        time = torch.exp(-temperature * torch.logsumexp(score, 1))
        slow = throttle(self, x, effect["power"])
        slow = 1 + (slow - 1) * time / (time + self.value(x, "power_time"))
        exact = (weight * waves).sum(1).clamp(min=1e-3)
        tail = (weight * rounded / waves.clamp(min=1e-3)).sum(1).clamp(min=1.0)
        return time * slow, exact, tail, slow

    def _memory(
        self,
        x: Inputs,
        effect: dict[str, Tensor],
        load: tuple[Tensor, Tensor],
        products: tuple[tuple[Tensor, Tensor], ...],
        exact: Tensor,
    ) -> Tensor:
        pairs, active = load
        element = x.element.clamp(max=2.0)
        weights = sum((n * k for n, k in products), torch.zeros_like(pairs)) * active * element
        between = sum((2 * (n + k) for n, k in products), torch.zeros_like(pairs)) * pairs
        rate = x.figure("bandwidth") * self.value(x, "bandwidth") * effect["bandwidth"]
        reach = (exact * self.value(x, "reach")).clamp(max=1.0)
        return weights / rate / reach + self.value(x, "activations") * between / rate
