"""Fused (flash) attention: tiles of queries over the SMs, keys and values streamed from memory."""

import torch
from torch import Tensor

from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior_base import Prior, Start, Terms, cache_hit, soft_maximum, throttle

STARTS: dict[str, Start] = {
    "launch": Start(1.8, 0.5, 0.0, 0.0),
    "ramp": Start(9.0, 0.7, 0.0, 0.0),
    "sharpness": Start(1.2, 0.3),
    "efficiency": Start(0.7, 0.4, 0.0, -0.1),
    "narrow_head": Start(0.3, 0.5, 0.0, 0.0),
    "exponential": Start(1.0, 0.4, -0.3, -0.2),
    "query_tile": Start(128.0, 0.3),
    "block_latency": Start(0.03, 0.5, 0.0),
    "block_cost": Start(2.5, 0.7, 0.0),
    "bandwidth": Start(0.75, 0.2),
    "cache": Start(0.8, 0.3),
    "reach": Start(1.5, 0.5),
    "backward": Start(1.3, 0.3),
    "capacity_split": Start(0.48, 0.2),
    "capacity": Start(0.9, 0.2),
    "capacity_width": Start(0.3, 0.3),
    "power": Start(0.9, 0.1),
    "power_exponent": Start(0.4, 0.1),
    "power_clock": Start(2.0, 0.1),
    "power_node": Start(0.8, 0.15),
    "power_width": Start(0.15, 0.2),
    "power_time": Start(400.0, 0.1),
    "call": Start(30.0, 0.5),
}
_STEP_KEYS = 64
SPECIAL_PER_CLOCK = 16.0
"""exponentials of one SM per clock on NVIDIA GPUs (CUDA programming guide, throughput table)"""


class AttentionPrior(Prior):
    """Prefill and backward of fused attention."""

    def __init__(self, devices: int, parents: tuple[int, ...]) -> None:
        super().__init__(STARTS, devices, parents)

    def forward(self, x: Inputs) -> Terms:
        """Time and terms of the rows."""
        effect = self.effects(x)
        batch, heads, _, q_len, kv_len, head_dim = x.dims[:, :6].clamp(min=1.0).T
        blocks = batch * heads * _ceil(q_len / self.value(x, "query_tile"))
        window = torch.where(x.dims[:, 8] > 0, torch.minimum(x.dims[:, 8], kv_len), kv_len)
        sms, clock = x.figure("sms"), x.figure("clock")
        exact = blocks / sms
        rounded = _ceil(exact)
        smooth = torch.where(x.dims[:, 7] > 0, 0.5 * (rounded + exact.clamp(min=1.0)), rounded)
        tail = smooth / exact
        compute, slow = self._compute(x, effect, head_dim, tail)
        memory, hit = self._memory(x, effect, exact)
        steps = window / _STEP_KEYS * self.value(x, "block_latency") + self.value(x, "block_cost")
        latency = steps * smooth / clock
        launch = self.value(x, "launch") * effect["launch"] + self.value(x, "ramp") / clock
        launch = launch + self.value(x, "call") * effect["call"] * x.launch_included
        body = soft_maximum([compute, memory, latency], self.value(x, "sharpness"))
        log_time = torch.log(launch + body)
        return Terms(log_time, launch, compute, memory, latency, slow, hit, tail, exact)

    def _compute(
        self, x: Inputs, effect: dict[str, Tensor], head_dim: Tensor, tail: Tensor
    ) -> tuple[Tensor, Tensor]:
        narrow = (128 / head_dim.clamp(max=128.0)) ** self.value(x, "narrow_head")
        rate = x.peak * self.value(x, "efficiency") * effect["compute"] / narrow
        products = x.flops / rate
        scores = x.flops / (4 * head_dim)
        special = x.figure("sms") * x.figure("clock") * 1e3 * SPECIAL_PER_CLOCK
        exponentials = scores / special * self.value(x, "exponential")
        backward = torch.where(x.dims[:, 10] > 0, self.value(x, "backward"), 1.0)
        time = (products + exponentials) * tail * backward
        limit = throttle(self, x, effect["power"])
        slow = 1 + (limit - 1) * time / (time + self.value(x, "power_time"))
        return time * slow, slow

    def _memory(self, x: Inputs, effect: dict[str, Tensor], exact: Tensor) -> tuple[Tensor, Tensor]:
        moved = x.read + x.written
        hit = cache_hit(self, x, moved)
        cache = x.figure("l2_bandwidth") * self.value(x, "cache") * effect["cache"]
        rate = x.figure("bandwidth") * self.value(x, "bandwidth") * effect["bandwidth"]
        active = (exact * self.value(x, "reach")).clamp(max=1.0)
        return (moved * (1 - hit) / rate + moved * hit / cache) / active, hit


def _ceil(x: Tensor) -> Tensor:
    return torch.ceil(x - 1e-4).clamp(min=1.0)
