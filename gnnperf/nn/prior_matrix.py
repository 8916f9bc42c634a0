"""Matrix products and convolutions: a soft minimum over tiles and split-K of a mechanistic time.

A library picks the fastest of its kernels; which one is not known, so the time is a soft minimum
over a menu of (tile_m, tile_n, split_k).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior_base import EFFECTS, Prior, Start, Terms, cache_hit, soft_maximum, throttle
from gnnperf.ops import family_index

_SPLITS = (1, 2, 4, 8, 16)
_TENSOR_TILES = (
    (16, 64),
    (32, 64),
    (64, 64),
    (64, 128),
    (128, 64),
    (128, 128),
    (128, 256),
    (256, 128),
)
_VECTOR_TILES = ((16, 32), (32, 32), (32, 64), (64, 32), (64, 64), (128, 64), (64, 128), (128, 128))

_COMMON = {
    "sharpness": Start(4.5, 0.2),
    "smooth_waves": Start(0.5, 0.5),
    "power_clock": Start(2.0, 0.1),
    "power_width": Start(0.15, 0.2),
    "bandwidth": Start(0.75, 0.2),
    "capacity_split": Start(0.48, 0.15),
    "capacity": Start(0.9, 0.1),
    "capacity_width": Start(0.12, 0.2),
    "weight_copies": Start(5.0, 0.15),
    "first_touch": Start(0.3, 0.3),
    "call": Start(25.0, 0.5),
    "convolution": Start(1.2, 0.3),
    "winograd": Start(1.6, 0.3),
    "quantize_launch": Start(2.0, 0.5),
    "quantize_bytes": Start(1.3, 0.5),
}
TENSOR: dict[str, Start] = _COMMON | {
    "launch": Start(0.8, 0.5, 0.0, -0.1),
    "ramp": Start(2.6, 0.5, 0.05, -0.1),
    "temperature": Start(0.05, 0.3, 0.0),
    "efficiency": Start(1.0, 0.5, 0.2),
    "tile": Start(11.0, 0.5, -0.3),
    "latency": Start(0.38, 0.5, -0.8),
    "epilogue": Start(1.9, 0.5, -0.4, -0.4),
    "fill": Start(0.55, 0.5, -0.4),
    "cache": Start(1.0, 0.15, 0.4, 0.3),
    "split": Start(2.2, 0.5, 0.3),
    "reach": Start(2.4, 0.5, -0.1),
    "power": Start(1.15, 0.15),
    "power_exponent": Start(0.45, 0.15),
    "power_node": Start(0.8, 0.15),
    "power_time": Start(400.0, 0.5),
}
VECTOR: dict[str, Start] = (
    _COMMON
    | {
        "launch": Start(2.0, 0.5),
        "ramp": Start(2.6, 0.5),
        "temperature": Start(0.06, 0.3),
        "efficiency": Start(1.0, 0.3),
        "tile": Start(8.0, 0.5),
        "latency": Start(0.3, 0.5),
        "epilogue": Start(1.5, 0.5),
        "fill": Start(1.0, 0.5),
        "cache": Start(0.8, 0.3),
        "split": Start(3.0, 0.5),
        "reach": Start(2.4, 0.5),
        "power": Start(9.3, 0.15),
        "power_exponent": Start(0.7, 0.15),
        "power_node": Start(0.6, 0.15),
        "power_time": Start(100.0, 0.5),
    }
    | {"power_clock": Start(0.5, 0.1), "power_width": Start(0.02, 0.2), "weight_copies": Start(1.0)}
)
BATCHED: dict[str, Start] = VECTOR | {"narrow": Start(0.5, 0.5)}
_RECENT_NM, _WIDE_TILE = 10.0, 128
_UNFITTED = -20.0
"""logarithm of a coefficient that counts nothing"""
_LINEAR_EFFECTS = {"compute": (0.3, 0.1)}
"""Single-precision products of older devices run at half the speed of others (P100, T4): a wide
effect keeps that out of the shared coefficients."""


class Problem(NamedTuple):
    """Products C[batch, m, n] = A[batch, m, k] B[batch, k, n]; all [n, 1]."""

    batch: Tensor
    m: Tensor
    n: Tensor
    k: Tensor
    work: Tensor
    """factor on the arithmetic: below 1 for a fast convolution algorithm"""


def _ceil(x: Tensor) -> Tensor:
    return torch.ceil(x - 1e-4).clamp(min=1.0)


class MatrixPrior(Prior):
    """GEMM and convolution on one path (matrix units with 2 or 1 byte types, or vector units)."""

    menu: Tensor

    def __init__(self, path: str, devices: int, parents: tuple[int, ...]) -> None:
        vector = path.startswith("vector")
        effects = EFFECTS | (_LINEAR_EFFECTS if path == "vector" else {})
        starts = BATCHED if path == "vector_batched" else VECTOR if vector else TENSOR
        super().__init__(starts, devices, parents, effects)
        tiles = _VECTOR_TILES if vector else _TENSOR_TILES
        menu = torch.tensor([(m, n, s) for m, n in tiles for s in _SPLITS], dtype=torch.float32)
        self.register_buffer("menu", menu, persistent=False)
        self.k_step = 16.0 if vector else 64.0
        self.quantizes = path == "tensor8"
        self.quantized = torch.nn.Parameter(torch.full((len(parents) + 1,), -1.0))

    def forward(self, x: Inputs) -> Terms:
        """Time and terms of the rows."""
        effect = {name: value.unsqueeze(1) for name, value in self.effects(x).items()}
        p = self._problem(x)
        wide = _Wide(self, x, effect)
        tile_m, tile_n, split = self.menu.T
        grid_m, grid_n = _ceil(p.m / tile_m), _ceil(p.n / tile_n)
        tiles = p.batch * grid_m * grid_n * split
        exact = tiles / wide.figure("sms")
        rounded = _ceil(exact)
        smooth = torch.sigmoid(self.base["smooth_waves"])
        waves = smooth * rounded + (1 - smooth) * exact.clamp(min=1.0)
        compute, slow = self._compute(x, p, wide, waves, split)
        memory, cache, hit = self._memory(x, p, wide, tiles, split)
        body = soft_maximum([compute, memory, cache], wide.value("sharpness"))
        launch = wide.value("launch") * effect["launch"]
        launch = launch + wide.value("ramp") / wide.figure("clock")
        called = wide.value("call") * effect["call"] * x.launch_included.unsqueeze(1)
        launch = launch + called + self._quantization(x, p, wide)
        total = launch + body + (split > 1) * wide.value("split")
        temperature = wide.value("temperature")
        score = -torch.log(total) / temperature
        log_time = -temperature.reshape(-1) * torch.logsumexp(score, 1)
        weight = torch.softmax(score, 1)

        def mean(value: Tensor) -> Tensor:
            return (weight * value).sum(1)

        return Terms(
            log_time,
            launch.squeeze(1),
            mean(compute),
            mean(memory),
            mean(cache),
            mean(slow),
            hit.squeeze(1),
            mean(rounded / exact),
            mean(exact),
        )

    def _problem(self, x: Inputs) -> Problem:
        """A convolution is a product of patches with weights (implicit GEMM)."""
        d = x.dims
        convolution = x.family == family_index("conv")
        group = d[:, 13].clamp(min=1.0)
        side_h = (
            (d[:, 3] + 2 * d[:, 9] - d[:, 11].clamp(min=1) * (d[:, 5] - 1) - 1)
            / d[:, 7].clamp(min=1)
        ).floor() + 1
        side_w = (
            (d[:, 4] + 2 * d[:, 10] - d[:, 12].clamp(min=1) * (d[:, 6] - 1) - 1)
            / d[:, 8].clamp(min=1)
        ).floor() + 1
        positions = d[:, 0] * (side_h * side_w).clamp(min=1.0)
        fast = (d[:, 5] == 3) & (d[:, 6] == 3) & (d[:, 7] == 1) & (d[:, 8] == 1)
        fast = fast & (group == 1) & (d[:, 1] >= 16)
        both = torch.where(d[:, 14] == 3, 2.0, 1.0)
        work = both * self.value(x, "convolution") / torch.where(fast, self.value(x, "winograd"), 1)
        patch = d[:, 1] / group * d[:, 5] * d[:, 6]
        parts = (
            torch.where(convolution, group, d[:, 0]),
            torch.where(convolution, positions, d[:, 1]),
            torch.where(convolution, d[:, 2] / group, d[:, 2]),
            torch.where(convolution, patch, d[:, 3]),
        )
        batch, m, n, k = (part.clamp(min=1.0).unsqueeze(1) for part in parts)
        return Problem(batch, m, n, k, torch.where(convolution, work, 1.0).unsqueeze(1))

    def _compute(
        self, x: Inputs, p: Problem, wide: "_Wide", waves: Tensor, split: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Multiply-adds of full tiles or the latency of the k loop, slowed by power; epilogue."""
        tile_m, tile_n, _ = self.menu.T
        depth = _ceil(p.k / split / self.k_step) * self.k_step
        shape = 1 + wide.value("tile") * (1 / tile_m + 1 / tile_n)
        shape = shape * self._narrow(x)
        peak = x.peak.unsqueeze(1) * wide.value("efficiency") * wide.effect["compute"]
        step = 2 * tile_m * tile_n * wide.figure("sms") * shape / peak
        clock = wide.figure("clock")
        latency = wide.value("latency") / clock / 64
        time = p.work * waves * depth * torch.maximum(step, latency)
        limit = throttle(self, x, wide.effect["power"].squeeze(1)).unsqueeze(1)
        slow = 1 + (limit - 1) * time / (time + wide.value("power_time"))
        epilogue = waves * tile_m * tile_n * wide.value("epilogue") * 1e-4 / clock
        return time * slow + epilogue * wide.effect["epilogue"] + wide.value("fill") / clock, slow

    def _narrow(self, x: Inputs) -> Tensor:
        """What a tile with a side below 128 costs more in batched single-precision products.

        On NVIDIA's GPUs since Ampere, which are those of 8 nm and less, products with a side of 64
        run at half speed, as a tile of 128 would (A100 and L4; not on T4, V100 and AMD's).
        """
        if "narrow" not in self.base:
            return torch.ones(())
        recent = (x.figure("node") < _RECENT_NM) & (x.figure("amd") < 0.5)
        small = self.menu[:, :2].amin(1) < _WIDE_TILE
        return 1 + recent.unsqueeze(1) * small * self.value(x, "narrow")

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        *rest: Any,  # noqa: ANN401
    ) -> None:
        """Checkpoints from before narrow tiles cost more have none of it."""
        if "narrow" in self.base:
            state_dict.setdefault(f"{prefix}base.narrow", torch.tensor(_UNFITTED))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _memory(
        self, x: Inputs, p: Problem, wide: "_Wide", tiles: Tensor, split: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Traffic of memory (less what the cache keeps) and of the cache (tiles read operands)."""
        tile_m, tile_n, _ = self.menu.T
        element = x.element.unsqueeze(1)
        weights = wide.value("weight_copies") * p.batch * p.n * p.k * element
        footprint = weights + p.batch * (p.m * p.k * element + 2 * p.m * p.n)
        hit = cache_hit(self, x, footprint.squeeze(1)).unsqueeze(1)
        cache = wide.figure("l2_bandwidth") * wide.value("cache") * wide.effect["cache"]
        active = (tiles * wide.value("reach") / wide.figure("sms")).clamp(max=1.0)
        moved = (x.read + x.written).unsqueeze(1)
        rate = wide.figure("bandwidth") * wide.value("bandwidth") * wide.effect["bandwidth"]
        touch = cache * wide.value("first_touch")
        memory = (moved * (1 - hit) / rate + moved * hit / touch) / active
        partial = torch.where(split > 1, 8 * split * p.batch * p.m * p.n, 0.0) / cache
        operands = p.m * p.k * _ceil(p.n / tile_n) + p.n * p.k * _ceil(p.m / tile_m)
        return memory + partial, p.batch * element * operands / cache, hit

    def _quantization(self, x: Inputs, p: Problem, wide: "_Wide") -> Tensor:
        """A kernel before the product that quantizes the activations, where a library has one."""
        if not self.quantizes:
            return torch.zeros(len(x), 1)
        moved = 3 * p.m * p.k / wide.figure("bandwidth")
        time = wide.value("quantize_launch") + wide.value("quantize_bytes") * moved
        known = (x.variant >= 0) & (x.element <= 1)
        share = torch.where(known, torch.sigmoid(self.quantized[x.variant]), 0.0)
        return share.unsqueeze(1) * time


class _Wide:
    """Coefficients, figures and effects of rows as columns [n, 1], to meet the menu."""

    def __init__(self, prior: Prior, x: Inputs, effect: dict[str, Tensor]) -> None:
        self._prior, self._x, self.effect = prior, x, effect

    def value(self, name: str) -> Tensor:
        value = self._prior.value(self._x, name)
        return value.reshape(-1, 1)

    def figure(self, name: str) -> Tensor:
        return self._x.figure(name).unsqueeze(1)
