"""What every kind of data needs to be scored: the predictors, the settings, the scores so far."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gnnperf.api.predictor import Predictor
from gnnperf.data.importers import ImportReport
from gnnperf.data.splits import device_group
from gnnperf.evaluation.kernel_models import AnalyticKernels, KernelPredictor
from gnnperf.evaluation.networks import EACH, Networks
from gnnperf.evaluation.scores import IterationScore, KernelScores
from gnnperf.hardware import Hardware

SHORT_US = 50.0
"""Rows of a GPU timed with their launch and shorter than this show the host, not the kernel."""


@dataclass(frozen=True)
class Settings:
    """What `evaluate` is asked for."""

    engine: str = "gnn"
    checkpoint: Path | None = None
    leave_out: str | None = None
    """group of devices: only its rows are scored, by a network that never saw them; `each`: all
    rows, each by the network that never saw its group"""
    limit: int | None = None
    """at most that many rows of each table, drawn evenly"""
    split: str | None = None
    """only rows of this split of their source (dev_val: weight shapes that are not trained on)"""
    min_us: float = SHORT_US
    """shortest row that is scored where the launch is inside the time"""


@dataclass
class Context:
    """One run of `evaluate`."""

    settings: Settings
    predictor_of: Callable[[Hardware], Predictor]
    """what predicts steps on a device"""
    kernels: KernelPredictor
    mlp: KernelPredictor | None = None
    """an edge-free network of the same size, where the checkpoint holds one"""
    seen_devices: frozenset[str] | None = None
    """devices that the network was trained on; None for formulas"""
    networks: Networks | None = None
    """None for formulas"""
    analytic: KernelPredictor = field(default_factory=AnalyticKernels)
    tell: Callable[[str, int], None] = lambda what, rows: None
    """called with what is being scored and the rows that are done"""
    scores: KernelScores = field(default_factory=KernelScores)
    iterations: list[IterationScore] = field(default_factory=list)
    collectives: list[IterationScore] = field(default_factory=list)
    class_sums: list[IterationScore] = field(default_factory=list)
    """all ops of one family of one labelled model, summed, beside published sums"""
    unscored: Counter[str] = field(default_factory=Counter)
    """iterations without a score, by reason"""
    reports: list[ImportReport] = field(default_factory=list)

    def was_seen(self, device: str) -> bool | None:
        """Whether the network was trained on rows of a device; None for formulas."""
        return None if self.seen_devices is None else device in self.seen_devices

    def wants(self, device: str) -> bool:
        """Whether a device's rows are scored: all, or those of the group left out."""
        left_out = self.settings.leave_out
        return left_out in (None, EACH) or device_group(device) == left_out
