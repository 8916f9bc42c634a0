"""Sweeps of collectives: gpu, n_gpus, collective, bytes, time_us in a CSV."""

from collections.abc import Sequence

import numpy as np

from gnnperf.analytic.sweeps import score_collectives
from gnnperf.data.tables import KERNEL_TABLE
from gnnperf.evaluation.context import Context
from gnnperf.evaluation.kinds.base import Kind, csv_columns, csv_rows
from gnnperf.evaluation.scores import Errors, IterationScore, Key, relative

COLUMNS = frozenset(("gpu", "n_gpus", "collective", "bytes", "time_us"))


def score_rows(rows: Sequence[dict[str, str]], data: str, context: Context) -> None:
    """Score sweeps by device and type; the analytic model of links is the only predictor."""
    by_key: dict[Key, list[IterationScore]] = {}
    for row, found in zip(rows, score_collectives(rows), strict=True):
        if not np.isfinite(found.predicted_us):
            if found.why_not.startswith("unknown gpu"):
                context.scores.unknown_devices[row["gpu"]] += 1
            else:
                context.scores.left_out[found.why_not] += 1
            continue
        if not context.wants(found.device):
            continue
        score = IterationScore(
            found.id,
            found.device,
            found.measured_us,
            found.predicted_us,
            found.low_us,
            found.high_us,
            found.analytic_us,
            data,
            row["gpu"],
            "collective",
        )
        context.collectives.append(score)
        key = Key(found.device, "collective", row.get("dtype") or "", KERNEL_TABLE, data)
        by_key.setdefault(key, []).append(score)
    for key, scores in by_key.items():
        context.scores.add(key, _errors(scores))
    context.tell(data, len(rows))


def _errors(scores: Sequence[IterationScore]) -> Errors:
    measured = np.array([s.measured_us for s in scores])
    signed = relative(np.array([s.predicted_us for s in scores]), measured)
    analytic = relative(np.array([s.analytic_us for s in scores]), measured)
    nothing = np.full(len(scores), np.nan, np.float32)
    return Errors(signed, np.array([s.covered for s in scores]), analytic, nothing, nothing)


KIND = Kind(
    "a CSV of collective sweeps (gpu, n_gpus, collective, bytes, time_us)",
    lambda path: set(csv_columns(path)) >= COLUMNS,
    lambda path, context: score_rows(csv_rows(path), path.name, context),
)
