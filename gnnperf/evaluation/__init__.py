"""How far predictions can be trusted: scores on measured kernels and iterations of every layout."""

from gnnperf.evaluation.context import Settings
from gnnperf.evaluation.run import Evaluation, evaluate

__all__ = ["Evaluation", "Settings", "evaluate"]
