"""Errors on rows that were not trained on, and the intervals that they justify."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnperf.data.graphs import graph_rows
from gnnperf.data.model_graphs import ModelGraph
from gnnperf.data.rows import TrainRows, of_owners
from gnnperf.hardware import Hardware
from gnnperf.nn.model import KernelNetwork

F32 = NDArray[np.float32]
COVERAGE = 0.9
SHORT_US = 50.0
"""rows timed with their launch are scored from this time on"""
CHUNK = 65_536


@dataclass(frozen=True, eq=False)
class Errors:
    """[n] rows: log of predicted over measured, and the spread the network gave."""

    prior: F32
    edge_free: F32
    network: F32
    spread: F32


def errors_of(network: KernelNetwork, rows: TrainRows, trust: Tensor) -> Errors:
    """Errors of rows that are measured times of their own.

    Args:
        network: The network.
        rows: [n] rows.
        trust: [n] share of the residual that counts (`KernelNetwork.trust`).
    """
    network.eval()
    parts: list[list[F32]] = [[], [], [], []]
    with torch.inference_mode():
        for index in torch.arange(len(rows.slot)).split(CHUNK):
            part = rows.take(index)
            base, share = part.log_prior - part.log_time, trust[index]
            plain, _ = network.residuals(part.features, part.slot, part.edges, edge_free=True)
            residual, spread = network.residuals(part.features, part.slot, part.edges)
            for place, value in zip(
                parts, (base, base + share * plain, base + share * residual, spread), strict=True
            ):
                place.append(value.numpy())
    return Errors(*(np.concatenate(p) if p else np.zeros(0, np.float32) for p in parts))


def model_errors(
    network: KernelNetwork, graphs: Sequence[tuple[ModelGraph, Hardware]]
) -> list[dict[str, Any]]:
    """Median error of the ops of labelled models by device and family, each op as one time.

    Args:
        network: Trained without the devices of the graphs.
        graphs: Labelled models and their device.
    """
    found: dict[tuple[str, str], list[F32]] = {}
    network.eval()
    for graph, hardware in graphs:
        rows = graph_rows(network, graph, hardware)
        data = rows.data()
        inside = torch.ones_like(rows.slot)
        trust = network.trust(-inside, inside, rows.slot)
        with torch.inference_mode():
            errors = [rows.log_prior * 0]
            for edge_free in (True, False):
                r, _ = network.residuals(rows.features, rows.slot, rows.edges, edge_free)
                errors.append(trust * r)
            by_op = torch.stack([of_owners(data, r, r)[0] - rows.log_time for r in errors]).numpy()
        for label in set(graph.labels) - {""}:
            chosen = np.array([name == label for name in graph.labels])
            chosen &= graph.duration_us >= SHORT_US
            if chosen.any():
                found.setdefault((hardware.name, label), []).append(by_op[:, chosen])
    result = []
    for (device, label), parts in sorted(found.items()):
        prior, edge_free, messages = np.concatenate(parts, axis=1)
        values = {"prior": prior, "edge_free": edge_free, "network": messages}
        medians = {name: median_ape(v) for name, v in values.items()}
        result.append({"device": device, "label": label, "n": len(prior), **medians})
    return result


def median_ape(error: F32) -> float:
    """Median absolute percentage error of log errors."""
    return float(100 * np.median(np.abs(np.expm1(error))))


def figures(errors: Errors, chosen: NDArray[np.int64]) -> dict[str, float | int]:
    """Figures of some rows, in percent."""
    e = errors.network[chosen]
    return {
        "n": len(chosen),
        "prior": median_ape(errors.prior[chosen]),
        "edge_free": median_ape(errors.edge_free[chosen]),
        "network": median_ape(e),
        "mean": float(100 * np.mean(np.abs(np.expm1(e)))),
        "bias": float(100 * np.median(np.expm1(e))),
    }


def interval_factors(scores: list[dict[str, Any]], slots: tuple[str, ...]) -> dict[str, float]:
    """Per slot: what the spread is multiplied by, so that 90 % of left-out rows lie inside.

    Args:
        scores: One entry per (group left out, slot): `slot` and `quantiles`, the quantiles 0, 1,
            ..., 100 % of |error| / spread. Each group counts the same.
        slots: All slots; one without scores gets the median factor of the others.
    """
    grid = np.linspace(0.0, 1.0, 101)
    found: dict[str, float] = {}
    for slot in slots:
        parts = [np.asarray(s["quantiles"]) for s in scores if s["slot"] == slot]
        if not parts:
            continue
        pooled = np.concatenate([np.interp(grid, grid, part) for part in parts])
        found[slot] = float(np.quantile(pooled, COVERAGE))
    usual = float(np.median(list(found.values()))) if found else 2.0
    return {slot: found.get(slot, usual) for slot in slots}


def cross_coverage(scores: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Share of each group's rows inside intervals that the other groups alone have set.

    Args:
        scores: As for `interval_factors`, each entry with its `group`.

    Returns:
        An entry for each slot and group, in percent; a slot of a single group has none.
    """
    found = []
    for one in scores:
        others = [s for s in scores if s["slot"] == one["slot"] and s["group"] != one["group"]]
        if others:
            factor = interval_factors(others, (one["slot"],))[one["slot"]]
            covered = float(np.interp(factor, one["quantiles"], np.linspace(0, 100, 101)))
            entry = {"slot": one["slot"], "group": one["group"], "coverage": round(covered, 1)}
            found.append(entry)
    return found


def quantiles_by_slot(
    errors: Errors, slot: NDArray[np.int64], slots: tuple[str, ...]
) -> list[dict[str, Any]]:
    """For `interval_factors`: the quantiles of |error| / spread of each slot with 30 rows."""
    ratio = np.abs(errors.network) / errors.spread
    found = []
    for index, name in enumerate(slots):
        part = ratio[slot == index]
        if len(part) >= 30:
            values = np.quantile(part, np.linspace(0, 1, 101))
            found.append({"slot": name, "quantiles": [round(float(v), 4) for v in values]})
    return found
