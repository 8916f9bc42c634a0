"""The table of recorded workloads. To add one, register it here."""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from gnnperf.recording.models import Dlrm, DlrmSize, Mlp, ResNet, Transformer, TransformerSize
from gnnperf.recording.steps import Batch, Optimizer, Recipe
from gnnperf.registry import Registry


@dataclass(frozen=True)
class Workload:
    """A named workload."""

    family: str
    description: str
    recipe: Recipe
    ranks: int = 1
    """over 1: data-parallel"""


WORKLOADS: Registry[Workload] = Registry("workload")
"""Every workload by name."""


def select(suites: list[str]) -> dict[str, Workload]:
    """Workloads by names and families; none given means all.

    Raises:
        UnknownNameError: A name that is neither.
    """
    families = {workload.family for _, workload in WORKLOADS.items()}
    for name in suites:
        if name not in families:
            _ = WORKLOADS[name]
    return {
        name: workload
        for name, workload in WORKLOADS.items()
        if not suites or name in suites or workload.family in suites
    }


_sgd: Optimizer = partial(torch.optim.SGD, lr=0.01)
_momentum: Optimizer = partial(torch.optim.SGD, lr=0.01, momentum=0.9, weight_decay=1e-4)
_adam: Optimizer = partial(torch.optim.Adam, lr=1e-3)
_adamw: Optimizer = partial(torch.optim.AdamW, lr=1e-3)


def _add(name: str, family: str, description: str, recipe: Recipe, ranks: int = 1) -> None:
    WORKLOADS.register(name)(Workload(family, description, recipe, ranks))


def _vectors(batch: int, width: int, classes: int, generator: Generator) -> Batch:
    x = torch.randn(batch, width, generator=generator)
    return x, torch.randint(classes, (batch,), generator=generator)


def _images(batch: int, side: int, generator: Generator) -> Batch:
    x = torch.randn(batch, 3, side, side, generator=generator)
    return x, torch.randint(10, (batch,), generator=generator)


def _tokens(batch: int, size: TransformerSize, generator: Generator) -> Batch:
    text = torch.randint(size.vocabulary, (batch, size.length + 1), generator=generator)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def _clicks(batch: int, size: DlrmSize, generator: Generator) -> Batch:
    lookups = batch * size.pooling
    # Few rows take most lookups: uniform to the fourth power, about Zipf with exponent 0.75.
    skewed = torch.rand(size.tables, lookups, generator=generator) ** 4
    indices = (skewed * size.rows).long()
    offsets = torch.arange(0, lookups, size.pooling)
    clicks = torch.randint(2, (batch,), generator=generator).float()
    return torch.randn(batch, 13, generator=generator), indices, offsets, clicks


def _token_loss(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def _mlp(batch: int, widths: tuple[int, ...], optimizer: Optimizer) -> Recipe:
    data = partial(_vectors, batch, widths[0], widths[-1])
    return Recipe(partial(Mlp, widths), data, F.cross_entropy, optimizer)


def _cnn(batch: int, side: int, channels: tuple[int, ...], optimizer: Optimizer) -> Recipe:
    data = partial(_images, batch, side)
    return Recipe(partial(ResNet, channels), data, F.cross_entropy, optimizer)


def _transformer(
    batch: int, size: TransformerSize, fused: bool, optimizer: Optimizer = _adamw
) -> Recipe:
    model = partial(Transformer, size, fused)
    return Recipe(model, partial(_tokens, batch, size), _token_loss, optimizer)


def _dlrm(batch: int, size: DlrmSize) -> Recipe:
    data = partial(_clicks, batch, size)
    loss = F.binary_cross_entropy_with_logits
    return Recipe(partial(Dlrm, size), data, loss, _sgd, log_loss=True)


def _inference(recipe: Recipe) -> Recipe:
    return replace(recipe, loss=None)


_TINY = TransformerSize(layers=2, hidden=128, heads=4, vocabulary=1000, length=64)
_SMALL = TransformerSize(layers=4, hidden=256, heads=8, vocabulary=2000, length=64)
_MEDIUM = TransformerSize(layers=2, hidden=512, heads=8, vocabulary=4000, length=128)
_LONG = TransformerSize(layers=2, hidden=128, heads=4, vocabulary=1000, length=512)
_BAGS_SMALL = DlrmSize(8, 10_000, 16, 1, bottom=(64,), top=(64, 32))
_BAGS_MEDIUM = DlrmSize(16, 50_000, 32, 8, bottom=(256, 128), top=(256, 128))
_BAGS_LARGE = DlrmSize(26, 50_000, 64, 4, bottom=(512, 256), top=(512, 256))

_add("bert-tiny", "bert", "batch 8 x 64, 2 layers of 128", _transformer(8, _TINY, False))
_add("bert-small", "bert", "batch 4 x 64, 4 layers of 256", _transformer(4, _SMALL, False))
_add("bert-wide", "bert", "batch 2 x 128, 2 layers of 512", _transformer(2, _MEDIUM, False))
_add("bert-xlong", "bert", "batch 1 x 512, 2 layers of 128", _transformer(1, _LONG, False, _adam))
_add("gpt-tiny", "gpt", "batch 4 x 64, 2 layers of 128", _transformer(4, _TINY, True))
_add("gpt-small", "gpt", "batch 8 x 64, 4 layers of 256", _transformer(8, _SMALL, True))
_add("gpt-medium", "gpt", "batch 4 x 128, 2 layers of 512", _transformer(4, _MEDIUM, True))
_add("gpt-long", "gpt", "batch 2 x 512, 2 layers of 128", _transformer(2, _LONG, True, _sgd))
_add("cnn-small", "cnn", "batch 16 of 32 x 32", _cnn(16, 32, (16, 32, 64), _sgd))
_add("cnn-medium", "cnn", "batch 16 of 64 x 64", _cnn(16, 64, (32, 64, 128, 256), _momentum))
_add("cnn-wide", "cnn", "batch 4 of 96 x 96", _cnn(4, 96, (64, 128, 256), _momentum))
_add("mlp-small", "mlp", "batch 64, 256-512-512-10", _mlp(64, (256, 512, 512, 10), _sgd))
_add("mlp-medium", "mlp", "batch 256, 1024 x 3", _mlp(256, (512, 1024, 1024, 1024, 10), _adam))
_add("mlp-large", "mlp", "batch 128, 2048 x 3", _mlp(128, (1024, 2048, 2048, 2048, 100), _adamw))
_add("mlp-deep", "mlp", "batch 32, 24 layers of 128", _mlp(32, (128,) * 24 + (10,), _momentum))
_add("dlrm-small", "dlrm", "batch 128, 8 tables of 10,000 x 16", _dlrm(128, _BAGS_SMALL))
_add("dlrm-medium", "dlrm", "batch 256, 16 tables of 50,000 x 32", _dlrm(256, _BAGS_MEDIUM))
_add("dlrm-large", "dlrm", "batch 512, 26 tables of 50,000 x 64", _dlrm(512, _BAGS_LARGE))
_add("ddp-mlp", "ddp", "as mlp-medium, 2 ranks", WORKLOADS["mlp-medium"].recipe, ranks=2)
_add("ddp-bert", "ddp", "as bert-small, 2 ranks", WORKLOADS["bert-small"].recipe, ranks=2)
for _name in ("bert-small", "gpt-medium", "cnn-medium", "mlp-medium", "dlrm-medium"):
    _base = WORKLOADS[_name]
    _add(f"infer-{_name}", "inference", _base.description, _inference(_base.recipe))
