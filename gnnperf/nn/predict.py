"""Serving: device work of a batch to times with intervals, numpy in and out."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnperf.errors import InputError
from gnnperf.features import Measurement, find_variant, make_rows, ratios, variant_name
from gnnperf.hardware import Hardware
from gnnperf.nn.calibration import Calibration
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.model import Edges, KernelNetwork
from gnnperf.nn.stored import build, identity, read_checkpoint
from gnnperf.ops import OpBatch

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

CHUNK = 32_768
COVERAGE = 0.9
UNTRAINED = "ops are of a kind without training data"


@dataclass(frozen=True, eq=False)
class RowEdges:
    """Edges between rows of a batch, as the network reads them."""

    source: I64
    """[e] row that comes first"""
    destination: I64
    """[e] row that follows, or that reads what the source wrote"""
    data: NDArray[np.bool_]
    """[e] True: a tensor flows; False: stream order"""

    def tensors(self) -> Edges:
        """Both directions, each a relation of its own."""
        ends = np.stack([self.source, self.destination])
        kind = 2 * self.data.astype(np.int64)
        index = np.concatenate([ends, ends[::-1]], axis=1)
        return Edges(
            torch.from_numpy(np.ascontiguousarray(index)),
            torch.from_numpy(np.concatenate([kind, kind + 1])),
        )


@dataclass(frozen=True, eq=False)
class OpPrediction:
    """[n] predicted times, microseconds."""

    time_us: F64
    low_us: F64
    high_us: F64
    coverage: float = COVERAGE
    """share of measured times that the intervals are meant to hold"""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class KernelModel:
    """A trained network that predicts device work."""

    network: KernelNetwork
    identity: str
    """start of the checkpoint's sha256"""
    card: dict[str, Any]
    calibration: Calibration | None = None
    edge_free: bool = False

    @staticmethod
    def load(path: str | Path) -> "KernelModel":
        """Read a checkpoint (a file, or a folder that holds `model.ckpt`).

        Raises:
            InputError: No checkpoint of gnnperf, or a newer format.
        """
        content = read_checkpoint(path)
        head = content["gnnperf"]
        return KernelModel(build(content, path), identity(path), head.get("card", {}))

    @property
    def uses_edges(self) -> bool:
        """Whether it was trained on graphs; the messages of others mean nothing."""
        data = self.card.get("config", {}).get("data", {})
        return bool(data.get("graphs") or data.get("synthetic"))

    def calibrated(self, path: str | Path) -> "KernelModel":
        """The model with a file of `gnnperf calibrate`.

        Raises:
            InputError: No such file, or it was made with another checkpoint.
        """
        calibration = Calibration.load(path)
        if calibration.checkpoint != self.identity:
            raise InputError(
                f"made with checkpoint {calibration.checkpoint}, not with {self.identity}",
                path=path,
                remedy="calibrate again with this checkpoint",
            )
        return replace(self, calibration=calibration)

    def without_edges(self) -> "KernelModel":
        """The network of the same size that was trained without messages."""
        return replace(self, edge_free=True)

    def predict(  # noqa: PLR0913 (keywords that say how a time is measured)
        self,
        batch: OpBatch,
        hardware: Hardware,
        *,
        edges: RowEdges | None = None,
        source: str | None = None,
        framework: str | None = None,
        kernel_source: str | None = None,
        launch_included: bool = False,
        in_model: bool = False,
    ) -> OpPrediction:
        """Predict [n] rows of device work.

        Args:
            batch: The work.
            hardware: The device.
            edges: Between the rows; rows without edges are predicted alone.
            source: Where a measurement would come from: neusight, aiconfigurator, trace, ...
            framework: pytorch, vllm, ... if known.
            kernel_source: Implementation, if known.
            launch_included: Whether the launch call and gap are inside the time.
            in_model: Whether the ops run inside a model.
        """
        name = variant_name(source or "", framework or "", kernel_source or "")
        variant = find_variant(self.network.config.variants, name)
        parts = [
            self._chunk(batch.take(rows), hardware, here, (launch_included, in_model, variant))
            for rows, here in _chunks(len(batch), edges)
        ]
        if not parts:
            empty = np.zeros(0)
            return OpPrediction(empty, empty, empty)
        time, half, untrained = (np.concatenate(column) for column in zip(*parts, strict=True))
        unseen = int(untrained.sum())
        warnings = (
            (f"{unseen} of {len(batch)} {UNTRAINED}: their time is the analytic prior's",)
            if unseen
            else ()
        )
        if self.calibration is not None and self.calibration.hardware != hardware.name:
            other = f"the calibration is of {self.calibration.hardware}, not of {hardware.name}"
            warnings = (*warnings, f"{other}: it is not used")
        low, high = np.exp(time - half), np.exp(time + half)
        return OpPrediction(np.exp(time), low, high, COVERAGE, warnings)

    def trained_on(self, batch: OpBatch, hardware: Hardware) -> NDArray[np.bool_]:
        """[n] whether training held rows of the kind of work that each row is on the device."""
        n = len(batch)
        rows = make_rows(
            batch, [hardware], np.zeros(n, np.int64), Measurement.same(n, False, False)
        )
        slot: NDArray[np.int64] = self.network.slots_of(Inputs.of(rows, np.array([-1]))).numpy()
        return slot >= 0

    def _chunk(
        self, batch: OpBatch, hardware: Hardware, edges: Edges, how: tuple[bool, bool, int]
    ) -> tuple[F64, F64, NDArray[np.bool_]]:
        launch_included, in_model, variant = how
        n = len(batch)
        measured = Measurement.same(n, launch_included, in_model, variant)
        rows = make_rows(batch, [hardware], np.zeros(n, np.int64), measured)
        devices = self.network.config.devices
        known = devices.index(hardware.name) if hardware.name in devices else -1
        x = Inputs.of(rows, np.array([known]))
        with torch.inference_mode():
            found = self.network(x, torch.from_numpy(ratios(rows)), edges, self.edge_free)
            log_time, half, terms = found
            untrained = self.network.slots_of(x) < 0
            if self.calibration is not None and self.calibration.hardware == hardware.name:
                log_time = log_time + self.calibration.shift(x, terms)
        return log_time.double().numpy(), half.double().numpy(), untrained.numpy()


def _chunks(n: int, edges: RowEdges | None) -> Iterator[tuple[I64, Edges]]:
    """Pieces of the batch; with edges all at once, since any row may matter to any other."""
    if edges is not None and len(edges.source):
        yield np.arange(n), edges.tensors()
        return
    for start in range(0, n, CHUNK):
        yield np.arange(start, min(start + CHUNK, n)), Edges.none()
