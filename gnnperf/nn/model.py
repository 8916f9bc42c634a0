"""The whole kernel model: prior, scaling, residual networks, intervals. Microseconds out."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gnnperf.features import FEATURES
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.network import NetworkShape, ResidualNetwork
from gnnperf.nn.prior import KINDS, AnalyticPrior, kind_of
from gnnperf.ops import family_names

CLIP = 4.0
"""standard deviations beyond which a feature does not go: what lies outside is not extrapolated"""
OFFSET_ROWS = 20.0
"""rows at which an offset counts half"""
UNSEEN_SHARE = 0.5
"""of the residual that an op alone keeps on a device that was not trained on"""
UNSEEN_SHARES = {"tensor16": 0.0, "vector_batched": 0.0, "vector_conv": 1.0, "stream": 1.0}
"""the same by kind of work where the groups left out prefer another (docs/network.md): the prior of
16-bit and batched products carries over whole, that of convolutions does not"""
INSIDE_SHARES = {"vector_batched": 0.5, "norm": 0.0}
"""the same of ops inside models; all of it for the other kinds"""
DEFAULT_FACTOR, DEFAULT_SPREAD = 2.0, 0.25
"""Interval of rows of a kind that was never trained: exp(+-0.5) around the prior."""


@dataclass(frozen=True)
class ModelConfig:
    """Everything needed to build the module before its weights are loaded. Plain values."""

    devices: tuple[str, ...]
    """devices with effects of their own, by catalogue name"""
    variants: tuple[str, ...]
    """implementations with effects of their own"""
    slots: tuple[str, ...]
    """kind/family of every kind of row that was trained"""
    hidden: int = 64
    layers: int = 3
    members: int = 1
    bound: float = 0.6
    dropout: float = 0.1
    extra: dict[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """What a checkpoint stores."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @staticmethod
    def of(values: dict[str, Any]) -> "ModelConfig":
        """From what a checkpoint stores."""
        parts: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return ModelConfig(**parts)


@dataclass(frozen=True, eq=False)
class Edges:
    """Directed, typed edges between rows."""

    index: Tensor
    """[2, e]"""
    kind: Tensor
    """[e] below RELATIONS"""

    @staticmethod
    def none() -> "Edges":
        """Rows that do not know of each other."""
        return Edges(torch.zeros((2, 0), dtype=torch.int64), torch.zeros(0, dtype=torch.int64))


class KernelNetwork(nn.Module):
    """Inputs (and edges) to log time, spread and the prior's terms."""

    mean: Tensor
    deviation: Tensor
    offset: Tensor
    factor: Tensor
    slot_table: Tensor
    share: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.prior = AnalyticPrior(len(config.devices), config.variants)
        slots = max(len(config.slots), 1)
        shape = NetworkShape(
            len(FEATURES), slots, config.hidden, config.layers, True, config.bound, config.dropout
        )
        plain = NetworkShape(**{**asdict(shape), "edges": False})
        self.members = nn.ModuleList(ResidualNetwork(shape) for _ in range(config.members))
        self.edge_free = ResidualNetwork(plain)
        self.register_buffer("mean", torch.full((slots, len(FEATURES)), float("nan")))
        self.register_buffer("deviation", torch.full((slots, len(FEATURES)), float("nan")))
        self.register_buffer("offset", torch.zeros(len(config.devices) + 1, slots, 2))
        self.register_buffer("factor", torch.full((slots,), DEFAULT_FACTOR))
        names = family_names()
        table = torch.full((len(KINDS), len(names)), -1, dtype=torch.int64)
        for index, slot in enumerate(config.slots):
            kind, family = slot.split("/")
            if kind in KINDS and family in names:
                table[KINDS.index(kind), names.index(family)] = index
        self.register_buffer("slot_table", table, persistent=False)
        kinds = [slot.split("/")[0] for slot in config.slots] or [""]
        shares = [
            (UNSEEN_SHARES.get(kind, UNSEEN_SHARE), INSIDE_SHARES.get(kind, 1.0)) for kind in kinds
        ]
        self.register_buffer("share", torch.tensor(shares), persistent=False)

    def slots_of(self, x: Inputs) -> Tensor:
        """[n] slot of each row, -1 for a kind that was never trained."""
        return self.slot_table[kind_of(x), x.family]

    def features(self, x: Inputs, ratios: Tensor, terms: Tensor) -> Tensor:
        """[n, len(FEATURES)] not yet standardized: terms, ratios, log1p of the dimensions."""
        return torch.cat([terms, ratios, torch.log1p(x.dims.clamp(min=0.0))], dim=1)

    def fit_scaling(self, features: Tensor, slot: Tensor) -> None:
        """Mean and deviation of every slot's features; a feature that does not vary counts 0."""
        for index in range(len(self.mean)):
            part = features[slot == index].double()
            mean, deviation = part.mean(0), part.std(0)
            still = deviation < 1e-3
            self.mean[index] = mean.float()
            self.deviation[index] = torch.where(still, torch.inf, deviation).float()

    def offsets(self, x: Inputs, slot: Tensor) -> Tensor:
        """[n] what a known device is off its prior by, in this kind of work; 0 for an unseen one.

        A random intercept: without it the network would learn to tell devices apart, and carry
        the oddities of one over to another that resembles it.
        """
        known = (x.device >= 0) & (slot >= 0)
        found = self.offset[x.device, slot.clamp(min=0), x.in_model.long()]
        return torch.where(known, found, torch.zeros(()))

    def fit_offsets(self, x: Inputs, slot: Tensor, error: Tensor) -> None:
        """Medians of the prior's error by device and kind, apart for ops inside models.

        Where rows are few they shrink, those inside models to that of the ops timed alone, the
        others to 0.

        Args:
            x: [n] rows of known devices.
            slot: [n].
            error: [n] measured over prior, log.
        """
        for device in range(len(self.config.devices)):
            for index in range(self.offset.shape[1]):
                here = (x.device == device) & (slot == index)
                for inside, other in ((0, 0.0), (1, float(self.offset[device, index, 0]))):
                    part = error[here & (x.in_model == inside)]
                    share = len(part) / (len(part) + OFFSET_ROWS)
                    median = float(part.median()) if len(part) else 0.0
                    self.offset[device, index, inside] = share * median + (1 - share) * other

    def trust(self, device: Tensor, in_model: Tensor, slot: Tensor) -> Tensor:
        """[n] share of the residual that counts: all on a known device, by kind on an unseen one.

        What the residual learned of other devices carries over in part; inside a model most of it
        comes from the neighbours, which it knows.

        Args:
            device: [n] below 0 where the device was not trained on.
            in_model: [n] above 0 where the op runs inside a model.
            slot: [n] at least 0.
        """
        return torch.where(device < 0, self.share[slot, in_model.long()], 1.0)

    def standardize(self, features: Tensor, slot: Tensor) -> Tensor:
        """[n, len(FEATURES)] clipped to what training showed."""
        scaled = (features - self.mean[slot]) / self.deviation[slot]
        return scaled.clamp(-CLIP, CLIP)

    def residuals(
        self, features: Tensor, slot: Tensor, edges: Edges, edge_free: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Mean residual and spread over the members (disagreement added), [n] each."""
        chosen = [self.edge_free] if edge_free else list(self.members)
        found = [member(features, slot, edges.index, edges.kind) for member in chosen]
        residual = torch.stack([r for r, _ in found])
        spread = torch.stack([s for _, s in found]).mean(0)
        if len(found) > 1:
            spread = torch.sqrt(spread**2 + residual.var(0, correction=0))
        return residual.mean(0), spread

    def forward(
        self, x: Inputs, ratios: Tensor, edges: Edges, edge_free: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log time [n], half width of the interval of log time [n], terms [n, len(TERMS)].

        Args:
            x: [n] rows.
            ratios: [n, len(RATIOS)] of `features.ratios`.
            edges: Between the rows.
            edge_free: Use the network without messages.
        """
        terms = self.prior(x)
        slot = self.slots_of(x)
        log_time = terms[:, 0] + self.offsets(x, slot)
        half = torch.full_like(log_time, DEFAULT_FACTOR * DEFAULT_SPREAD)
        trained = slot >= 0
        if trained.any():
            safe = slot.clamp(min=0)
            scaled = self.standardize(self.features(x, ratios, terms), safe)
            scaled = torch.where(trained.unsqueeze(1), scaled, torch.zeros(()))
            residual, spread = self.residuals(scaled, safe, edges, edge_free)
            residual = residual * self.trust(x.device, x.in_model, safe)
            log_time = log_time + torch.where(trained, residual, 0.0)
            half = torch.where(trained, self.factor[safe] * spread, half)
        return log_time, half, terms
