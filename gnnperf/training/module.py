"""Lightning module: the loss of the residual networks and their optimizer."""

from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnnperf.data.rows import of_owners
from gnnperf.data.steps import StepRows
from gnnperf.nn.model import KernelNetwork
from gnnperf.nn.network import ResidualNetwork
from gnnperf.training.config import TrainGroup

SMOOTH = 0.03
"""below this error of the log time the loss is quadratic"""


def step_loss(net: ResidualNetwork, steps: Sequence[StepRows]) -> Tensor:
    """Mean over steps of the (smooth) absolute error of the log of their time."""
    losses = []
    for step in steps:
        rows = step.rows
        residual, _ = net(rows.features, rows.slot, rows.edges.index, rows.edges.kind)
        error = step.log_time(torch.exp(rows.log_prior + residual)) - step.log_step
        losses.append(torch.sqrt(error**2 + SMOOTH**2))
    return torch.stack(losses).mean()


class ResidualModule(pl.LightningModule):
    """Trains every member and the edge-free network on the same batches; the prior is frozen.

    Beside the loss on the time of each row stands, where asked for, that on the time of whole
    steps: its gradient reaches the rows through the timeline, along the critical path.
    """

    def __init__(
        self,
        network: KernelNetwork,
        config: TrainGroup,
        total_steps: int,
        steps: Sequence[StepRows] = (),
    ) -> None:
        super().__init__()
        self.network = network
        self.settings, self.total_steps = config, total_steps
        self.steps = steps if config.step_weight > 0 else ()
        self.network.prior.requires_grad_(False)

    def training_step(self, batch: Data, index: int) -> Tensor:
        """Sum over the networks of the weighted loss."""
        networks = (*self.network.members, self.network.edge_free)
        losses = [self._loss(net, batch) for net in networks]
        loss: Tensor = torch.stack(losses).sum()
        if self.steps:
            drawn = self.drawn_steps(self.global_step)
            whole = torch.stack([step_loss(net, drawn) for net in networks])
            loss = loss + self.settings.step_weight * whole.sum()
            self.log("loss_steps", whole[0].detach(), batch_size=len(drawn))
        self.log("loss", losses[0].detach(), prog_bar=True, batch_size=len(batch.slot))
        self.log("loss_edge_free", losses[-1].detach(), batch_size=len(batch.slot))
        return loss

    def _loss(self, net: ResidualNetwork, batch: Data) -> Tensor:
        noisy = batch.x + self.settings.noise * torch.randn_like(batch.x)
        residual, spread = net(noisy, batch.slot, batch.edge_index, batch.edge_type)
        predicted, spread = of_owners(batch, residual, spread)
        error = predicted - batch.log_time
        fit = torch.sqrt(error**2 + SMOOTH**2)
        width = error.detach().abs() / spread + torch.log(spread)
        total = batch.weight.sum()
        fitted: Tensor = (batch.weight * (fit + 0.1 * width)).sum() / total
        size: Tensor = residual.square().mean()
        return fitted + self.settings.shrink * size

    def drawn_steps(self, number: int) -> list[StepRows]:
        """The steps of a batch; depends on its number alone, so that a run can resume."""
        generator = torch.Generator().manual_seed(number)
        weights = torch.tensor([step.weight for step in self.steps])
        count = self.settings.steps_per_batch
        picks = torch.multinomial(weights, count, replacement=True, generator=generator)
        return [self.steps[i] for i in picks.tolist()]

    def configure_optimizers(self) -> Any:  # noqa: ANN401
        """AdamW with one cycle over the whole run."""
        chosen = [p for p in self.network.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(
            chosen, self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.settings.learning_rate, total_steps=self.total_steps
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }
