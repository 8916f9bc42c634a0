"""A fused mixture-of-experts layer: grouped products over the experts that get tokens."""

import torch
from torch import Tensor

from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior_base import Prior, Start, Terms, cache_hit, soft_maximum, throttle
from gnnperf.nn.prior_libraries import LibraryEffects
from gnnperf.nn.prior_routing import Routing, routing

STARTS: dict[str, Start] = {
    "launch": Start(25.0, 0.7, 0.0, 0.0),
    "launch_clock": Start(0.9, 0.2),
    "sharpness": Start(3.0, 0.3),
    "temperature": Start(0.08, 0.3),
    "efficiency": Start(0.8, 0.4, 0.0, -0.1),
    "tile": Start(11.0, 0.5, 0.0),
    "latency": Start(0.3, 0.5, -0.3),
    "padding": Start(1.0, 0.3),
    "bandwidth": Start(0.88, 0.15),
    "operands": Start(1.0, 0.3),
    "touch": Start(0.5, 0.3),
    "local": Start(1.0, 0.5),
    "remote": Start(0.5, 0.7),
    "reach": Start(2.0, 0.5),
    "capacity_split": Start(0.48, 0.2),
    "capacity": Start(0.9, 0.2),
    "capacity_width": Start(0.15, 0.3),
    "power": Start(0.8, 0.4),
    "power_exponent": Start(0.44, 0.1),
    "power_clock": Start(2.0, 0.1),
    "power_node": Start(0.8, 0.15),
    "power_width": Start(0.15, 0.2),
    "power_time": Start(400.0, 0.1),
    "call": Start(60.0, 0.5),
}
LIBRARY = {"compute": 0.4, "launch": 0.5, "local": 0.5, "remote": 1.0, "bandwidth": 0.05}
"""Effects of implementations: a Triton kernel reaches half of what a vendor's does."""
STIFFNESS = 5.0
"""factor on the penalty: four device groups determine little"""
USUAL_CLOCK = 1.8
_TILES = (16.0, 32.0, 64.0, 128.0)
_TILE_N = 128.0
_L2_SHARPNESS = torch.tensor(4.0)


class ExpertsPrior(Prior):
    """Two products, rows of each expert padded to a tile; its weights once; rows moved around."""

    tiles: Tensor

    def __init__(
        self, devices: int, parents: tuple[int, ...], technologies: tuple[int, ...]
    ) -> None:
        super().__init__(STARTS, devices, parents)
        self.register_buffer("tiles", torch.tensor(_TILES), persistent=False)
        self.libraries = LibraryEffects(LIBRARY, technologies)

    def penalty(self) -> Tensor:
        """As `Prior.penalty`, with the effects of libraries."""
        return STIFFNESS * (super().penalty() + self.libraries.penalty())

    def forward(self, x: Inputs) -> Terms:
        """Time and terms of the rows."""
        effect, library = self.effects(x), self.libraries(x)
        effect = effect | {
            "compute": effect["compute"] * library["compute"],
            "bandwidth": effect["bandwidth"] * library["bandwidth"],
            "power": effect["power"] * library["compute"],
        }
        met = routing(x.dims)
        hidden, width = x.dims[:, 1].clamp(min=1.0), self._width(x)
        products = ((width * (1 + x.dims[:, 8]), hidden), (hidden, width))
        compute, exact, tail, slow = self._compute(x, effect, met, products)
        rate = x.figure("bandwidth") * self.value(x, "bandwidth") * effect["bandwidth"]
        weights = sum((n * k for n, k in products), torch.zeros_like(width))
        weights = weights * met.active * x.element.clamp(max=2.0)
        memory, hit = self._moved(x, weights, rate)
        memory = memory / (exact * self.value(x, "reach")).clamp(max=1.0)
        between = (2 * hidden + (2 + x.dims[:, 8]) * width) * met.pairs * x.element
        rows, _ = self._moved(x, between, rate)
        remote, _ = self._moved(x, met.all_pairs * hidden * x.element, rate)
        rows = rows * self.value(x, "local") * library["local"]
        rows = rows + remote * self.value(x, "remote") * library["remote"]
        launch = self.value(x, "launch") * effect["launch"] * library["launch"]
        launch = launch / (x.figure("clock") / USUAL_CLOCK) ** self.value(x, "launch_clock")
        launch = launch + self.value(x, "call") * effect["call"] * x.launch_included
        body = soft_maximum([compute, memory], self.value(x, "sharpness"))
        log_time = torch.log(launch + body + rows)
        return Terms(log_time, launch, compute, memory, rows, slow, hit, tail, exact)

    def _width(self, x: Inputs) -> Tensor:
        return (x.dims[:, 2] / x.dims[:, 5].clamp(min=1.0)).clamp(min=1.0)

    def _moved(self, x: Inputs, moved: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """Time of some traffic that the cache may hold from the kernel before, and its share."""
        hit = cache_hit(self, x, moved)
        cache = x.figure("l2_bandwidth") * self.value(x, "touch")
        return moved * (1 - hit) / rate + moved * hit / cache, hit

    def _compute(
        self,
        x: Inputs,
        effect: dict[str, Tensor],
        met: Routing,
        products: tuple[tuple[Tensor, Tensor], ...],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Soft minimum over the tile's height; tiles read their operands through the cache."""
        tile = self.tiles
        load = met.load.unsqueeze(2)
        waste = (torch.ceil(load / tile - 1e-4) * tile - load).mean(1)
        pairs, active = met.pairs.unsqueeze(1), met.active.unsqueeze(1)
        padded = pairs + self.value(x, "padding") * active * waste
        blocks = torch.maximum(padded, active * tile) / tile
        sms, clock = x.figure("sms").unsqueeze(1), x.figure("clock").unsqueeze(1)
        shape = 1 + self.value(x, "tile").reshape(-1, 1) * (1 / tile + 1 / _TILE_N)
        peak = (x.peak * self.value(x, "efficiency") * effect["compute"]).unsqueeze(1)
        step = 2 * tile * _TILE_N * sms * shape / peak
        step = torch.maximum(step, self.value(x, "latency").reshape(-1, 1) / clock / 64)
        total, waves = torch.zeros_like(blocks), torch.zeros_like(blocks)
        rounded, operands = torch.zeros_like(blocks), torch.zeros_like(blocks)
        for columns, depth in ((n.unsqueeze(1), k.unsqueeze(1)) for n, k in products):
            across = torch.ceil(columns / _TILE_N)
            exact = blocks * across / sms
            whole = torch.ceil(exact - 1e-4)
            total = total + 0.5 * (whole + exact.clamp(min=1.0)) * depth * step
            operands = operands + depth * (blocks * columns + across * pairs)
            waves, rounded = waves + exact, rounded + whole
        cache = x.figure("l2_bandwidth") * self.value(x, "operands") * effect["cache"]
        operands = operands * (x.element / cache).unsqueeze(1)
        total = soft_maximum([total, operands], _L2_SHARPNESS)
        temperature = self.value(x, "temperature")
        score = -torch.log(total.clamp(min=1e-6)) / temperature
        weight = torch.softmax(score, 1)
        time = torch.exp(-temperature * torch.logsumexp(score, 1))
        slow = throttle(self, x, effect["power"])
        slow = 1 + (slow - 1) * time / (time + self.value(x, "power_time"))
        exact = (weight * waves).sum(1).clamp(min=1e-3)
        tail = (weight * rounded / waves.clamp(min=1e-3)).sum(1).clamp(min=1.0)
        return time * slow, exact, tail, slow
