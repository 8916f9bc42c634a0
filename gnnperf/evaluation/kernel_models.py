"""What predicts the time of kernels for `evaluate`: formulas or a network, behind one protocol."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gnnperf.analytic import device_time
from gnnperf.api.engines import ANALYTIC_SPREAD
from gnnperf.api.predictor import Predictor
from gnnperf.data.model_graphs import PieceEdges
from gnnperf.errors import InputError
from gnnperf.evaluation.scores import F64
from gnnperf.hardware import Hardware
from gnnperf.ops import OpBatch


@dataclass(frozen=True)
class How:
    """How the rows of a batch were measured."""

    source: str = ""
    framework: str = ""
    kernel_source: str = ""
    launch_included: bool = False
    in_model: bool = False


@dataclass(frozen=True, eq=False)
class Predicted:
    """Times and their intervals, [n] each, microseconds."""

    time_us: F64
    low_us: F64
    high_us: F64


class KernelPredictor(Protocol):
    """Predicts rows of device work."""

    def predict(
        self, batch: OpBatch, hardware: Hardware, how: How, edges: PieceEdges | None = None
    ) -> Predicted:
        """[n] times on a device, as measured in the way stated; `edges` join rows of a model."""
        ...


class AnalyticKernels:
    """Formulas alone; where the launch is inside the measured time, the device's is added."""

    def predict(
        self, batch: OpBatch, hardware: Hardware, how: How, edges: PieceEdges | None = None
    ) -> Predicted:
        """See `KernelPredictor`."""
        launch = hardware.launch_overhead_us if how.launch_included else 0.0
        us = device_time(batch, hardware).total_us + launch
        return Predicted(us, us / ANALYTIC_SPREAD, us * ANALYTIC_SPREAD)


class NetworkKernels:
    """Trained networks, by device; edges reach only one that was trained on graphs."""

    def __init__(
        self, predictor_of: Callable[[Hardware], Predictor], *, edge_free: bool = False
    ) -> None:
        self.predictor_of, self.edge_free = predictor_of, edge_free

    def predict(
        self, batch: OpBatch, hardware: Hardware, how: How, edges: PieceEdges | None = None
    ) -> Predicted:
        """See `KernelPredictor`."""
        from gnnperf.nn.predict import RowEdges

        model = self.predictor_of(hardware).model
        if model is None:
            raise InputError("the checkpoint holds no network of kernels")
        joined = None
        if edges is not None and model.uses_edges:
            joined = RowEdges(edges.source, edges.destination, edges.data)
        found = (model.without_edges() if self.edge_free else model).predict(
            batch,
            hardware,
            edges=joined,
            source=how.source,
            framework=how.framework,
            kernel_source=how.kernel_source,
            launch_included=how.launch_included,
            in_model=how.in_model,
        )
        return Predicted(
            np.asarray(found.time_us, np.float64),
            np.asarray(found.low_us, np.float64),
            np.asarray(found.high_us, np.float64),
        )
