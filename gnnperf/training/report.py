"""The figures of a leave-one-group-out run: `python -m gnnperf.training.report FOLDER`."""

import json
import sys
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


def _by_label(rows: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    labels = sorted({row["label"] for row in rows})
    return [(label, [row for row in rows if row["label"] == label]) for label in labels]


def _means(rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[str]:
    return [f"{np.mean([row[name] for row in rows]):.1f}" for name in names]


def main() -> int:
    """Print the table of the folder named on the command line."""
    scores = json.loads((Path(sys.argv[1]) / "scores.json").read_text(encoding="utf-8"))
    sys.stdout.write("\n".join(lines(scores)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
