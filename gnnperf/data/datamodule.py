"""Lightning's view of the training rows."""

import pytorch_lightning as pl
from torch.utils.data import DataLoader, IterableDataset
from torch_geometric.data import Data

from gnnperf.data.rows import Batches


class _Epoch(IterableDataset[Data]):
    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class RowsModule(pl.LightningDataModule):
    """Batches whose order depends on the seed and the epoch alone, so that a run can resume."""

    def __init__(self, batches: Batches) -> None:
        super().__init__()
        self.batches = batches

    def train_dataloader(self) -> DataLoader[Data]:
        """The batches of the current epoch."""
        if self.trainer is not None:
            self.batches.epoch = self.trainer.current_epoch
        return DataLoader(_Epoch(self.batches), batch_size=None, num_workers=0)
