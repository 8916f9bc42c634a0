"""A recipe (network, data, loss, optimizer) and the step made of it: one iteration, again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

import torch
from torch import Tensor, nn

Step = Callable[[], None]
Batch = tuple[Tensor, ...]
Optimizer = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]

BATCHES = 4
"""Different batches that the iterations go through in turn."""


@dataclass(frozen=True)
class Recipe:
    """What is run; sizes are bound in already."""

    model: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    """random inputs, the last of them the target"""
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    """None: inference"""
    optimizer: Optimizer = field(default=partial(torch.optim.SGD, lr=0.01))
    log_loss: bool = False
    """whether the host reads the loss in each step"""


def make_step(recipe: Recipe, device: torch.device, seed: int, ranks: int = 1) -> Step:
    """A function that runs one iteration of a freshly made network.

    The same seed gives the same network and data. With several ranks the process group must
    have been initialized; each rank draws its own data. On a GPU every step copies its batch
    from pinned memory.
    """
    rank = torch.distributed.get_rank() if ranks > 1 else 0
    torch.manual_seed(seed)
    model = recipe.model().to(device)
    generator = torch.Generator().manual_seed(seed + 1 + rank)
    batches = [recipe.batch(generator) for _ in range(BATCHES)]
    if device.type == "cuda":
        batches = [tuple(t.pin_memory() for t in batch) for batch in batches]
    turn = cycle(batches)
    if recipe.loss is None:
        return partial(_infer, model.eval(), turn, device)
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = recipe.optimizer(list(model.parameters()))
    return partial(_train, model.train(), turn, device, optimizer, recipe)


def _train(
    model: nn.Module,
    turn: Iterator[Batch],
    device: torch.device,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
) -> None:
    *inputs, target = (t.to(device, non_blocking=True) for t in next(turn))
    optimizer.zero_grad(set_to_none=True)
    if recipe.loss is None:
        raise ValueError("a recipe without a loss is not trained")
    loss = recipe.loss(model(*inputs), target)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    if recipe.log_loss:
        loss.item()


def _infer(model: nn.Module, turn: Iterator[Batch], device: torch.device) -> None:
    *inputs, _ = (t.to(device, non_blocking=True) for t in next(turn))
    with torch.inference_mode():
        model(*inputs)
