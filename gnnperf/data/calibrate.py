"""Calibration of a model on measured rows of one device."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from gnnperf.data.samples import samples_of
from gnnperf.data.tables import KernelTable
from gnnperf.errors import InputError
from gnnperf.features import ratios
from gnnperf.hardware import Hardware, find_hardware
from gnnperf.nn.calibration import Calibration, calibration_terms, fit_head
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.model import Edges
from gnnperf.nn.predict import KernelModel
from gnnperf.nn.prior import KINDS, kind_of

MIN_ROWS = 5


@dataclass(frozen=True)
class Calibrated:
    """A calibration and its median absolute percentage error on the rows that it was fitted to."""

    calibration: Calibration
    before: float
    after: float


def calibrate_on(
    model: KernelModel,
    table: KernelTable,
    hardware: Hardware,
    ops: int | None = None,
    seed: int = 0,
) -> Calibrated:
    """Fit one head for each kind of work among the measured rows of a device.

    Args:
        model: The network, frozen.
        table: Measured rows; those of other devices are left aside.
        hardware: The device.
        ops: Use at most so many rows, drawn evenly over the reported families.
        seed: Of the draw.

    Raises:
        InputError: Fewer than 5 rows of the device.
    """
    same = [n for n in table.device.names if (h := find_hardware(n)) and h.name == hardware.name]
    table = table.take(np.flatnonzero(table.device.mask(*same)))
    if len(table) < MIN_ROWS:
        raise InputError(
            f"{len(table)} rows of {hardware.name}", field="table", remedy=f"give >= {MIN_ROWS}"
        )
    config = model.network.config
    samples = samples_of(table, config.variants)
    if ops is not None:
        samples = samples.take(_drawn(samples.label, ops, seed))
    known = config.devices.index(hardware.name) if hardware.name in config.devices else -1
    x = Inputs.of(samples.rows, np.full(len(samples.devices), known))
    with torch.inference_mode():
        generic = torch.from_numpy(ratios(samples.rows))
        log_time, _, terms = model.network(x, generic, Edges.none())
    error = samples.log_time.astype(np.float64) - log_time.double().numpy()
    head_terms = calibration_terms(terms).double().numpy()
    kind = kind_of(x).numpy()
    heads, rows = {}, {}
    for index in np.unique(kind).tolist():
        chosen = kind == index
        heads[KINDS[index]] = fit_head(head_terms[chosen], error[chosen])
        rows[KINDS[index]] = int(chosen.sum())
    found = Calibration(hardware.name, model.identity, heads, rows)
    shift = replace(found).shift(x, terms).double().numpy()
    return Calibrated(found, _median_ape(error), _median_ape(error - shift))


def _median_ape(error: NDArray[np.float64]) -> float:
    return float(100 * np.median(np.abs(np.expm1(-error))))


def _drawn(label: NDArray[np.int64], ops: int, seed: int) -> NDArray[np.int64]:
    """At most `ops` rows, as many of each family as there are."""
    order = np.random.default_rng(seed).permutation(len(label))
    seen = np.argsort(label[order], kind="stable")
    starts = np.searchsorted(label[order][seen], label[order][seen])
    rank = np.empty(len(label), np.int64)
    rank[seen] = np.arange(len(label)) - starts
    return np.sort(order[np.argsort(rank, kind="stable")[:ops]])
