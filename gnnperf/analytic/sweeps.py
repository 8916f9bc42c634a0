"""Measured sweeps of collectives: reading their tables, and predictions beside the measurement."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnperf.analytic.collectives import KINDS, Terms, coefficients, evaluate, terms
from gnnperf.analytic.iteration import Iteration
from gnnperf.analytic.wiring import described_platform
from gnnperf.config import read_yaml
from gnnperf.errors import InputError
from gnnperf.hardware import Platform, find_hardware
from gnnperf.ops.collective import kind_of

F64 = NDArray[np.float64]
Row = Mapping[str, Any]

SIZE_EDGES = (256 * 1024, 16 * 1024**2)
"""Bytes that part small from middle from large messages, in the tables of errors."""
SIZE_NAMES = ("small", "middle", "large")
OVER_NODES = "over nodes"
"""name of the interval of groups that span nodes, whatever the size"""
_ONE_BYTE = ("int8", "uint8", "fp8", "float8")


@dataclass(frozen=True)
class Case:
    """Rows of one device, one description of its links and one size of group."""

    device: str
    """the catalogue's name"""
    platform: Platform
    rows: NDArray[np.int64]
    """places in the table"""
    terms: Terms
    bytes: F64
    measured_us: F64


def read_cases(rows: Sequence[Row]) -> tuple[list[Case], Counter[str]]:
    """The rows that can be priced, by platform, and the others counted by the reason.

    Columns: gpu, n_gpus, collective, bytes, time_us; nodes, interconnect, dtype where given.

    Raises:
        InputError: A column is missing.
    """
    groups: dict[tuple[str, str, int], list[int]] = {}
    refused: Counter[str] = Counter()
    for place, row in enumerate(rows):
        why = _unusable(row)
        if why:
            refused[why] += 1
            continue
        key = (row["gpu"], row.get("interconnect") or "", _per_node(row))
        groups.setdefault(key, []).append(place)
    cases = []
    for (gpu, words, local), places in groups.items():
        hardware = find_hardware(gpu)
        if hardware is None:
            refused[f"unknown gpu {gpu}"] += len(places)
            continue
        platform = described_platform(hardware, words, local)
        cases.append(_case(hardware.name, platform, [rows[i] for i in places], np.array(places)))
    return cases, refused


def score_collectives(rows: Sequence[Row]) -> list[Iteration]:
    """Predictions of the rows of a table of sweeps, in the table's order.

    Rows that cannot be priced come with `predicted_us` nan and the reason in `why_not`.
    """
    cases, _ = read_cases(rows)
    done: dict[int, Iteration] = {}
    for case in cases:
        predicted = evaluate(coefficients(), case.terms)
        low, high = interval(case.bytes, case.terms.levels > 0)
        for j, place in enumerate(case.rows.tolist()):
            p = float(predicted[j])
            done[place] = Iteration(
                id=_name(rows[place], place),
                device=case.device,
                measured_us=float(case.measured_us[j]),
                predicted_us=p,
                low_us=p * float(low[j]),
                high_us=p * float(high[j]),
                analytic_us=p,
                how="collective",
            )
    return [done.get(i) or _not_priced(row, i) for i, row in enumerate(rows)]


def interval(size: F64, over_nodes: NDArray[np.bool_]) -> tuple[F64, F64]:
    """Factors of the 90 % interval, by size inside a node: quantiles of errors when left out."""
    bounds = np.array(_bounds())
    which = np.where(over_nodes, len(SIZE_NAMES), size_class(size))
    return bounds[which, 0], bounds[which, 1]


def size_class(size: F64) -> NDArray[np.int64]:
    """0, 1, 2 for SIZE_NAMES."""
    return np.searchsorted(np.array(SIZE_EDGES), size, side="right").astype(np.int64)


@lru_cache(maxsize=1)
def _bounds() -> tuple[tuple[float, float], ...]:
    path = Path(__file__).with_name("collectives.yaml")
    stated = read_yaml(path)["interval_90"]
    return tuple((float(stated[n][0]), float(stated[n][1])) for n in (*SIZE_NAMES, OVER_NODES))


def _case(device: str, platform: Platform, rows: list[Row], places: NDArray[np.int64]) -> Case:
    size = np.array([float(r["bytes"]) for r in rows])
    parts = terms(
        [kind_of(r["collective"]) or "unknown" for r in rows],
        (size, size),
        [float(r["n_gpus"]) for r in rows],
        [float(r.get("nodes") or 1) for r in rows],
        platform,
        [1 if (r.get("dtype") or "").startswith(_ONE_BYTE) else 2 for r in rows],
    )
    measured = np.array([float(r["time_us"]) for r in rows])
    return Case(device, platform, places, parts, size, measured)


def _per_node(row: Row) -> int:
    return round(float(row["n_gpus"]) / max(float(row.get("nodes") or 1), 1))


def _unusable(row: Row) -> str:
    try:
        figures = [float(row[name]) for name in ("n_gpus", "bytes", "time_us")]
        known = kind_of(row["collective"])
    except KeyError as why:
        raise InputError(
            "no such column", field=str(why), remedy="see docs/collectives.md"
        ) from why
    except (TypeError, ValueError):
        return "no number in n_gpus, bytes or time_us"
    if figures[0] < 2 or figures[1] < 0 or not figures[2] > 0:
        return "group, bytes or time out of range"
    return "" if known in KINDS else f"unknown collective {row['collective']}"


def _name(row: Row, place: int) -> str:
    return f"{row.get('sweep_id') or place}+{float(row['bytes']):.0f}"


def _not_priced(row: Row, place: int) -> Iteration:
    why = _unusable(row) or f"unknown gpu {row['gpu']}"
    nan = float("nan")
    return Iteration(
        f"{row.get('sweep_id') or place}", str(row["gpu"]), nan, nan, nan, nan, nan, "", why
    )
