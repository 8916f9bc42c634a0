"""Typed, directed message passing: a bounded residual on the log of the prior's time."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

RELATIONS = 4
"""stream order and data, each along the edge and against it"""


@dataclass(frozen=True)
class NetworkShape:
    """Sizes of one network."""

    inputs: int
    slots: int
    """kinds of rows that have an encoder and a head of their own"""
    hidden: int = 64
    layers: int = 3
    edges: bool = True
    """False: the same network without messages (an MLP)"""
    bound: float = 0.6
    """largest residual of the log time"""
    dropout: float = 0.1


class TypedLayer(MessagePassing):
    """h + self(norm(h)) + sum over relations of the mean message, each relation its own weights."""

    def __init__(self, hidden: int, edges: bool, dropout: float) -> None:
        super().__init__(aggr="mean")
        self.norm = nn.LayerNorm(hidden)
        self.own = nn.Sequential(
            nn.Linear(hidden, 2 * hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(2 * hidden, hidden),
        )
        count = RELATIONS if edges else 0
        self.relations = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(count))

    def forward(self, h: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """One round.

        Args:
            h: [n, hidden] state of the rows.
            edge_index: [2, e] source and destination; a message goes to the destination.
            edge_type: [e] below RELATIONS.
        """
        z = self.norm(h)
        out = h + self.own(z)
        if edge_index.shape[1]:
            for kind, weights in enumerate(self.relations):
                chosen = edge_index[:, edge_type == kind]
                if chosen.shape[1]:
                    out = out + self.propagate(chosen, x=weights(z))
        result: Tensor = out
        return result

    def message(self, x_j: Tensor) -> Tensor:
        """[e, hidden] what a row sends."""
        return x_j


class ResidualNetwork(nn.Module):
    """Rows (and edges between them) to a residual of the log time and its spread."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        hidden = shape.hidden
        self.encoders = nn.ModuleList(nn.Linear(shape.inputs, hidden) for _ in range(shape.slots))
        self.variants = nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(
            TypedLayer(hidden, shape.edges, shape.dropout) for _ in range(shape.layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.residual = nn.Parameter(torch.zeros(shape.slots, hidden + 1))
        self.spread = nn.Parameter(torch.zeros(shape.slots, hidden + 1))

    def forward(
        self, features: Tensor, slot: Tensor, edge_index: Tensor, edge_type: Tensor
    ) -> tuple[Tensor, Tensor]:
        """[n] residual within +- bound (0 before training), [n] spread > 0, both of log time.

        Args:
            features: [n, inputs] standardized.
            slot: [n] index of the row's encoder and head.
            edge_index: [2, e].
            edge_type: [e].
        """
        h = torch.zeros(len(features), self.shape.hidden)
        for index in torch.unique(slot).tolist():
            rows = torch.nonzero(slot == index).squeeze(1)
            h = h.index_put((rows,), self.encoders[index](features[rows]))
        for layer in self.layers:
            h = layer(h, edge_index, edge_type)
        h = torch.nn.functional.pad(self.norm(h), (0, 1), value=1.0)
        residual = (h * self.residual[slot]).sum(1)
        spread = (h * self.spread[slot]).sum(1)
        bounded = self.shape.bound * torch.tanh(residual / self.shape.bound)
        return bounded, 0.02 + 0.1 * torch.exp(spread.clamp(-3, 3))
