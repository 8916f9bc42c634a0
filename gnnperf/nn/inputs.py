"""Rows of device work as tensors."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnperf.features import COLUMN, Rows


@dataclass(frozen=True, eq=False)
class Inputs:
    """[n] rows as the priors read them; units as in `gnnperf.features.Rows`."""

    family: Tensor
    dims: Tensor
    """[n, MAX_DIMS]"""
    hardware: Tensor
    """[n, len(HARDWARE_COLUMNS)]"""
    matrix: Tensor
    """[n] bool"""
    peak: Tensor
    element: Tensor
    flops: Tensor
    read: Tensor
    written: Tensor
    items: Tensor
    variant: Tensor
    """[n] index into the variants known, -1 for none"""
    launch_included: Tensor
    in_model: Tensor
    device: Tensor
    """[n] index into the devices whose effects are known, -1 for none"""

    def figure(self, name: str) -> Tensor:
        """[n] a column of the hardware."""
        return self.hardware[:, COLUMN[name]]

    def take(self, rows: Tensor) -> "Inputs":
        """The given rows."""
        return Inputs(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def __len__(self) -> int:
        return len(self.family)

    @staticmethod
    def of(rows: Rows, device: NDArray[np.int64]) -> "Inputs":
        """Rows as tensors.

        Args:
            rows: [n] rows.
            device: [d] for every device of `rows`: its index among those with known effects, or -1.
        """
        columns = {
            f.name: torch.from_numpy(np.ascontiguousarray(getattr(rows, f.name)))
            for f in fields(Inputs)
            if f.name not in ("hardware", "device")
        }
        return Inputs(
            hardware=torch.from_numpy(rows.hardware[rows.device]),
            device=torch.from_numpy(device[rows.device].astype(np.int64)),
            **columns,
        )

    @staticmethod
    def join(parts: "list[Inputs]") -> "Inputs":
        """One set of rows after the other."""
        names = [f.name for f in fields(Inputs)]
        return Inputs(**{n: torch.cat([getattr(part, n) for part in parts]) for n in names})
