"""`evaluate` from start to end: every path finds its kind, is scored, and is summed up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.api.predictor import Predictor
from gnnperf.data.splits import device_group, known_group
from gnnperf.data.tables import KERNEL_TABLE, MODEL_OP
from gnnperf.errors import InputError
from gnnperf.evaluation.context import Context, Settings
from gnnperf.evaluation.kernel_models import AnalyticKernels, NetworkKernels
from gnnperf.evaluation.kinds import kind_of
from gnnperf.evaluation.networks import EACH, Networks, seen_by
from gnnperf.evaluation.scores import (
    COVERAGE,
    Errors,
    IterationScore,
    figures,
    iteration_figures,
    median_ape,
)

SOURCES = (KERNEL_TABLE, MODEL_OP)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Everything that was scored."""

    context: Context
    kernels: tuple[dict[str, Any], ...]
    """one entry for each device, family, type and source"""
    summary: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The layout of `evaluate --json`."""
        steps = [
            {**score.to_json(), "seen": self.context.was_seen(score.device)}
            for score in (*self.context.iterations, *self.context.collectives)
        ]
        return {"kernels": list(self.kernels), "iterations": steps, "summary": self.summary}


def evaluate(
    paths: Sequence[Path],
    settings: Settings,
    tell: Callable[[str, int], None] = lambda what, rows: None,
) -> Evaluation:
    """Score predictions on measured data.

    Args:
        paths: Files and folders; each is recognized by what it holds.
        settings: Engine, checkpoint, group left out, limit of rows.
        tell: Called with what is being scored and how many rows were done.

    Raises:
        InputError: A path is not recognized, or a file is broken.
    """
    kinds = [(path, kind_of(path)) for path in paths]
    context = _context(settings)
    context.tell = tell
    for path, kind in kinds:
        kind.score(path, context)
    entries = kernel_entries(context)
    _refuse_nothing(context, entries)
    return Evaluation(context, tuple(entries), _summary(context, entries))


def _refuse_nothing(context: Context, entries: Sequence[dict[str, Any]]) -> None:
    """A group that was asked for and that the data does not hold."""
    found = entries or context.iterations or context.collectives or context.unscored
    if context.settings.leave_out not in (None, EACH) and not found:
        raise InputError(
            f"the data holds no row of {context.settings.leave_out!r}",
            field="--leave-out",
            remedy="name a group of the data's devices or workloads",
        )


def _context(settings: Settings) -> Context:
    group = settings.leave_out
    if group is not None and group != EACH:
        group = known_group(group)
        settings = replace(settings, leave_out=group)
    if settings.engine == "analytic":
        formulas = Predictor.of_engine("analytic")
        return Context(settings, lambda hardware: formulas, AnalyticKernels())
    networks = Networks(settings.checkpoint, group)
    if group != EACH:  # a checkpoint that cannot be used is refused before anything is read
        networks.without(group or "")
    seen = () if group == EACH else seen_by(networks.without(group or ""))
    return Context(
        settings,
        networks.of,
        NetworkKernels(networks.of),
        NetworkKernels(networks.of, edge_free=True),
        seen_devices=frozenset(seen),
        networks=networks,
    )


def kernel_entries(context: Context) -> list[dict[str, Any]]:
    """An entry for each device, family, type, source and data of the rows scored so far."""
    fields = ("device", "family", "dtype", "source", "data")
    entries = []
    for values, errors in context.scores.keys(*fields):
        if values[3] in SOURCES:
            seen = context.was_seen(values[0])
            entry = {**dict(zip(fields, values, strict=True)), **figures(errors), "seen": seen}
            entries.append(entry)
    return entries


def _summary(context: Context, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    settings = context.settings
    return {
        "engine": settings.engine,
        "checkpoint": None if context.networks is None else context.networks.identity(),
        "leave_out": settings.leave_out,
        "split": settings.split,
        "seen_devices": None if context.seen_devices is None else sorted(context.seen_devices),
        "interval": 100 * COVERAGE,
        "rows": sum(entry["n"] for entry in entries),
        "unknown_devices": dict(context.scores.unknown_devices),
        "left_out": dict(context.scores.left_out),
        "imports": [line for report in context.reports for line in report.lines()],
        "by_family": _by_family(context),
        "by_part": _by(context, "family", "dtype", "source", "part", needs="part"),
        "backward_ops": _backward(context),
        "class_sums": _class_sums(context),
        "unseen_model_ops": _unseen_model_ops(context, entries),
        "iterations": _iterations(context),
        "unscored_iterations": dict(context.unscored),
    }


def _by_family(context: Context) -> list[dict[str, Any]]:
    """Figures of a family over all devices, and the mean over device groups of their medians."""
    found = []
    medians: dict[tuple[str, ...], dict[str, list[Errors]]] = {}
    for key, parts in context.scores.parts.items():
        place = (key.family, key.dtype, key.source, key.data)
        group = device_group(key.device)
        medians.setdefault(place, {}).setdefault(group, []).extend(parts)
    for values, errors in context.scores.keys("family", "dtype", "source", "data"):
        if values[2] not in SOURCES:
            continue
        groups = medians[values]
        by_group = {
            name: median_ape(np.concatenate([e.model for e in parts]))
            for name, parts in sorted(groups.items())
        }
        known = [v for v in by_group.values() if v is not None]
        entry = dict(zip(("family", "dtype", "source", "data"), values, strict=True))
        mean = round(float(np.mean(known)), 4)
        found.append(
            {**entry, **figures(errors), "group_medians": by_group, "mean_of_group_medians": mean}
        )
    return found


def _by(context: Context, *fields: str, needs: str) -> list[dict[str, Any]]:
    return [
        {**dict(zip(fields, values, strict=True)), **figures(errors)}
        for values, errors in context.scores.keys(*fields)
        if values[fields.index(needs)]
    ]


def _backward(context: Context) -> list[dict[str, Any]]:
    fields = ("device", "family", "source")
    return [
        {"device": values[0], "family": values[1], **figures(errors)}
        for values, errors in context.scores.keys(*fields)
        if values[2] not in SOURCES
    ]


def _class_sums(context: Context) -> dict[str, Any]:
    """Per family: errors of the sums over its ops in labelled models, peers' beside them."""
    found = {}
    for label in sorted({score.data for score in context.class_sums}):
        scores = [score for score in context.class_sums if score.data == label]
        all_figures = iteration_figures(scores)
        found[label] = {n: all_figures[n] for n in ("n", "mape", "median_ape", "bias", "peers")}
    return found


def _unseen_model_ops(context: Context, entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ops inside models on devices that were not trained on, by device and family.

    Beside the median over single ops stands the mean over models of the error of the family's
    sum, for which publications hold predictions.
    """
    sums: dict[tuple[str, str], list[IterationScore]] = {}
    for score in context.class_sums:
        sums.setdefault((score.device, score.data), []).append(score)
    found = []
    for entry in entries:
        if entry["source"] == MODEL_OP and entry["seen"] is False:
            names = ("device", "family", "n", "median_ape", "bias", "coverage")
            scores = sums.get((entry["device"], entry["family"]), [])
            whole = iteration_figures(scores) if scores else {"n": 0, "mape": None, "peers": {}}
            of_sums = {"n": whole["n"], "mape": whole["mape"], "peers": whole["peers"]}
            cell = {n: entry[n] for n in (*names, "analytic_median_ape")}
            found.append({**cell, "sums": of_sums})
    return found


def _iterations(context: Context) -> dict[str, Any]:
    """Figures of all steps of one kind of data, and NeuSight's by vendor."""
    parts: dict[str, list[Any]] = {}
    for score in context.iterations:
        parts.setdefault(score.data, []).append(score)
        if score.data == "neusight":
            vendor = "AMD" if score.raw_device.startswith("AMD") else "NVIDIA"
            if score.peers_us and not score.id.endswith("-fusion"):
                parts.setdefault(f"neusight, {vendor}, in its summary", []).append(score)
    if context.collectives:
        parts["collectives"] = list(context.collectives)
    return {name: iteration_figures(scores) for name, scores in parts.items()}
