"""The networks of the recorded workloads: small, and made of ordinary layers."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """[batch, widths[0]] -> [batch, widths[-1]]."""
        out: Tensor = self.layers(x)
        return out


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, inputs, h, w] -> [batch, outputs, h / stride, w / stride]."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A small residual network; one block per stage, each stage halves the image."""

    def __init__(self, channels: tuple[int, ...], classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels[0], 3, 1, 1, bias=False)
        pairs = pairwise(channels)
        self.stages = nn.Sequential(*(ResidualBlock(a, b, 2) for a, b in pairs))
        self.head = nn.Linear(channels[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, h, w] -> [batch, classes]."""
        y = self.stages(F.max_pool2d(F.relu(self.stem(x)), 2))
        logits: Tensor = self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))
        return logits


@dataclass(frozen=True)
class TransformerSize:
    """Sizes of a transformer."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    length: int


class Block(nn.Module):
    """Pre-norm attention and MLP; the attention fused and causal, or spelled out with dropout."""

    def __init__(self, size: TransformerSize, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = size.heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)
        self.qkv = nn.Linear(size.hidden, 3 * size.hidden)
        self.out = nn.Linear(size.hidden, size.hidden)
        self.up = nn.Linear(size.hidden, 4 * size.hidden)
        self.down = nn.Linear(4 * size.hidden, size.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, hidden] -> the same."""
        batch, length, hidden = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = torch.matmul(q, k.transpose(-1, -2)) / (hidden // self.heads) ** 0.5
            weights = F.dropout(torch.softmax(scores, -1), 0.1, self.training)
            y = torch.matmul(weights, v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, hidden))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return out


class Transformer(nn.Module):
    """Embeddings, blocks, and logits over the vocabulary."""

    def __init__(self, size: TransformerSize, fused: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.positions = nn.Parameter(torch.zeros(size.length, size.hidden))
        self.blocks = nn.Sequential(*(Block(size, fused) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.hidden)
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, length] token ids -> [batch, length, vocabulary] logits."""
        logits: Tensor = self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions)))
        return logits


@dataclass(frozen=True)
class DlrmSize:
    """Sizes of a DLRM."""

    tables: int
    rows: int
    dim: int
    pooling: int
    """lookups per sample and table"""
    bottom: tuple[int, ...]
    top: tuple[int, ...]


class Dlrm(nn.Module):
    """Embedding bags, a bottom MLP for dense features, pairwise products, a top MLP."""

    pairs: Tensor

    def __init__(self, size: DlrmSize) -> None:
        super().__init__()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(size.rows, size.dim, mode="sum", sparse=True)
            for _ in range(size.tables)
        )
        self.bottom = Mlp((13, *size.bottom, size.dim))
        products = (size.tables + 1) * size.tables // 2
        self.top = Mlp((size.dim + products, *size.top, 1))
        self.register_buffer("pairs", torch.tril_indices(size.tables + 1, size.tables + 1, -1))

    def forward(self, dense: Tensor, indices: Tensor, offsets: Tensor) -> Tensor:
        """[batch, 13], [tables, batch * pooling], [batch] -> [batch] logits."""
        x = self.bottom(dense)
        looked_up = [bag(indices[i], offsets) for i, bag in enumerate(self.bags)]
        features = torch.stack([x, *looked_up], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        first, second = self.pairs.unbind(0)
        logits: Tensor = self.top(torch.cat([x, products[:, first, second]], 1))
        return logits.squeeze(1)
