"""gnnperf: how long a training step takes on GPUs that you may not own.

The public names are loaded when they are first used, so that importing the package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gnnperf.api import Prediction, Predictor, read_job, read_trace, simulate, train
    from gnnperf.errors import GnnperfError, InputError
    from gnnperf.graph import ExecutionGraph, Job
    from gnnperf.hardware import get_hardware
    from gnnperf.training import load_config

__all__ = [
    "ExecutionGraph",
    "GnnperfError",
    "InputError",
    "Job",
    "Prediction",
    "Predictor",
    "__version__",
    "get_hardware",
    "load_config",
    "read_job",
    "read_trace",
    "simulate",
    "train",
]

_HOMES = {
    "ExecutionGraph": "gnnperf.graph",
    "GnnperfError": "gnnperf.errors",
    "InputError": "gnnperf.errors",
    "Job": "gnnperf.graph",
    "Prediction": "gnnperf.api",
    "Predictor": "gnnperf.api",
    "get_hardware": "gnnperf.hardware",
    "load_config": "gnnperf.training",
    "read_job": "gnnperf.traces",
    "read_trace": "gnnperf.traces",
    "simulate": "gnnperf.api",
    "train": "gnnperf.api",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gnnperf' has no attribute {name!r}")
