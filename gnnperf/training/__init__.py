"""Training runs: config, stages, scores."""

from gnnperf.training.config import TrainConfig, load_config
from gnnperf.training.fit import train

__all__ = ["TrainConfig", "load_config", "train"]
