"""Lightning module: the loss of the residual networks and their optimizer."""

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnnperf.data.rows import of_owners
from gnnperf.nn.model import KernelNetwork
from gnnperf.nn.network import ResidualNetwork
from gnnperf.training.config import TrainGroup

SMOOTH = 0.03
"""below this error of the log time the loss is quadratic"""


class ResidualModule(pl.LightningModule):
    """Trains every member and the edge-free network on the same batches; the prior is frozen."""

    def __init__(self, network: KernelNetwork, config: TrainGroup, total_steps: int) -> None:
        super().__init__()
        self.network = network
        self.settings, self.total_steps = config, total_steps
        self.network.prior.requires_grad_(False)

    def training_step(self, batch: Data, index: int) -> Tensor:
        """Sum over the networks of the weighted loss."""
        losses = [self._loss(net, batch) for net in (*self.network.members, self.network.edge_free)]
        loss: Tensor = torch.stack(losses).sum()
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
