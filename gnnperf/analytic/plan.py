"""Iteration times of multi-GPU training from a table of parallel plans, nothing fitted.

`predict_iterations` reads rows as `train_iter.csv` holds them (docs/collectives.md lists the
columns and the rules), prices each plan from shapes and data sheets, and puts the prediction
beside the row's measurement.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from gnnperf.analytic.iteration import Iteration
from gnnperf.analytic.plan_rows import PlanRow, Row, not_scored, number, read_plan_row, stated_us
from gnnperf.analytic.plan_time import step_time
from gnnperf.config import read_yaml
from gnnperf.errors import InputError
from gnnperf.hardware import find_hardware

USUAL_MFU = 0.35
"""of the fallback: share of the dense 2-byte tensor peak that 6 N tokens make"""
NAN = float("nan")


def predict_iterations(rows: Sequence[Row]) -> list[Iteration]:
    """A prediction for every row that can be described, in the table's order.

    `why_not` says why a row is not to be scored (its time is derived, not measured), or why it
    has no prediction (`predicted_us` nan). Rows whose plan does not add up, but whose model's
    size is known, get constant FLOP utilization (`how` = flops) and a wide interval.

    Raises:
        InputError: A field holds no number where one is needed.
    """
    return [_predict(row) for row in rows]


def _predict(row: Row) -> Iteration:
    name, stated, why = (
        str(row.get("row_id") or row.get("id") or ""),
        stated_us(row),
        not_scored(row),
    )
    try:
        known = read_plan_row(row)
    except InputError as problem:
        hardware = find_hardware(str(row.get("gpu") or ""))
        device = hardware.name if hardware else str(row.get("gpu") or "")
        return Iteration(name, device, stated, NAN, NAN, NAN, NAN, "", str(problem))
    try:
        time, how = (
            step_time(known.model, known.plan, known.hardware, known.platform).total_us,
            known.how,
        )
    except InputError:
        time, how = constant_flops_us(known), "flops"
    low, high = interval(how)
    return Iteration(
        name, known.hardware.name, stated, time, time * low, time * high, time, how, why
    )


def constant_flops_us(row: PlanRow) -> float:
    """6 N tokens (8 N with full recomputation) at a usual share of the peak; the fallback."""
    peaks = row.hardware.peak_tflops
    peak = peaks.get("bf16_tensor") or peaks.get("fp16_tensor") or peaks["fp32_vector"]
    if row.plan.dtype == "float32":
        peak = peaks["fp32_vector"]
    times = 8 if row.plan.recompute == "full" else 6
    flops = times * row.model.active_params * row.plan.global_batch * row.plan.seq
    return flops / (row.plan.gpus * peak * 1e6 * USUAL_MFU)


def interval(how: str) -> tuple[float, float]:
    """Factors of the 90 % interval: measured over predicted on sources left out (plan.yaml)."""
    low, high = _intervals()[how]
    return low, high


@lru_cache(maxsize=1)
def _intervals() -> dict[str, tuple[float, float]]:
    stated = read_yaml(Path(__file__).with_name("plan.yaml"))["interval_90"]
    return {how: (float(v[0]), float(v[1])) for how, v in stated.items()}


__all__ = ["constant_flops_us", "interval", "number", "predict_iterations"]
