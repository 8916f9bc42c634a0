"""What the command line and notebooks use: predict, simulate, train."""

from pathlib import Path
from typing import TYPE_CHECKING

from gnnperf.api.prediction import Prediction
from gnnperf.api.predictor import Options, Predictor, default_checkpoint
from gnnperf.graph import ExecutionGraph, Job
from gnnperf.hardware import Hardware
from gnnperf.traces import read_job, read_trace

if TYPE_CHECKING:
    from gnnperf.training import TrainConfig

__all__ = [
    "Options",
    "Prediction",
    "Predictor",
    "default_checkpoint",
    "read_job",
    "read_trace",
    "simulate",
    "train",
]


def train(config: "TrainConfig") -> Path:
    """Train a network; returns the folder of its checkpoint. See `gnnperf.training.train`."""
    from gnnperf.training import train as fit  # Lightning is not needed before

    return fit(config)


def simulate(graph: ExecutionGraph | Job, hardware: str | Hardware | None = None) -> Prediction:
    """Predict a step with the analytic engine alone; see `Predictor.predict`."""
    return Predictor.of_engine("analytic").predict(graph, hardware)
