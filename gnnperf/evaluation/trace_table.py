"""Traced steps predicted on their own GPU: `python -m gnnperf.evaluation.trace_table FOLDER`.

FOLDER holds sets of traces and perhaps their iterations.csv. Kernel times are predicted, never
taken from the trace (but for work of unknown size). Beside each step's time stands the time of its
kernels alone, since a host-bound step hides their errors. Markdown on standard output.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnperf.api.jobs import chosen_step
from gnnperf.api.mixed import MixedEngine
from gnnperf.api.predictor import Options, Predictor
from gnnperf.data.splits import TRACED, device_group
from gnnperf.errors import InputError
from gnnperf.evaluation.kinds.base import csv_rows
from gnnperf.evaluation.kinds.traces import NAME, own_hardware
from gnnperf.evaluation.networks import EACH, Networks, seen_by, seen_groups
from gnnperf.graph import Job
from gnnperf.hardware import Hardware
from gnnperf.ops import describe, family_names

F64 = NDArray[np.float64]

ENGINES = ("known", "trace out", "left out", "formulas")
"""The network shipped, one that never saw the trace but its GPU, one that never saw the GPU's
group, and formulas; each where there is one."""
LEAST_SHARE = 0.01
"""Share of a step's device work from which on a family is told."""


@dataclass(frozen=True, eq=False)
class Scored:
    """One step of a set."""

    name: str
    hardware: Hardware
    seen: bool
    """whether the shipped network was trained on the GPU's group"""
    measured_us: float
    """reference of the step, NaN for a single step under the profiler"""
    steps_us: dict[str, float]
    """engine -> predicted step"""
    family: NDArray[np.str_]
    """[k] of each kernel of known size, collectives left out"""
    kernel_us: F64
    """[k] measured"""
    kernels_us: dict[str, F64]
    """engine -> [k] predicted"""
    known_share: float
    """of the time of all kernels but collectives"""

    def busy_error(self, engine: str, rows: NDArray[np.bool_] | None = None) -> float:
        """Predicted over measured sum of the kernels, less 1, in percent."""
        chosen = np.ones(len(self.kernel_us), np.bool_) if rows is None else rows
        predicted, measured = self.kernels_us[engine][chosen], self.kernel_us[chosen]
        return 100 * float(predicted.sum() / measured.sum() - 1)

    def step_error(self, engine: str) -> float:
        """Of the step's time, in percent; NaN without a reference."""
        return 100 * (self.steps_us[engine] / self.measured_us - 1)


def score_set(
    place: tuple[str, Hardware],
    job: Job,
    reference_us: float,
    engines: dict[str, Predictor],
    *,
    seen: bool,
) -> Scored | None:
    """Predict the step of a set on its own GPU; None where it holds no kernels to compare."""
    kernel_us: dict[str, list[F64]] = {engine: [] for engine in engines}
    measured, families, whole = [], [], 0.0
    names = np.array(family_names())
    for graph in job.graphs:
        described = describe(graph)
        us = graph.nodes.duration_us[described.node]
        family = names[described.batch.family]
        work = (family != "collective") & np.isfinite(us)
        rows = work & described.batch.known
        whole += float(us[work].sum())
        measured.append(us[rows])
        families.append(family[rows])
        for engine, predictor in engines.items():
            if predictor.engine is not None:
                found = predictor.engine.times(graph, described, place[1])
                kernel_us[engine].append(found.time_us[rows])
    known = np.concatenate(measured)
    if not len(known):
        return None
    steps = {
        engine: predictor.predict(job, place[1], Options(details=False)).iteration_time_us.predicted
        for engine, predictor in engines.items()
    }
    return Scored(
        *place,
        seen,
        reference_us,
        steps,
        np.concatenate(families),
        known,
        {engine: np.concatenate(parts) for engine, parts in kernel_us.items()},
        float(known.sum()) / max(whole, 1e-9),
    )


def score_folder(
    folder: Path,
    checkpoint: Path | None,
    runs: Path | None,
    *,
    folds: Sequence[Path] = (),
    alone: bool = False,
) -> list[Scored]:
    """Every set of a folder whose GPU the catalogue knows, by the engines that there are.

    Args:
        folder: Sets of traces.
        checkpoint: The network; default: the shipped one.
        runs: Networks trained without a group each.
        folds: Networks trained without some of the traces.
        alone: Networks time every kernel, also those that formulas are trusted with.

    Raises:
        InputError: No such folder or checkpoint.
    """
    if not folder.is_dir():
        raise InputError("no such folder", path=folder)
    references = _references(folder / NAME)
    shipped, formulas = Networks(checkpoint, None).without(""), Predictor.of_engine("analytic")
    others = None if runs is None else Networks(runs, EACH)
    without = [Networks(fold, None).without("") for fold in folds]
    found = []
    for place in sorted(p for p in folder.iterdir() if p.is_dir()):
        try:
            job = chosen_step([place])
            hardware = own_hardware(job)
        except InputError as why:
            sys.stderr.write(f"left out {place.name}: {why}\n")
            continue
        if hardware is None or hardware.kind != "gpu":
            continue
        seen = hardware.group in {device_group(d) for d in seen_by(shipped)}
        engines = {"known": shipped, "formulas": formulas}
        engines |= _unseeing(place.name, hardware, others, without)
        if not seen:
            engines.setdefault("left out", shipped)
        if alone:
            engines = {name: _alone(predictor) for name, predictor in engines.items()}
        reference = float(np.median(references.get(place.name, [_period_us(job)])))
        scored = score_set((place.name, hardware), job, reference, engines, seen=seen)
        if scored is not None:
            found.append(scored)
    return found


def _unseeing(
    name: str, hardware: Hardware, others: Networks | None, without: Sequence[Predictor]
) -> dict[str, Predictor]:
    """The networks that never saw a GPU's group, or never a set of traces but its GPU."""
    found = {}
    if others is not None and (others.place / hardware.group).is_dir():
        found["left out"] = others.of(hardware)
    for fold in without:
        groups = seen_groups(fold)
        if hardware.group in groups and TRACED + name not in groups:
            found["trace out"] = fold
    return found


def _references(path: Path) -> dict[str, list[float]]:
    """The reference times of each set, microseconds; none where there is no such file."""
    found: dict[str, list[float]] = {}
    for row in csv_rows(path) if path.is_file() else []:
        if row["reference_iteration_ms"]:
            ms = float(row["reference_iteration_ms"])
            found.setdefault(row["name"], []).append(ms * 1e3)
    return found


def _alone(predictor: Predictor) -> Predictor:
    engine = predictor.engine
    return (
        Predictor(engine.network, predictor.model) if isinstance(engine, MixedEngine) else predictor
    )


def _period_us(job: Job) -> float:
    """The step's own period where the trace holds one, the median over the ranks."""
    periods = [g.meta.device_period_us for g in job.graphs]
    known = [p for p in periods if np.isfinite(p) and p > 0]
    return float(np.median(known)) if known else float("nan")


def _cell(scored: Scored, engine: str, *, step: bool) -> str:
    if engine not in scored.steps_us or (engine == "known" and not scored.seen):
        return ""
    value = scored.step_error(engine) if step else scored.busy_error(engine)
    return "" if np.isnan(value) else f"{value:+.1f}"


def step_table(rows: Iterable[Scored]) -> list[str]:
    """Steps and their kernels, a row per set."""
    heads = ["set", "GPU", "step ms", *(f"step, {e}" for e in ENGINES)]
    heads += ["kernels ms", "of known size", *(f"kernels, {e}" for e in ENGINES)]
    lines = [heads, ["---"] * len(heads)]
    for s in rows:
        step = "" if np.isnan(s.measured_us) else f"{s.measured_us / 1e3:.2f}"
        cells = [s.name, s.hardware.name, step]
        cells += [_cell(s, e, step=True) for e in ENGINES]
        cells += [f"{s.kernel_us.sum() / 1e3:.2f}", f"{s.known_share:.0%}"]
        cells += [_cell(s, e, step=False) for e in ENGINES]
        lines.append(cells)
    return [f"| {' | '.join(cells)} |" for cells in lines]


def family_table(rows: Iterable[Scored]) -> list[str]:
    """Kernel time by family, a row per set and family of `LEAST_SHARE`."""
    lines = [
        "| set | family | kernels | share | left out | formulas |",
        "|---|---|---|---|---|---|",
    ]
    for s in rows:
        whole = s.kernel_us.sum() / max(s.known_share, 1e-9)
        share = {f: s.kernel_us[s.family == f].sum() / whole for f in np.unique(s.family)}
        for family in sorted(share, key=lambda f: -share[f]):
            if share[family] < LEAST_SHARE:
                continue
            own = s.family == family
            engine = "left out" if "left out" in s.kernels_us else "known"
            lines.append(
                f"| {s.name} | {family} | {int(own.sum())} | {share[family]:.0%} | "
                f"{s.busy_error(engine, own):+.0f} | {s.busy_error('formulas', own):+.0f} |"
            )
    return lines


def main(arguments: Sequence[str]) -> int:
    """Print the tables; 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(prog="python -m gnnperf.evaluation.trace_table")
    parser.add_argument("folder", type=Path, help="folder of sets of traces")
    parser.add_argument("--checkpoint", type=Path, help="default: the one that gnnperf ships")
    parser.add_argument("--runs", type=Path, help="run folder of `gnnperf train --leave-out each`")
    parser.add_argument("--folds", type=Path, nargs="*", default=[], help="runs without traces")
    parser.add_argument("--alone", action="store_true", help="networks time every kernel")
    args = parser.parse_args(arguments)
    try:
        rows = score_folder(
            args.folder, args.checkpoint, args.runs, folds=args.folds, alone=args.alone
        )
    except InputError as why:
        sys.stderr.write(f"{why}\n")
        return 2
    single = [s for s in rows if np.isnan(s.measured_us)]
    text = "\n".join([*step_table(rows), "", *family_table(single)])
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
