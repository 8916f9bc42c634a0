"""Elementwise, normalization and softmax kernels of GPUs: traffic over bandwidth, once or again.

All three share one mechanism: compulsory traffic from memory (or the cache, if all of it fits), the
bytes that a row's kernel reads again after its statistics, and a fixed time of the launch. How much
of the stated bandwidth a kernel reaches is a matter of the memory (stacked or not), not of the
kernel, so its starting value is shared and held.
"""

import torch
from torch import Tensor

from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior_attention import SPECIAL_PER_CLOCK
from gnnperf.nn.prior_base import Prior, Start, Terms, cache_hit, soft_maximum
from gnnperf.ops import dim_index
from gnnperf.ops.norm import BATCH

_STARTS: dict[str, Start] = {
    "kernel": Start(2.5, 0.3),
    "in_model": Start(0.7, 0.5),
    "bandwidth": Start(0.77, 0.03, stacked=0.12, amd=0.0, shift_spread=0.03),
    "cache": Start(0.8, 0.3),
    "capacity_split": Start(0.48, 0.1),
    "capacity": Start(0.9, 0.1),
    "capacity_width": Start(0.08, 0.1),
    "norm_passes": Start(1.0, 0.2),
    "staged_passes": Start(0.4, 0.3, amd=0.0, shift_spread=1.0),
    "long_passes": Start(2.0, 0.3),
    "rows_resident": Start(16.0, 0.3),
    "room_split": Start(0.6, 0.3),
    "room": Start(0.8, 0.3),
    "resident_width": Start(0.5, 0.3),
    "row": Start(5.0, 0.5),
    "rows_per_sm": Start(8.0, 0.4),
    "special": Start(1.0, 0.4),
    "sharpness": Start(3.0, 0.2),
    "backward": Start(1.0, 0.4, amd=0.0, shift_spread=0.6),
}
_CALL_US = {"elementwise": 15.0, "norm": 35.0, "softmax": 20.0}
"""what a timed call adds outside of a model: the host's part that the kernel does not hide"""
STRIDED_PER_CLOCK = 1.3
"""elements per clock and SM that a kernel addresses one by one (H100 and B200 traces alike)"""
AMD_BATCH_NORM_US = 0.75
"""what a block of PyTorch's own batch norm takes for 512 elements of its channel (MI300X traces)"""
PERSISTENT_ELEMENTS, STAGED_BYTES = 1024, 48 * 1024
"""PyTorch's softmax keeps rows up to so many elements in registers, so many bytes in shared memory
(SoftMax.cu); longer rows are read again"""


class MemoryPrior(Prior):
    """T = launch + p-norm(traffic and what is read again, exponentials, rows in waves)."""

    def __init__(self, family: str, devices: int, parents: tuple[int, ...]) -> None:
        starts = _STARTS | {"call": Start(_CALL_US[family], 0.3)}
        super().__init__(starts, devices, parents)
        self.family = family

    def forward(self, x: Inputs) -> Terms:
        """Time and terms of the rows."""
        effect = self.effects(x)
        moved = (x.read + x.written).clamp(min=1.0)
        hit = cache_hit(self, x, moved)
        cache = x.figure("l2_bandwidth") * self.value(x, "cache") * effect["cache"]
        rate = x.figure("bandwidth") * self.value(x, "bandwidth") * effect["bandwidth"]
        again = x.read * self._passes(x)
        memory = (moved + again * (1 - self._kept(x))) * (1 - hit) / rate
        memory = (memory + (moved + again) * hit / cache) / self._busy(x)
        memory = memory * torch.where(self._backward(x), self.value(x, "backward"), 1.0)
        sms, clock = x.figure("sms"), x.figure("clock")
        special = self._elements(x) / (sms * clock * 1e3 * SPECIAL_PER_CLOCK)
        special = special * self.value(x, "special") + self._addresses_us(x)
        waves = self._rows(x) / (sms * self.value(x, "rows_per_sm"))
        latency = torch.ceil(waves) * self.value(x, "row") / clock + self._channels_us(x)
        body = soft_maximum([memory, special, latency], self.value(x, "sharpness"))
        call = self.value(x, "call") * effect["call"] * x.launch_included
        call = call * torch.where(x.in_model > 0, self.value(x, "in_model"), 1.0)
        launch = self.value(x, "kernel") * effect["launch"] + call
        tail = (torch.ceil(waves) / waves.clamp(min=1e-6)).clamp(1.0, 1e3)
        exact = torch.where(waves > 0, waves, moved / 1e5 / sms)
        slow = torch.ones_like(moved)
        return Terms(
            torch.log(launch + body), launch, special, memory, latency, slow, hit, tail, exact
        )

    def _elements(self, x: Inputs) -> Tensor:
        """Exponentials: one for each element of a softmax or of a kernel that computes them."""
        if self.family == "softmax":
            return x.dims[:, 0] * x.dims[:, 1]
        return x.dims[:, 0] * x.dims[:, 6] if self.family == "elementwise" else 0 * x.read

    def _rows(self, x: Inputs) -> Tensor:
        """Rows, each the work of a block, where the kernel goes row by row."""
        return 0 * x.read if self.family == "elementwise" else x.dims[:, 0].clamp(min=1.0)

    def _backward(self, x: Inputs) -> Tensor:
        """[n] whether a row is the backward of a normalization of rows or of a softmax."""
        if self.family == "elementwise":
            return torch.zeros(len(x), dtype=torch.bool)
        return (x.dims[:, dim_index(self.family, "direction")] > 0) & ~self._channelwise(x)

    def _channelwise(self, x: Inputs) -> Tensor:
        """[n] whether a row is a batch norm, whose bytes hold its second pass."""
        kind = x.dims[:, dim_index("norm", "kind")]
        return (kind == BATCH) if self.family == "norm" else torch.zeros(len(x), dtype=torch.bool)

    def _busy(self, x: Inputs) -> Tensor:
        """Share of the bandwidth that a batch norm's channels, a block each, can use."""
        share = (1.3 * x.dims[:, 0] / x.figure("sms")).clamp(0.01, 1.0)
        return torch.where(self._channelwise(x), share, 1.0)

    def _channels_us(self, x: Inputs) -> Tensor:
        """AMD's batch norm: a block goes through a channel alone, twice on the way back.

        Forward is two kernels, statistics and values, that a trace shares out equally.
        """
        steps = x.dims[:, dim_index("norm", "cols")] / 512 * AMD_BATCH_NORM_US
        passes = torch.where(x.dims[:, dim_index("norm", "direction")] > 0, 2.0, 0.5)
        return torch.where(self._channelwise(x), steps * passes * x.figure("amd"), 0.0)

    def _addresses_us(self, x: Inputs) -> Tensor:
        """Elements that are addressed one by one: broadcast and permuting kernels."""
        if self.family != "elementwise":
            return 0 * x.read
        strided = x.dims[:, dim_index("elementwise", "strided")] > 0
        rate = x.figure("sms") * x.figure("clock") * 1e3 * STRIDED_PER_CLOCK
        return strided * x.items / rate

    def _passes(self, x: Inputs) -> Tensor:
        """How often what was read is read again: statistics first, then values."""
        if self.family == "elementwise":
            return 0 * x.read
        if self.family == "norm":
            return torch.where(self._channelwise(x), 0.0, self.value(x, "norm_passes"))
        cols = x.dims[:, 1]
        staged = cols * x.element <= STAGED_BYTES
        passes = torch.where(staged, self.value(x, "staged_passes"), self.value(x, "long_passes"))
        return torch.where(cols > PERSISTENT_ELEMENTS, passes, 0.0)

    def _kept(self, x: Inputs) -> Tensor:
        """Share of that which the cache still holds: the rows in flight against its size."""
        flight = x.figure("sms") * self.value(x, "rows_resident")
        held = torch.minimum(flight, x.dims[:, 0].clamp(min=1.0)) * x.dims[:, 1] * x.element
        split = x.figure("l2_split") > 0
        room = torch.where(split, self.value(x, "room_split"), self.value(x, "room"))
        log_room = torch.log(room * x.figure("l2_bytes") / held.clamp(min=1.0))
        return torch.sigmoid(log_room / self.value(x, "resident_width"))


FAMILIES: tuple[str, ...] = tuple(_CALL_US)
"""Families that this prior serves; each has coefficients of its own."""
