"""Iteration times of multi-GPU training from a table of parallel plans, nothing fitted.

`predict_iterations` reads rows as `train_iter.csv` holds them (docs/collectives.md lists the
columns and the rules), prices each plan from shapes and data sheets, and puts the prediction
beside the row's measurement.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from gnnperf.analytic.iteration import Iteration
from gnnperf.analytic.plan_layers import Prices
from gnnperf.analytic.plan_model import Transformer
from gnnperf.analytic.plan_rows import PlanRow, Row, not_scored, read_plan_row, stated_us
from gnnperf.analytic.plan_time import step_time
from gnnperf.config import read_yaml
from gnnperf.errors import InputError
from gnnperf.hardware import find_hardware

USUAL_MFU = 0.35
"""of the fallback: share of the dense 2-byte tensor peak that 6 N tokens make"""
SMALL = 1e9
NAN = float("nan")


def predict_iterations(rows: Sequence[Row]) -> list[Iteration]:
    """A prediction for every row that can be described, in the table's order.

    `why_not` says why a row is not to be scored (its time is derived, not measured), or why it
    has no prediction (`predicted_us` nan). Rows whose plan does not add up, but whose model's
    size is known, get constant FLOP utilization (`how` = flops) and a wide interval.

    Raises:
        InputError: A field holds no number where one is needed.
    """
    prices: dict[str, Prices] = {}
    return [_predict(row, prices) for row in rows]


def _predict(row: Row, prices: dict[str, Prices]) -> Iteration:
    name = str(row.get("row_id") or row.get("id") or "")
    stated, why = stated_us(row), not_scored(row)
    try:
        known = read_plan_row(row)
    except InputError as problem:
        hardware = find_hardware(str(row.get("gpu") or ""))
        device = hardware.name if hardware else str(row.get("gpu") or "")
        return Iteration(name, device, stated, NAN, NAN, NAN, NAN, "", str(problem))
    device = known.hardware.name
    price = prices.setdefault(device, Prices(known.hardware))
    how = known.how
    try:
        time = step_time(known.model, known.plan, price, known.platform).total_us
    except InputError:
        time, how = constant_flops_us(known), "flops"
    low, high = interval(interval_class(how, known.model))
    return Iteration(name, device, stated, time, time * low, time * high, time, how, why)


def constant_flops_us(row: PlanRow) -> float:
    """6 N tokens (8 N with full recomputation) at a usual share of the peak; the fallback."""
    peaks = row.hardware.peak_tflops
    peak = peaks.get("bf16_tensor") or peaks.get("fp16_tensor") or peaks["fp32_vector"]
    if row.plan.dtype == "float32":
        peak = peaks["fp32_vector"]
    times = 8 if row.plan.recompute == "full" else 6
    flops = times * row.model.active_params * row.plan.global_batch * row.plan.seq
    return flops / (row.plan.gpus * peak * 1e6 * USUAL_MFU)


def interval_class(how: str, model: Transformer) -> str:
    """Which interval a prediction gets.

    Below 1e9 parameters launches, hosts and frameworks weigh as much as what is modelled here.
    """
    return "plan, small model" if how == "plan" and model.active_params < SMALL else how


def interval(kind: str) -> tuple[float, float]:
    """Factors of the 90 % interval: measured over predicted, sources weighing the same."""
    stated = _intervals()
    low, high = stated.get(kind, stated["flops"])
    return min(low, 1.0), max(high, 1.0)  # biased sources: an interval still holds its prediction


@lru_cache(maxsize=1)
def _intervals() -> dict[str, tuple[float, float]]:
    stated = read_yaml(Path(__file__).with_name("plan.yaml"))["interval_90"]
    return {kind: (float(v[0]), float(v[1])) for kind, v in stated.items()}
