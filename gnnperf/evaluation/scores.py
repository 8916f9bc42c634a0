"""Errors of predictions beside measurements, collected by device, family and type.

An error is relative to the measurement: |predicted - measured| / measured. Percentages are plain
numbers (8.2 is 8.2 %).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnperf.data.splits import device_group

F64 = NDArray[np.float64]
F32 = NDArray[np.float32]
Bool = NDArray[np.bool_]
COVERAGE = 0.9
"""share of measured times that the intervals are meant to hold"""


@dataclass(frozen=True)
class Key:
    """What the rows of one entry have in common."""

    device: str
    family: str
    dtype: str
    source: str
    """kernel table or model op"""
    data: str
    """neusight, aiconfigurator, pipeweave, gnnperf, ..."""
    part: str = ""
    """a part of a family that summaries show apart: attention's decode, a backward pass"""


@dataclass(frozen=True, eq=False)
class Errors:
    """Signed relative errors of rows; NaN where there is no such prediction."""

    model: F32
    covered: Bool
    analytic: F32
    rule: F32
    mlp: F32
    peers: dict[str, F32] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.model)

    def take(self, rows: NDArray[np.int64] | Bool) -> "Errors":
        """The given rows."""
        return Errors(
            self.model[rows],
            self.covered[rows],
            self.analytic[rows],
            self.rule[rows],
            self.mlp[rows],
            {name: values[rows] for name, values in self.peers.items()},
        )


def relative(predicted: F64, measured: F64) -> F32:
    """[n] (predicted - measured) / measured."""
    return ((predicted - measured) / measured).astype(np.float32)


def join(parts: Iterable[Errors]) -> Errors:
    """One after the other; a peer that a part lacks is NaN there."""
    all_parts = list(parts)
    names = list(dict.fromkeys(name for part in all_parts for name in part.peers))

    def column(name: str) -> F32:
        return np.concatenate([getattr(p, name) for p in all_parts])

    peers = {
        name: np.concatenate(
            [p.peers.get(name, np.full(len(p), np.nan, np.float32)) for p in all_parts]
        )
        for name in names
    }
    covered = np.concatenate([p.covered for p in all_parts])
    return Errors(
        column("model"), covered, column("analytic"), column("rule"), column("mlp"), peers
    )


def mape(errors: F32) -> float | None:
    """Mean absolute error in percent; None where there is none."""
    known = errors[~np.isnan(errors)]
    return _percent(float(np.abs(known, dtype=np.float64).mean())) if len(known) else None


def median_ape(errors: F32) -> float | None:
    """Median absolute error in percent; None where there is none."""
    known = errors[~np.isnan(errors)]
    return _percent(float(np.median(np.abs(known)))) if len(known) else None


def _percent(share: float) -> float:
    return round(100 * share, 4)


def figures(errors: Errors) -> dict[str, Any]:
    """The figures of one entry: of the model, of the analytic engine, of the rule, of peers."""
    return {
        "n": len(errors),
        "mape": mape(errors.model),
        "median_ape": median_ape(errors.model),
        "bias": _percent(float(errors.model.mean(dtype=np.float64))),
        "coverage": _percent(float(errors.covered.mean())),
        "analytic_mape": mape(errors.analytic),
        "analytic_median_ape": median_ape(errors.analytic),
        "mlp_mape": mape(errors.mlp),
        "mlp_median_ape": median_ape(errors.mlp),
        "rule_mape": mape(errors.rule),
        "rule_median_ape": median_ape(errors.rule),
        "peers": {
            name: {
                "n": int((~np.isnan(values)).sum()),
                "mape": mape(values),
                "median_ape": median_ape(values),
            }
            for name, values in sorted(errors.peers.items())
            if not np.isnan(values).all()
        },
    }


@dataclass
class KernelScores:
    """Errors of rows as they come, by key, and what was left out."""

    parts: dict[Key, list[Errors]] = field(default_factory=dict)
    unknown_devices: Counter[str] = field(default_factory=Counter)
    """rows of devices that the catalogue lacks"""
    left_out: Counter[str] = field(default_factory=Counter)
    """rows that are not scored, by reason"""

    def add(self, key: Key, errors: Errors) -> None:
        """Add rows of one key."""
        self.parts.setdefault(key, []).append(errors)

    def __len__(self) -> int:
        return sum(len(part) for parts in self.parts.values() for part in parts)

    def keys(self, *names: str) -> Iterator[tuple[tuple[str, ...], Errors]]:
        """The rows by chosen fields of their keys, in the order of the fields' values."""
        grouped: dict[tuple[str, ...], list[Errors]] = {}
        for key, parts in self.parts.items():
            grouped.setdefault(tuple(getattr(key, n) for n in names), []).extend(parts)
        for values in sorted(grouped):
            yield values, join(grouped[values])


@dataclass(frozen=True)
class IterationScore:
    """One measured step (or collective) and its prediction, microseconds."""

    id: str
    device: str
    measured_us: float
    predicted_us: float
    low_us: float
    high_us: float
    analytic_us: float
    data: str = ""
    raw_device: str = ""
    how: str = ""
    peers_us: dict[str, float] = field(default_factory=dict)
    parts_us: dict[str, tuple[float, float]] = field(default_factory=dict)
    """name of a part (forward, backward) -> measured, predicted"""

    @property
    def ape(self) -> float:
        """Absolute error in percent."""
        return 100 * abs(self.predicted_us - self.measured_us) / self.measured_us

    @property
    def covered(self) -> bool:
        """Whether the measured time lies in the interval."""
        return self.low_us <= self.measured_us <= self.high_us

    def to_json(self) -> dict[str, Any]:
        """The entry of `evaluate --json`; a number that does not exist is null."""
        entry: dict[str, Any] = {
            "id": self.id,
            "device": self.device,
            "measured_us": self.measured_us,
            "predicted_us": self.predicted_us,
            "low_us": self.low_us,
            "high_us": self.high_us,
            "ape": self.ape,
            "analytic_us": self.analytic_us,
        }
        entry = {n: _finite(v) if isinstance(v, float) else v for n, v in entry.items()}
        entry |= {"data": self.data, "raw_device": self.raw_device or self.device, "how": self.how}
        if self.peers_us:
            entry["peers_us"] = self.peers_us
        if self.parts_us:
            entry["parts_us"] = {
                n: {"measured": m, "predicted": p} for n, (m, p) in self.parts_us.items()
            }
        return entry


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def iteration_figures(scores: list[IterationScore]) -> dict[str, Any]:
    """Mean and median error, bias and coverage of steps, and of peers on the same steps."""
    errors = [s.ape for s in scores]
    peers = sorted({name for s in scores for name in s.peers_us})
    signed = [s.predicted_us / s.measured_us - 1 for s in scores]
    analytic = [100 * abs(s.analytic_us / s.measured_us - 1) for s in scores if s.analytic_us > 0]
    return {
        "n": len(scores),
        "mape": round(float(np.mean(errors)), 4),
        "median_ape": round(float(np.median(errors)), 4),
        "geomean_ape": round(float(np.exp(np.mean(np.log(np.maximum(errors, 0.01))))), 4),
        "max_ape": round(max(errors), 4),
        "bias": _percent(float(np.mean(signed))),
        "coverage": _percent(float(np.mean([s.covered for s in scores]))),
        "analytic_mape": round(float(np.mean(analytic)), 4) if analytic else None,
        "analytic_median_ape": round(float(np.median(analytic)), 4) if analytic else None,
        "analytic_refitted_mape": _refitted_mape(scores),
        "peers": {name: _peer_figures(name, scores) for name in peers},
        "parts": _part_figures(scores),
    }


def _refitted_mape(scores: list[IterationScore]) -> float | None:
    """Error of the analytic engine times one factor, fitted without the device's group.

    The factor is the geometric mean over the other groups of measured over analytic: the formulas
    on the terms of a network that never saw the group. None where there is one group alone.
    """
    ratios: dict[str, list[float]] = {}
    for score in scores:
        if score.analytic_us > 0:
            logs = ratios.setdefault(device_group(score.device), [])
            logs.append(math.log(score.measured_us / score.analytic_us))
    if len(ratios) < 2:
        return None
    means = {group: float(np.mean(logs)) for group, logs in ratios.items()}
    errors = [
        abs(math.exp(np.mean([m for g, m in means.items() if g != group]) - log) - 1)
        for group, logs in ratios.items()
        for log in logs
    ]
    return round(100 * float(np.mean(errors)), 4)


def _peer_figures(name: str, scores: list[IterationScore]) -> dict[str, Any]:
    both = [s for s in scores if name in s.peers_us]
    errors = [100 * abs(s.peers_us[name] / s.measured_us - 1) for s in both]
    ours = [s.ape for s in both]
    return {
        "n": len(both),
        "mape": round(float(np.mean(errors)), 4),
        "median_ape": round(float(np.median(errors)), 4),
        "mape_of_gnnperf_on_the_same": round(float(np.mean(ours)), 4),
        "median_ape_of_gnnperf_on_the_same": round(float(np.median(ours)), 4),
    }


def _part_figures(scores: list[IterationScore]) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for score in scores:
        for name, (measured, predicted) in score.parts_us.items():
            found.setdefault(name, []).append(100 * abs(predicted / measured - 1))
    return {
        name: {
            "n": len(errors),
            "mape": round(float(np.mean(errors)), 4),
            "median_ape": round(float(np.median(errors)), 4),
        }
        for name, errors in found.items()
    }
