"""Attention of a few queries over cached keys and values: decoding."""

import torch
from torch import Tensor

from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior_base import Prior, Start, Terms, cache_hit, soft_maximum
from gnnperf.nn.prior_libraries import LibraryEffects

STARTS: dict[str, Start] = {
    "launch": Start(8.0, 0.5, 0.0, 0.0),
    "launch_clock": Start(0.5, 0.3),
    "sharpness": Start(2.5, 0.3),
    "efficiency": Start(0.6, 0.4, 0.0, 0.0),
    "rows": Start(16.0, 0.5),
    "block_cost": Start(1.5, 0.7, 0.0, 0.0),
    "step": Start(0.35, 0.5, 0.0, 0.0),
    "occupancy": Start(1.5, 0.4),
    "chunk": Start(256.0, 0.7),
    "room": Start(1.5, 0.4),
    "split": Start(2.5, 0.5),
    "bandwidth": Start(0.88, 0.1),
    "touch": Start(0.6, 0.4),
    "reach": Start(2.0, 0.5),
    "capacity_split": Start(0.6, 0.2),
    "capacity": Start(0.9, 0.15),
    "capacity_width": Start(0.15, 0.3),
    "call": Start(30.0, 0.5),
}
LIBRARY = {"launch": 0.4, "block": 0.6, "step": 0.5, "split": 0.6, "bandwidth": 0.05}
"""Effects of implementations."""
STIFFNESS = 5.0
"""factor on the penalty: four device groups determine little"""
USUAL_CLOCK = 1.8
DECODE_QUERIES = 16
"""up to as many queries beside cached keys, keys and values are what is split among the SMs"""
_STEP_KEYS, _PACKED = 64, 64


class DecodePrior(Prior):
    """launch + p-norm(products, keys and values streamed, blocks in waves) + merge of the split."""

    def __init__(
        self, devices: int, parents: tuple[int, ...], technologies: tuple[int, ...]
    ) -> None:
        super().__init__(STARTS, devices, parents)
        self.libraries = LibraryEffects(LIBRARY, technologies)

    def penalty(self) -> Tensor:
        """As `Prior.penalty`, with the effects of libraries."""
        return STIFFNESS * (super().penalty() + self.libraries.penalty())

    def forward(self, x: Inputs) -> Terms:
        """Time and terms of the rows."""
        effect, library = self.effects(x), self.libraries(x)
        batch, heads, kv_heads, q_len, kv_len, head_dim = x.dims[:, :6].clamp(min=1.0).T
        window = torch.where(x.dims[:, 8] > 0, torch.minimum(x.dims[:, 8], kv_len), kv_len)
        group = (heads / kv_heads).clamp(min=1.0) * q_len
        items = batch * kv_heads * torch.ceil(group / _PACKED)
        sms, clock = x.figure("sms"), x.figure("clock")
        splits = self._splits(x, items, window)
        exact = items * splits / (sms * self.value(x, "occupancy"))
        waves = 0.5 * (torch.ceil(exact - 1e-4).clamp(min=1.0) + exact.clamp(min=1.0))
        steps = window / _STEP_KEYS / splits * (0.5 + head_dim / 256)
        block = self.value(x, "block_cost") * library["block"]
        block = block + steps * self.value(x, "step") * library["step"]
        latency = waves * block / clock
        padded = torch.maximum(group, self.value(x, "rows")) / group
        rate = x.peak * self.value(x, "efficiency") * effect["compute"]
        compute = x.flops * padded / rate
        bandwidth = effect["bandwidth"] * library["bandwidth"]
        memory, hit = self._memory(x, bandwidth, effect["cache"], items * splits)
        body = soft_maximum([compute, memory, latency], self.value(x, "sharpness"))
        launch = self.value(x, "launch") * effect["launch"] * library["launch"]
        launch = launch / (clock / USUAL_CLOCK) ** self.value(x, "launch_clock")
        merge = self.value(x, "split") * library["split"] * USUAL_CLOCK / clock
        launch = launch + (1 - 1 / splits) * merge
        launch = launch + self.value(x, "call") * effect["call"] * x.launch_included
        tail = (waves / exact).clamp(min=1.0)
        log_time = torch.log(launch + body)
        one = torch.ones_like(launch)
        return Terms(log_time, launch, compute, memory, latency, one, hit, tail, exact)

    def _splits(self, x: Inputs, items: Tensor, window: Tensor) -> Tensor:
        """[n] pieces of the keys of one item: as many as fill the SMs, each of a minimum length."""
        room = (x.figure("sms") * self.value(x, "room") / items).clamp(min=1.0)
        pieces = (window / self.value(x, "chunk")).clamp(min=1.0)
        return ((room**-4 + pieces**-4 + 1e-9) ** -0.25).clamp(min=1.0)

    def _memory(
        self, x: Inputs, bandwidth: Tensor, cache: Tensor, blocks: Tensor
    ) -> tuple[Tensor, Tensor]:
        moved = x.read + x.written
        hit = cache_hit(self, x, moved)
        rate = x.figure("bandwidth") * self.value(x, "bandwidth") * bandwidth
        fast = x.figure("l2_bandwidth") * self.value(x, "touch") * cache
        active = (blocks / x.figure("sms") * self.value(x, "reach")).clamp(max=1.0)
        return (moved * (1 - hit) / rate + moved * hit / fast) / active, hit
