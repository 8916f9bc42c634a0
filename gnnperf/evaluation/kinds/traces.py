"""A folder of trace sets with an iterations.csv beside them (name, reference_iteration_ms)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnperf.api.jobs import chosen_step
from gnnperf.api.predictor import Predictor
from gnnperf.data.from_traces import table_of
from gnnperf.data.importers import ImportReport
from gnnperf.data.tables import Names
from gnnperf.errors import InputError
from gnnperf.evaluation.context import Context
from gnnperf.evaluation.kinds.base import Kind, csv_columns, csv_rows
from gnnperf.evaluation.scores import IterationScore
from gnnperf.evaluation.tables import score_tables
from gnnperf.graph import Job
from gnnperf.hardware import Hardware, find_hardware, get_hardware

NAME = "iterations.csv"
COLUMNS = frozenset(("name", "reference_iteration_ms"))


def score_job(
    job: Job,
    name: str,
    measured_us: float,
    data: str,
    context: Context,
    predictor: Predictor | None = None,
) -> None:
    """Predict one step on its own device and set it beside a measured time.

    Args:
        job: The step.
        name: Its id.
        measured_us: Its time.
        data: What kind of data it is.
        context: Takes the score.
        predictor: Default: the context's for the device.
    """
    hardware = own_hardware(job)
    raw = job.graphs[0].meta.device
    if hardware is None:
        context.unscored[
            f"device {raw} is not in the catalogue" if raw else "the trace names no device"
        ] += 1
        return
    if predictor is None and not context.wants(hardware.name):
        return
    if hardware.kind == "gpu":
        _score_kernels(job, context)
    predictor = predictor or context.predictor_of(hardware)
    found = predictor.predict(job, hardware).iteration_time_us
    analytic = Predictor.of_engine("analytic").predict(job, hardware).iteration_time_us
    context.iterations.append(
        IterationScore(
            name,
            hardware.name,
            measured_us,
            found.predicted,
            found.low,
            found.high,
            analytic.predicted,
            data,
            raw,
            "timeline",
        )
    )


def _score_kernels(job: Job, context: Context) -> None:
    """The step's kernels whose work is known."""
    table = table_of(job).table
    if len(table):
        table = replace(table, kernel_source=Names.constant("", len(table)))
        report = _report(context)
        report.rows += len(table)
        score_tables([table], report, context)


def _report(context: Context) -> ImportReport:
    """One report for the kernels of all traces."""
    found = next((r for r in context.reports if r.source == "traces"), None)
    return found or ImportReport("traces", "kernels of chosen steps")


def own_hardware(job: Job) -> Hardware | None:
    """The device that ran a job; None where the catalogue lacks it."""
    meta = job.graphs[0].meta
    if meta.device:
        return find_hardware(meta.device)
    return get_hardware("cpu") if meta.device_type == "cpu" else None


def _score(path: Path, context: Context) -> None:
    folder = path if path.is_dir() else path.parent
    references: dict[str, list[float]] = {}
    for row in csv_rows(folder / NAME):
        try:
            time_ms = float(row["reference_iteration_ms"])
            references.setdefault(row["name"], []).append(time_ms)
        except ValueError:
            context.unscored["no reference time in iterations.csv"] += 1
    for name, times_ms in references.items():
        _score_set(folder / name, name, times_ms, context)
        context.tell("traces", 1)


def _score_set(place: Path, name: str, times_ms: Sequence[float], context: Context) -> None:
    files = sorted(p for p in place.iterdir() if p.suffix != ".csv") if place.is_dir() else []
    if not files:
        context.unscored["no trace beside iterations.csv"] += 1
        return
    try:
        job = chosen_step(files)
        score_job(job, name, float(np.median(times_ms)) * 1e3, "traces", context)
    except InputError as why:
        context.unscored[str(why)] += 1


def _recognizes(path: Path) -> bool:
    file = path / NAME if path.is_dir() else path
    return set(csv_columns(file)) >= COLUMNS


KIND = Kind("a folder of traces with an iterations.csv beside them", _recognizes, _score)
