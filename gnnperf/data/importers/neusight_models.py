"""NeuSight's labelled models as graphs: op graphs joined with per-op and whole-model times.

`results/opgraph/STEM.csv` gives ops, shapes and edges of one layer (or, fused and Switch, of the
whole model), `label/DEVICE/STEM.csv` the milliseconds of each op, `label/DEVICE/STEM.json` those
of the model, `summary/summary.csv` the published predictions. STEM is model-mode-sequence-batch
and an option. Runs on several GPUs (dp4, tp4, pp4) have no graph here.
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
_STEM = re.compile(
    r"(?P<model>[^-]+)-(?P<mode>inf|train)-(?P<seq>\d+)-(?P<batch>\d+)(-(?P<option>.+))?"
)
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


def read_labels(path: Path, report: ImportReport) -> list[Label]:
    """Every label/DEVICE/STEM.json of a folder, with the published predictions beside it.

    Raises:
        InputError: A label or the summary cannot be read.
    """
    root = find_root(path)
    files = sorted(root.glob("label/*/*.json"))
    peers = _read_peers(root / "summary" / "summary.csv")
    known = catalogue_names({f.parent.name for f in files})
    labels = []
    for file in files:
        found = _STEM.fullmatch(file.stem)
        if found is None:
            report.notes.append(f"not read, no model-mode-sequence-batch in its name: {file.name}")
            continue
        times = _read_json(file)
        key = (found["model"], found["mode"], found["seq"], found["batch"], found["option"] or "")
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
                    step_us=_us(times, file, "e2e_latency"),
                    forward_us=_us(times, file, "fw_latency"),
                    backward_us=_us(times, file, "bwall_latency"),
                    peers_us=peers.get((file.parent.name, *key), {}),
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
    structures: dict[str, GraphBuilder] = {}
    for label in read_labels(path, report):
        meta = label.meta
        graph_file = root / "results" / "opgraph" / f"{label.stem}.csv"
        if meta.option not in ("", "fusion"):
            report.drop(np.ones(1, np.bool_), f"several GPUs ({meta.option})", meta.id)
            continue
        if not graph_file.is_file():
            report.drop(np.ones(1, np.bool_), "no op graph in results/opgraph", meta.id)
            continue
        if label.stem not in structures:
            config = _read_config(root / "data" / "DLmodel_configs" / f"{meta.model}.json")
            nodes = read_nodes(graph_file, trains=meta.mode == "train", config=config)
            structures[label.stem] = GraphBuilder(nodes, meta.layers or _layers(config))
        builder = structures[label.stem]
        graph = builder.graph(replace(meta, layers=builder.layers))
        report.rows += 1
        csv = label.json.with_suffix(".csv")
        yield _with_times(graph, csv) if csv.is_file() else graph


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


def _layers(config: dict[str, Any]) -> int:
    names = ("num_hidden_layers", "n_layer", "num_layers")
    return next((int(config[n]) for n in names if config.get(n)), 1)


def _us(times: dict[str, Any], file: Path, name: str) -> float:
    value = times.get(name)
    if not isinstance(value, int | float):
        raise InputError(f"{value!r} is no time in ms", path=file, field=name)
    return value * 1e3 if value > 0 and math.isfinite(value) else math.nan


def _read_peers(file: Path) -> dict[tuple[str, ...], dict[str, float]]:
    """(device, model, mode, sequence, batch, option) -> predictor -> microseconds."""
    if not file.is_file():
        return {}
    key = ("device", "model_name", "mode", "seqlen", "batch", "option")
    columns = {peer: f"{prefix}_all_e2e_latency" for peer, prefix in PEERS.items()}
    table = read_columns(file, key, tuple(columns.values()))
    keys = [texts(table, name) for name in key]
    times = {peer: numbers(table, column) * 1e3 for peer, column in columns.items()}
    return {
        tuple(name[row] for name in keys): {
            peer: float(us[row]) for peer, us in times.items() if np.isfinite(us[row])
        }
        for row in range(len(table))
    }
