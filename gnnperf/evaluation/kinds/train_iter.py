"""Measured iteration times of multi-GPU training with their parallel plans, in a CSV."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gnnperf.analytic.plan import predict_iterations
from gnnperf.evaluation.context import Context
from gnnperf.evaluation.kinds.base import Kind, csv_columns, csv_rows
from gnnperf.evaluation.scores import IterationScore

PLAN = frozenset(("row_id", "gpu", "model", "n_gpus", "global_batch"))
TIMES = frozenset(("iteration_ms", "iter_s"))


def _recognizes(path: Path) -> bool:
    columns = set(csv_columns(path))
    return columns >= PLAN and bool(columns & TIMES)


def score_plans(
    rows: Sequence[Mapping[str, str]],
    data: str,
    context: Context,
    peers_us: Mapping[str, dict[str, float]] | None = None,
) -> None:
    """Score plans with a measured time; the others are counted by the reason.

    `peers_us` holds published predictions by the row's id.
    """
    for row, found in zip(rows, predict_iterations(rows), strict=True):
        if found.why_not or not np.isfinite([found.predicted_us, found.measured_us]).all():
            context.unscored[found.why_not or "not measured"] += 1
        elif context.wants(found.device):
            context.iterations.append(
                IterationScore(
                    found.id,
                    found.device,
                    found.measured_us,
                    found.predicted_us,
                    found.low_us,
                    found.high_us,
                    found.analytic_us,
                    data,
                    row["gpu"],
                    found.how,
                    (peers_us or {}).get(found.id, {}),
                )
            )
    context.tell(data, len(rows))


def _score(path: Path, context: Context) -> None:
    score_plans(csv_rows(path), path.name, context)


KIND = Kind(
    "a CSV of iteration times with parallel plans (row_id, gpu, model, n_gpus, ...)",
    _recognizes,
    _score,
)
