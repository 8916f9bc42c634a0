"""Errors of the plan model by source, and the intervals of `plan.yaml` that follow from them.

`python -m gnnperf.analytic.plan_report TABLE... [--out plan.yaml]`, tables as `train_iter.csv`.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from gnnperf.analytic.iteration import Iteration
from gnnperf.analytic.plan import constant_flops_us, interval_class, predict_iterations
from gnnperf.analytic.plan_rows import SHAPE_FROM_SIZE, Row, read_plan_row, source_of

F64 = NDArray[np.float64]

HEADER = """\
# Written by `python -m gnnperf.analytic.plan_report TABLE... --out gnnperf/analytic/plan.yaml`.
# Measured over predicted: 5 and 95 % quantiles over the measured rows of public sources, every
# source with the same weight; rows, sources and coverage on sources left out: docs/collectives.md.
"""


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def errors_by_source(rows: Sequence[Row], done: Sequence[Iteration]) -> list[str]:
    """A Markdown table: each source's rows, those that count first."""
    lines = [
        "| source | rows | MAPE | median predicted / stated | counted |",
        "|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row, item in zip(rows, done, strict=True):
        if np.isfinite(item.predicted_us) and item.measured_us > 0:
            key = (item.why_not or "", source_of(row), item.how)
            groups.setdefault(key, []).append(item.predicted_us / item.measured_us)
    for (why, source, how), found in sorted(groups.items()):
        ratio = np.array(found)
        name = source if how == "plan" else f"{source} ({how})"
        cells = f"{100 * np.abs(ratio - 1).mean():.1f} | {np.median(ratio):.2f}"
        lines.append(f"| {name} | {len(ratio)} | {cells} | {why or 'yes'} |")
    return lines


def intervals(rows: Sequence[Row], done: Sequence[Iteration]) -> dict[str, list[float]]:
    """5 and 95 % quantiles of measured over predicted by class of prediction; 1 lies inside.

    A plan whose shape follows from its size errs like any plan, and by the shape.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for row, item in zip(rows, done, strict=True):
        if item.why_not or not np.isfinite(item.predicted_us):
            continue
        known, source = read_plan_row(row), source_of(row)
        kind = interval_class(item.how, known.model)
        ratio = item.measured_us / item.predicted_us
        found.setdefault(kind, {}).setdefault(source, []).append(ratio)
        flat = item.measured_us / constant_flops_us(known)
        found.setdefault("flops", {}).setdefault(source, []).append(flat)
    groups = {kind: list(by.values()) for kind, by in found.items()}
    groups[SHAPE_FROM_SIZE] = groups.get(SHAPE_FROM_SIZE, []) + groups.get("plan", [])
    bounds = {kind: _balanced(group) for kind, group in sorted(groups.items()) if group}
    return {
        kind: [round(min(float(low), 1.0), 3), round(max(float(high), 1.0), 3)]
        for kind, (low, high) in bounds.items()
    }


def coverage_left_out(rows: Sequence[Row], done: Sequence[Iteration]) -> list[str]:
    """Share of each source's rows inside the interval that the other sources give."""
    sources = [source_of(row) for row in rows]
    lines = ["| source left out | rows | inside |", "|---|---|---|"]
    for source in sorted(set(sources)):
        pairs = list(zip(rows, done, sources, strict=True))
        rest = [(row, item) for row, item, name in pairs if name != source]
        bounds = intervals([row for row, _ in rest], [item for _, item in rest])
        inside = []
        for row, item, name in pairs:
            if name == source and not item.why_not and np.isfinite(item.predicted_us):
                low, high = bounds.get(
                    interval_class(item.how, read_plan_row(row).model), (0.0, 0.0)
                )
                inside.append(low <= item.measured_us / item.predicted_us <= high)
        if inside:
            lines.append(f"| {source} | {len(inside)} | {100 * np.mean(inside):.0f} % |")
    return lines


def _balanced(groups: list[list[float]]) -> F64:
    values = np.concatenate([np.array(group) for group in groups])
    weight = np.concatenate([np.full(len(group), 1 / len(group)) for group in groups])
    order = np.argsort(values)
    share = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    found: F64 = np.interp([0.05, 0.95], share, values[order])
    return found


def main(arguments: Sequence[str]) -> None:
    """Print the tables; write the intervals where --out names a file."""
    names = list(arguments)
    out = Path(names[names.index("--out") + 1]) if "--out" in names else None
    tables = names[: names.index("--out")] if out else names
    rows: list[Row] = [row for name in tables for row in read_table(Path(name))]
    done = predict_iterations(rows)
    text = yaml.safe_dump({"interval_90": intervals(rows, done)}, sort_keys=False)
    lines = [*errors_by_source(rows, done), "", *coverage_left_out(rows, done), "", text]
    sys.stdout.write("\n".join(lines))
    if out:
        out.write_text(HEADER + text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
