"""The figures of a leave-one-group-out run: `python -m gnnperf.training.report FOLDER`.

Of several runs that differ by their seed alone: the ops of models, mean and range over the runs.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("prior", "edge_free", "network")


def lines(scores: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Markdown: kernels by family and group left out, intervals, unseen shapes, ops of models.

    Args:
        scores: `scores.json` of `gnnperf train --leave-out each`.
    """
    found = ["| family | prior | edge-free | network | mean APE | by group (network) |"]
    found.append("|---|---|---|---|---|---|")
    for label, rows in _by_label(scores["left_out"]):
        groups = ", ".join(f"{r['group']} {r['network']:.1f}" for r in rows)
        cells = _means(rows, (*METHODS, "mean"))
        found.append(f"| {label} | {' | '.join(cells)} | {groups} |")
    found += ["", "| kind/family | covered | by group |", "|---|---|---|"]
    for slot in sorted({row["slot"] for row in scores["intervals"]}):
        rows = [row for row in scores["intervals"] if row["slot"] == slot]
        groups = ", ".join(f"{r['group']} {r['coverage']:.0f}" for r in rows)
        found.append(f"| {slot} | {_means(rows, ('coverage',))[0]} | {groups} |")
    found += [
        "",
        "| unseen shapes, known devices | prior | edge-free | network |",
        "|---|---|---|---|",
    ]
    for label, rows in _by_label(scores["unseen_shapes"]):
        found.append(f"| {label} | {' | '.join(_means(rows, METHODS))} |")
    found += [
        "",
        "| op of a model | prior | edge-free | network | by device |",
        "|---|---|---|---|---|",
    ]
    for label, rows in _by_label(scores["models"]):
        devices = ", ".join(f"{r['device']} {r['network']:.1f}" for r in rows)
        found.append(f"| {label} | {' | '.join(_means(rows, METHODS))} | {devices} |")
    return found


def spread_lines(runs: Sequence[dict[str, list[dict[str, Any]]]]) -> list[str]:
    """Markdown: ops of models, mean of devices, as mean over the runs and their range.

    Args:
        runs: `scores.json` of runs that differ by their seed.
    """
    found = ["| op of a model | prior | edge-free | network | runs in which messages helped |"]
    found.append("|---|---|---|---|---|")
    for label, _ in _by_label(runs[0]["models"]):
        rows = [[r for r in run["models"] if r["label"] == label] for run in runs]
        means = np.array([[np.mean([r[m] for r in part]) for m in METHODS] for part in rows])
        cells = [
            f"{column.mean():.1f} ({column.min():.1f} to {column.max():.1f})" for column in means.T
        ]
        helped = int((means[:, 2] < means[:, 1]).sum())
        found.append(f"| {label} | {' | '.join(cells)} | {helped} of {len(runs)} |")
    return found


def _by_label(rows: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    labels = sorted({row["label"] for row in rows})
    return [(label, [row for row in rows if row["label"] == label]) for label in labels]


def _means(rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[str]:
    return [f"{np.mean([row[name] for row in rows]):.1f}" for name in names]


def main() -> int:
    """Print the tables of the folders named on the command line."""
    files = [Path(folder) / "scores.json" for folder in sys.argv[1:]]
    if not files:
        sys.stderr.write("report: name the folder of a run (of several: runs of other seeds)\n")
        return 2
    missing = [str(file) for file in files if not file.exists()]
    if missing:
        sys.stderr.write(f"report: {missing[0]}: no such file; name folders of finished runs\n")
        return 2
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    table = lines(runs[0]) if len(runs) == 1 else spread_lines(runs)
    sys.stdout.write("\n".join(table) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
