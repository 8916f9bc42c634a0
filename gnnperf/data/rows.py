"""Rows with the frozen prior's terms, as batches for the residual network."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnnperf.features import Rows, ratios
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.model import Edges, KernelNetwork

CHUNK = 32_768


@dataclass(frozen=True, eq=False)
class TrainRows:
    """[n] rows of work and [m] measured times; a time may be that of several rows."""

    features: Tensor
    """[n, len(FEATURES)] standardized"""
    slot: Tensor
    """[n]"""
    log_prior: Tensor
    """[n] log of us, effects of device and implementation in it"""
    owner: Tensor
    """[n] measured time that the row belongs to"""
    log_time: Tensor
    """[m] measured"""
    weight: Tensor
    """[m]"""
    edges: Edges

    def data(self) -> Data:
        """As PyG data."""
        return Data(
            x=self.features,
            edge_index=self.edges.index,
            edge_type=self.edges.kind,
            slot=self.slot,
            log_prior=self.log_prior,
            owner=self.owner,
            log_time=self.log_time,
            weight=self.weight,
        )

    def take(self, rows: Tensor) -> "TrainRows":
        """Some rows of a set in which every row is a measured time of its own."""
        values = {
            f.name: getattr(self, f.name)[rows]
            for f in fields(self)
            if f.name not in ("owner", "edges")
        }
        return TrainRows(**values, owner=torch.arange(len(rows)), edges=Edges.none())

    def joined(self, other: "TrainRows") -> "TrainRows":
        """Both, no edge between them."""
        shift, times = len(self.slot), len(self.log_time)
        index = torch.cat([self.edges.index, other.edges.index + shift], dim=1)
        edges = Edges(index, torch.cat([self.edges.kind, other.edges.kind]))
        owner = torch.cat([self.owner, other.owner + times])
        values = {
            f.name: torch.cat([getattr(self, f.name), getattr(other, f.name)])
            for f in fields(self)
            if f.name not in ("owner", "edges")
        }
        return TrainRows(**values, owner=owner, edges=edges)


def with_terms(network: KernelNetwork, rows: Rows, x: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """Raw features [n, F], slot [n] and log prior time [n] of rows, in chunks, no gradient."""
    generic = torch.from_numpy(ratios(rows))
    features, slots = [], []
    with torch.no_grad():
        for index in torch.arange(len(x)).split(CHUNK):
            part = x.take(index)
            terms = network.prior(part)
            features.append(network.features(part, generic[index], terms))
            slots.append(network.slots_of(part))
    if not features:
        return torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64), torch.zeros(0)
    joined, slot = torch.cat(features), torch.cat(slots)
    return joined, slot, joined[:, 0] + network.offsets(x, slot)


def prior_log_time(network: KernelNetwork, x: Inputs) -> Tensor:
    """[n] log of us of the prior alone, in chunks, no gradient."""
    with torch.no_grad():
        parts = [network.prior(x.take(i))[:, 0] for i in torch.arange(len(x)).split(CHUNK)]
    return torch.cat(parts)


@dataclass
class Batches:
    """The batches of one epoch: rows in random order, some graphs with each batch."""

    rows: TrainRows
    graphs: list[TrainRows]
    batch_size: int
    seed: int
    graphs_per_batch: int = 8
    epoch: int = 0

    def __len__(self) -> int:
        return max(1, len(self.rows.slot) // self.batch_size)

    def __iter__(self) -> Iterator[Data]:
        generator = torch.Generator().manual_seed(self.seed * 100_003 + self.epoch)
        order = torch.randperm(len(self.rows.slot), generator=generator)
        shape = (len(self), self.graphs_per_batch)
        picks = torch.randint(max(len(self.graphs), 1), shape, generator=generator).tolist()
        size = self.batch_size
        for i in range(len(self)):
            part = self.rows.take(order[i * size : (i + 1) * size])
            for pick in picks[i] if self.graphs else []:
                part = part.joined(self.graphs[pick])
            yield part.data()


def of_owners(batch: Data, residual: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Log time [m] and spread [m] of the measured times from their rows [n]."""
    m = len(batch.log_time)
    log_time = batch.log_prior + residual
    if len(log_time) == m:
        return log_time, spread
    time = torch.exp(log_time)
    total = torch.zeros(m).index_add(0, batch.owner, time).clamp(min=1e-6)
    width = torch.zeros(m).index_add(0, batch.owner, time * spread) / total
    return torch.log(total), width.clamp(min=1e-3)
