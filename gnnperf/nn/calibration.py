"""A frozen network fitted to one device by a few measurements: a linear head on the prior's terms.

Bayesian linear regression of the log error on [1, launch share, compute share, memory share,
throttle, cache hit] for each kind of work, with a normal prior; so five points move little more
than the constant and fifty determine them all.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnperf.errors import InputError
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.prior import KINDS, kind_of

F64 = NDArray[np.float64]
FORMAT = 1
PRIOR_DEVIATION = (0.12, 0.15, 0.1, 0.1, 0.3, 0.2)
NOISE = 0.08


def calibration_terms(terms: Tensor) -> Tensor:
    """[n, 6] what the head sees of `features.TERMS`."""
    shares = torch.exp(terms[:, 1:4]).clamp(max=1.5)
    return torch.cat([torch.ones(len(terms), 1), shares, terms[:, 5:7]], dim=1)


@dataclass(frozen=True)
class Calibration:
    """Heads of one device."""

    hardware: str
    checkpoint: str
    """identity of the network that it belongs to"""
    heads: dict[str, tuple[float, ...]]
    """kind of work -> 6 coefficients"""
    rows: dict[str, int]
    """measured ops of each kind"""

    def shift(self, x: Inputs, terms: Tensor) -> Tensor:
        """[n] what to add to the log time."""
        table = torch.zeros(len(KINDS), len(PRIOR_DEVIATION))
        for kind, values in self.heads.items():
            table[KINDS.index(kind)] = torch.tensor(values)
        return (calibration_terms(terms) * table[kind_of(x)]).sum(1)

    def save(self, path: str | Path) -> Path:
        """Write a small JSON file."""
        heads = {kind: [round(v, 4) for v in values] for kind, values in self.heads.items()}
        content = {
            "gnnperf_calibration": FORMAT,
            "hardware": self.hardware,
            "checkpoint": self.checkpoint,
            "heads": heads,
            "rows": self.rows,
        }
        Path(path).write_text(json.dumps(content) + "\n", encoding="utf-8")
        return Path(path)

    @staticmethod
    def load(path: str | Path) -> "Calibration":
        """Read what `save` wrote.

        Raises:
            InputError: No such file, another kind of file, or a newer format.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content["gnnperf_calibration"] > FORMAT:
                raise InputError("a newer format", path=path, remedy="update gnnperf")
            heads = {
                str(kind): tuple(float(v) for v in values)
                for kind, values in content["heads"].items()
                if kind in KINDS and len(values) == len(PRIOR_DEVIATION)
            }
            return Calibration(content["hardware"], content["checkpoint"], heads, content["rows"])
        except OSError as why:
            raise InputError(why.strerror or str(why), path=path) from why
        except (ValueError, KeyError, TypeError, AttributeError) as why:
            raise InputError(
                f"no calibration of gnnperf ({type(why).__name__})",
                path=path,
                remedy="make one with `gnnperf calibrate`",
            ) from why


def fit_head(terms: F64, error: F64) -> tuple[float, ...]:
    """Posterior mean of the head's coefficients.

    Args:
        terms: [n, 6] of `calibration_terms`.
        error: [n] log of measured over predicted.
    """
    precision = np.diag(1 / np.square(PRIOR_DEVIATION)) + terms.T @ terms / NOISE**2
    mean = np.linalg.solve(precision, terms.T @ error / NOISE**2)
    return tuple(float(v) for v in mean)
