"""Fitting the analytic prior: gradient descent through the whole expression, kind by kind."""

from collections.abc import Callable

import torch
from torch import Tensor

from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior import AnalyticPrior, kind_of
from gnnperf.training.config import PriorGroup

SMOOTH = 0.03
"""below this error of the log time the loss is quadratic"""


def fit_prior(
    prior: AnalyticPrior,
    x: Inputs,
    measured: tuple[Tensor, Tensor],
    config: PriorGroup,
    seed: int,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Fit the coefficients and the effects of devices and implementations, in place.

    Args:
        prior: The prior at its starting values.
        x: [n] rows.
        measured: [n] log of us, and [n] how often a row is drawn.
        config: Steps, batch size, learning rate.
        seed: Of the draws.
        tell: Called with the steps done and their number.
    """
    log_time, weight = measured
    kind = kind_of(x)
    present = torch.unique(kind).tolist()
    for place, index in enumerate(present):
        rows = torch.nonzero(kind == index).squeeze(1)
        part, target = x.take(rows), log_time[rows]
        generator = torch.Generator().manual_seed(seed * 1009 + index)
        module = prior.of_kind(index)
        optimizer = torch.optim.Adam(module.parameters(), config.learning_rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, config.learning_rate, total_steps=config.steps
        )
        drawn = torch.multinomial(
            weight[rows], config.steps * config.batch_size, replacement=True, generator=generator
        ).view(config.steps, -1)
        for step in range(config.steps):
            error = module.terms(part.take(drawn[step])).log_time - target[drawn[step]]
            loss = torch.sqrt(error**2 + SMOOTH**2).mean() + config.penalty * module.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            tell(place * config.steps + step + 1, len(present) * config.steps)
