"""The replay table of docs/replay.md: `python -m gnnperf.timeline.table FOLDER...`.

A folder holds either the public traces (an `iterations.csv` beside them) or own recordings (a
folder each, with a Kineto trace). Every set is replayed with its own durations, with all device
work free and ten times as long, and with each rule left out.
"""

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnperf.errors import InputError
from gnnperf.graph import Job
from gnnperf.timeline.replay import RULES, run, schedule_of
from gnnperf.traces import read_job, steady_steps

SETS: dict[str, tuple[float, float]] = {
    "param_linear": (24.1, 97.0),
    "hta_torchrec_a100": (64.0, 610.0),
    "kineto_resnet50_w0": (177.0, 990.0),
    "kineto_resnet50_old_list": (214.0, 999.0),
    "torchrec_2rank_tiny": (43.0, 43.0),
    "hta_ddp_a100_ncclmeta": (220.0, 430.0),
    "hta_v100_ns": (32.7, 939.0),
    "tracelens_mi300_resnet_ddp": (16.0, 184.0),
    "param_dlrm8": (14.7, 17.8),
}
"""The sets, and the step in ms without and with tenfold device work by an earlier prototype."""


@dataclass(frozen=True)
class Row:
    """One set of traces."""

    name: str
    reference_ms: float
    reference_how: str
    replayed_ms: float
    free_ms: float
    tenfold_ms: float
    without_ms: dict[str, float]
    """replayed with one rule left out"""
    steps: int
    spread_pct: float
    """largest error of a single step against its own period"""

    @property
    def error_pct(self) -> float:
        """Signed error of the replayed step."""
        return 100 * (self.replayed_ms / self.reference_ms - 1)


def trace_files(folder: Path) -> list[Path]:
    """The Kineto files of a set (its ET and CSV files aside)."""
    return [p for p in sorted(folder.iterdir()) if p.suffix != ".csv" and not _is_et(p)]


def _is_et(path: Path) -> bool:
    return "_et." in path.name


def references(traces: Path) -> dict[str, float]:
    """Reference iteration time in ms by set, the median over its ranks, of `iterations.csv`."""
    path = traces / "iterations.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [r for r in csv.DictReader(file) if r["reference_iteration_ms"]]
    except OSError as why:
        raise InputError(why.strerror or str(why), path=path) from why
    names = {r["name"] for r in rows}
    return {
        n: float(np.median([float(r["reference_iteration_ms"]) for r in rows if r["name"] == n]))
        for n in names
    }


def measured_us(job: Job, periodic: bool) -> float:
    """The measured time of a job of one step: its period, or the span of its device work."""
    metas = [g.meta for g in job.graphs]
    on_host = not any(len(g.device_nodes) for g in job.graphs)
    repeated = [m.host_step_us if on_host else m.device_period_us for m in metas]
    return float(np.median(repeated if periodic else [m.device_span_us for m in metas]))


def replay_set(name: str, folder: Path, reference_ms: float | None) -> Row:
    """Replay the steady steps of one set; figures are medians over them."""
    job = read_job(trace_files(folder))
    times: list[list[float]] = []
    periodic = False
    steps = steady_steps(job)
    for number in steps:
        one = job.of_step(number)
        step = schedule_of(one)
        periodic = step.periodic
        scaled = [run(step, kernel_scale=s).iteration_us for s in (1.0, 0.0, 10.0)]
        without = [
            run(schedule_of(one, rules=[r for r in RULES if r != rule])).iteration_us
            for rule in RULES
        ]
        times.append([measured_us(one, periodic), *scaled, *without])
    table = np.array(times) / 1e3
    measured, replayed, free, tenfold, *rest = np.median(table, axis=0).tolist()
    own = "median of its steps" if periodic else "span of its device work"
    return Row(
        name,
        measured if reference_ms is None else reference_ms,
        own if reference_ms is None else "iterations.csv",
        replayed,
        free,
        tenfold,
        dict(zip(RULES, rest, strict=True)),
        len(steps),
        float(np.abs(table[:, 1] / table[:, 0] - 1).max() * 100),
    )


def markdown(rows: Sequence[Row]) -> str:
    """The rows as the table of docs/replay.md."""
    heads = ["set", "reference", "of", "replayed", "error", "x0", "x10", "earlier x0 / x10"]
    heads += [f"- {rule}" for rule in RULES]
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    for row in rows:
        early = SETS.get(row.name)
        cells = [
            row.name,
            f"{row.reference_ms:.2f}",
            row.reference_how,
            f"{row.replayed_ms:.2f}",
            f"{row.error_pct:+.2f} %",
            f"{row.free_ms:.1f}",
            f"{row.tenfold_ms:.1f}",
            f"{early[0]:g} / {early[1]:g}" if early else "",
        ]
        for rule in RULES:
            cells.append(f"{100 * (row.without_ms[rule] / row.reference_ms - 1):+.1f}")
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def rows_of(folder: Path) -> list[Row]:
    """The rows of one folder of public traces or own recordings."""
    if (folder / "iterations.csv").is_file():
        known = references(folder)
        found = [n for n in SETS if (folder / n).is_dir()]
        return [replay_set(n, folder / n, known.get(n)) for n in found]
    recorded = sorted(p.parent for p in folder.glob("*/kineto.json*"))
    if not recorded:
        raise InputError(
            "neither iterations.csv nor */kineto.json.gz in it",
            path=folder,
            remedy="give the folder of the public traces or of own recordings",
        )
    return [replay_set(p.name, p, None) for p in recorded]


def main(arguments: Sequence[str]) -> int:
    """Print a table for each folder."""
    if not arguments:
        sys.stderr.write("usage: python -m gnnperf.timeline.table FOLDER...\n")
        return 2
    for argument in arguments:
        try:
            rows = rows_of(Path(argument))
        except InputError as why:
            sys.stderr.write(f"{why}\n")
            return 2
        errors = np.abs([r.error_pct for r in rows])
        sys.stdout.write(
            f"{markdown(rows)}\n\n{len(rows)} sets, ms. |error|: median {np.median(errors):.2f} %, "
            f"largest {errors.max():.2f} %. Steps: "
            + ", ".join(f"{r.name} {r.steps} (each within {r.spread_pct:.1f} %)" for r in rows)
            + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
