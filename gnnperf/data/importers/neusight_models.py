"""NeuSight's labelled models as graphs: op graphs joined with per-op and whole-model times.

`results/opgraph/STEM.csv` gives ops, shapes and edges of one layer (or, fused and Switch, of the
whole model), `label/DEVICE/STEM.csv` the milliseconds of each op, `label/DEVICE/STEM.json` those
of the model, `summary/summary.csv` the published predictions. STEM is model-mode-sequence-batch
and an option; a run on several GPUs (dp4, tp4, pp4_1) is a parallel plan and no graph.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.data.importers.base import ImportReport, catalogue_names, numbers, read_columns, texts
from gnnperf.data.importers.fx_graph import GraphBuilder, read_nodes
from gnnperf.data.importers.neusight import find_root
from gnnperf.data.model_graphs import ModelGraph, ModelMeta, Pass
from gnnperf.data.tables import F64
from gnnperf.errors import InputError

PEERS = {"neusight": "neusight", "roofline": "roofline", "habitat": "habitat", "li": "micro"}
"""our name of a predictor -> its prefix in summary.csv"""
CLASSES = {
    "bmm": "BMM",
    "linear": "Linear",
    "elementwise": "VEC",
    "softmax": "VECsoftmax",
    "layer_norm": "VECln",
}
"""our name of a family -> its class in summary.csv"""
_STEM = re.compile(
    r"(?P<model>[^-]+)-(?P<mode>inf|train)-(?P<seq>\d+)-(?P<batch>\d+)(-(?P<option>.+))?"
)
_PLAN = re.compile(r"(?P<kind>dp|tp|pp)(?P<ranks>\d+)(_(?P<micro>\d+))?")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_COLUMNS = {
    Pass.FORWARD: "fw_latency",
    Pass.BACKWARD: "bw_latency",
    Pass.ACCUMULATION: "acc_latency",
}


@dataclass(frozen=True)
class Label:
    """One measured model: where its files are and what its name and JSON say."""

    json: Path
    meta: ModelMeta

    @property
    def stem(self) -> str:
        """Name of its op graph."""
        return self.json.stem


@dataclass(frozen=True)
class Published:
    """What summary.csv says of one run; see the fields of `ModelMeta`."""

    peers_us: dict[str, float]
    classes_us: dict[str, dict[str, float]]


def read_labels(path: Path, report: ImportReport) -> list[Label]:
    """Every label/DEVICE/STEM.json of a folder, with the published predictions beside it.

    Raises:
        InputError: A label or the summary cannot be read.
    """
    root = find_root(path)
    files = sorted(root.glob("label/*/*.json"))
    summary = _read_summary(root / "summary" / "summary.csv")
    known = catalogue_names({f.parent.name for f in files})
    labels = []
    for file in files:
        found = _STEM.fullmatch(file.stem)
        if found is None:
            report.notes.append(f"not read, no model-mode-sequence-batch in its name: {file.name}")
            continue
        times = _read_json(file)
        key = (found["model"], found["mode"], found["seq"], found["batch"], found["option"] or "")
        published = summary.get((file.parent.name, *key), Published({}, {}))
        labels.append(
            Label(
                file,
                ModelMeta(
                    id=f"{file.parent.name}/{file.stem}",
                    model=found["model"],
                    mode=found["mode"],
                    sequence=int(found["seq"]),
                    batch=int(found["batch"]),
                    option=found["option"] or "",
                    device=known.get(file.parent.name, file.parent.name),
                    raw_device=file.parent.name,
                    layers=int(times.get("num_layer") or 0),
                    step_us=_us(times, file, "e2e_latency", needed=True),
                    forward_us=_us(times, file, "fw_latency"),
                    backward_us=_us(times, file, "bwall_latency"),
                    peers_us=published.peers_us,
                    classes_us=published.classes_us,
                ),
            )
        )
    report.files += len(labels)
    return labels


def read_models(path: Path, report: ImportReport) -> Iterator[ModelGraph]:
    """A graph for each label that has an op graph; the others are counted by reason.

    Raises:
        InputError: A file lacks a column or cannot be parsed.
    """
    root = find_root(path)
    structures: dict[tuple[str, int], GraphBuilder] = {}
    for label in read_labels(path, report):
        meta = label.meta
        graph_file = root / "results" / "opgraph" / f"{label.stem}.csv"
        if _PLAN.fullmatch(meta.option):  # several GPUs: see read_plans
            continue
        if not graph_file.is_file():
            report.drop(np.ones(1, np.bool_), "no op graph in results/opgraph", meta.id)
            continue
        key = (label.stem, meta.layers)
        if key not in structures:
            config = _read_config(root / "data" / "DLmodel_configs" / f"{meta.model}.json")
            nodes = read_nodes(graph_file, trains=meta.mode == "train", config=config)
            structures[key] = GraphBuilder(
                nodes, meta.layers or _first(config, LAYERS, 1), meta.option == "fusion"
            )
        builder = structures[key]
        graph = builder.graph(replace(meta, layers=builder.layers))
        report.rows += 1
        csv = label.json.with_suffix(".csv")
        yield _with_times(graph, csv) if csv.is_file() else graph


def read_plans(path: Path) -> list[tuple[ModelMeta, dict[str, str]]]:
    """The labels measured on several GPUs as rows of a table of parallel plans.

    Columns as `gnnperf.analytic.plan.predict_iterations` reads them: dp4 splits the batch, tp4
    the layers, pp4_1 makes four stages of one micro-batch; no optimizer step is inside the time.
    """
    root = find_root(path)
    found = []
    for label in read_labels(path, ImportReport("neusight")):
        plan = _PLAN.fullmatch(label.meta.option)
        if plan is None or not math.isfinite(label.meta.step_us):
            continue
        ranks, batch = int(plan["ranks"]), label.meta.batch
        degree = {"dp": 1, "tp": 1, "pp": 1, plan["kind"]: ranks}
        micro = batch // ranks if plan["kind"] == "dp" else batch // int(plan["micro"] or 1)
        config = _read_config(root / "data" / "DLmodel_configs" / f"{label.meta.model}.json")
        row = {
            "row_id": label.meta.id,
            "gpu": label.meta.raw_device,
            "framework": "HF accelerate and Megatron, eager attention",
            "model": label.meta.model,
            "n_gpus": ranks,
            "nodes": 1,
            **degree,
            "global_batch": batch,
            "micro_batch": max(micro, 1),
            "seq": label.meta.sequence,
            "hidden": _first(config, ("hidden_size", "n_embd", "d_model"), 0),
            "heads": _first(config, ("num_attention_heads", "n_head", "num_heads"), 0),
            "layers": _first(config, LAYERS, 0),
            "precision": "fp32",
            "activation_recompute": "none",
            "iteration_ms": label.meta.step_us / 1e3,
            "iteration_ms_how": "measured, optimizer step excluded",
        }
        found.append((label.meta, {name: str(value) for name, value in row.items()}))
    return found


def _with_times(graph: ModelGraph, file: Path) -> ModelGraph:
    """The graph with each node's measured time; what the label file does not hold stays NaN."""
    table = read_columns(file, ("Name", *_COLUMNS.values()))
    names = texts(table, "Name")
    rows = {names.names[code]: row for row, code in enumerate(names.codes)}
    duration_us = np.full(len(graph), np.nan)
    row = np.array([rows.get(name, -1) for name in graph.names])
    for kind, column in _COLUMNS.items():
        times: F64 = numbers(table, column) * 1e3
        mine = (graph.kind == kind) & (row >= 0)
        duration_us[mine] = times[row[mine]]
    duration_us[~(duration_us > 0)] = np.nan
    return replace(graph, duration_us=duration_us)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as why:
        raise InputError(f"no JSON ({why})", path=file) from why
    if not isinstance(data, dict):
        raise InputError("no JSON object", path=file)
    return data


def _read_config(file: Path) -> dict[str, Any]:
    return _read_json(file) if file.is_file() else {}


def _first(config: dict[str, Any], names: tuple[str, ...], otherwise: int) -> int:
    """The first of several spellings of a size that a model's config has."""
    return next((int(config[n]) for n in names if config.get(n)), otherwise)


def _us(times: dict[str, Any], file: Path, name: str, needed: bool = False) -> float:
    """A time of a label in us; NaN for 0, and for one that may be absent and is."""
    value = times.get(name)
    if value is None and not needed:
        return math.nan
    if not isinstance(value, int | float):
        raise InputError(f"{value!r} is no time in ms", path=file, field=name)
    return value * 1e3 if value > 0 and math.isfinite(value) else math.nan


def _read_summary(file: Path) -> dict[tuple[str, ...], Published]:
    """By (device, model, mode, sequence, batch, option)."""
    if not file.is_file():
        return {}
    key = ("device", "model_name", "mode", "seqlen", "batch", "option")
    steps = {peer: f"{prefix}_all_e2e_latency" for peer, prefix in PEERS.items()}
    sums = {
        (label, who): f"{prefix}_{name}_e2e_latency"
        for label, name in CLASSES.items()
        for who, prefix in {"measured": "label", **PEERS}.items()
    }
    table = read_columns(file, (*key, *steps.values()), tuple(sums.values()))
    keys = [texts(table, name) for name in key]
    steps_us = {peer: numbers(table, column) * 1e3 for peer, column in steps.items()}
    sums_us = {place: numbers(table, column) * 1e3 for place, column in sums.items()}
    found = {}
    for row in range(len(table)):
        classes: dict[str, dict[str, float]] = {}
        for (label, who), us in sums_us.items():
            if us[row] > 0:  # False for NaN
                classes.setdefault(label, {})[who] = float(us[row])
        peers = {peer: float(us[row]) for peer, us in steps_us.items() if np.isfinite(us[row])}
        found[tuple(name[row] for name in keys)] = Published(peers, classes)
    return found
