"""One grouped product of a mixture of experts."""

import torch
from torch import Tensor

from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior_base import Prior, Start, Terms, soft_maximum, throttle

STARTS: dict[str, Start] = {
    "launch": Start(3.0, 0.5),
    "ramp": Start(3.0, 0.7, 0.0, 0.0),
    "sharpness": Start(3.0, 0.5),
    "temperature": Start(0.08, 0.3),
    "efficiency": Start(0.8, 0.4, 0.0, -0.1),
    "tile": Start(11.0, 0.5, 0.0),
    "latency": Start(0.3, 0.5, -0.3),
    "padding": Start(0.5, 0.3),
    "bandwidth": Start(0.75, 0.2),
    "activations": Start(2.0, 0.5),
    "reach": Start(2.0, 0.5),
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


class GroupedPrior(Prior):
    """Experts drawn at random; their rows padded to tiles, their weights read once."""

    tiles: Tensor

    def __init__(self, devices: int, parents: tuple[int, ...]) -> None:
        super().__init__(STARTS, devices, parents)
        self.register_buffer("tiles", torch.tensor(_TILES), persistent=False)

    def forward(self, x: Inputs) -> Terms:
        """Time and terms of the rows."""
        effect = self.effects(x)
        experts = x.dims[:, 3].clamp(min=1.0)
        pairs = (x.dims[:, 0] * x.dims[:, 4]).clamp(min=1.0)
        drawn = experts * (1 - torch.exp(-pairs / experts))
        active = torch.minimum(drawn, pairs).clamp(min=1.0)
        columns, depth = x.dims[:, 5], x.dims[:, 6].clamp(min=1.0)
        compute, exact, tail, slow = self._compute(x, effect, (pairs, active), (columns, depth))
        weights = columns * depth * active * x.element.clamp(max=2.0)
        between = 2 * (columns + depth) * pairs
        rate = x.figure("bandwidth") * self.value(x, "bandwidth") * effect["bandwidth"]
        reach = (exact * self.value(x, "reach")).clamp(max=1.0)
        memory = weights / rate / reach + self.value(x, "activations") * between / rate
        body = soft_maximum([compute, memory], self.value(x, "sharpness"))
        launch = self.value(x, "launch") * effect["launch"]
        launch = launch + self.value(x, "ramp") / x.figure("clock")
        launch = launch + self.value(x, "call") * effect["call"] * x.launch_included
        nothing = torch.zeros_like(launch)
        log_time = torch.log(launch + body)
        return Terms(log_time, launch, compute, memory, nothing, slow, nothing, tail, exact)

    def _compute(
        self,
        x: Inputs,
        effect: dict[str, Tensor],
        load: tuple[Tensor, Tensor],
        product: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows of each expert padded to a tile; a soft minimum over the tile's height."""
        pairs, active = (part.unsqueeze(1) for part in load)
        columns, depth = product
        sms, clock = x.figure("sms").unsqueeze(1), x.figure("clock").unsqueeze(1)
        tile = self.tiles
        padded = pairs + self.value(x, "padding") * active * tile
        padded = torch.maximum(padded, active * tile)
        shape = 1 + self.value(x, "tile").reshape(-1, 1) * (1 / tile + 1 / _TILE_N)
        peak = (x.peak * self.value(x, "efficiency") * effect["compute"]).unsqueeze(1)
        step = 2 * tile * _TILE_N * sms * shape / peak
        latency = self.value(x, "latency").reshape(-1, 1) / clock / 64
        exact = padded / tile * torch.ceil(columns / _TILE_N).unsqueeze(1) / sms
        whole = torch.ceil(exact - 1e-4)
        used = 0.5 * (whole + exact.clamp(min=1.0))
        total = used * depth.unsqueeze(1) * torch.maximum(step, latency)
        temperature = self.value(x, "temperature")
        score = -torch.log(total.clamp(min=1e-6)) / temperature
        weight = torch.softmax(score, 1)
        time = torch.exp(-temperature * torch.logsumexp(score, 1))
        slow = throttle(self, x, effect["power"])
        slow = 1 + (slow - 1) * time / (time + self.value(x, "power_time"))
        tail = (weight * whole / exact.clamp(min=1e-3)).sum(1).clamp(min=1.0)
        exact = (weight * exact).sum(1).clamp(min=1e-3)
        return time * slow, exact, tail, slow
