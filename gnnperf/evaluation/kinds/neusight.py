"""A folder in NeuSight's public layout: kernel tables, ops inside models, whole models."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gnnperf.analytic import roofline_rule
from gnnperf.api.step import TIMELINE_SPREAD, together
from gnnperf.data.importers import IMPORTERS, ImportReport
from gnnperf.data.importers.neusight import LABELS, find_root
from gnnperf.data.importers.neusight_models import read_models, read_plans
from gnnperf.data.model_graphs import SLOW_LABELS, ModelGraph, Pass, PieceEdges, piece_edges
from gnnperf.data.tables import MODEL_OP
from gnnperf.errors import InputError
from gnnperf.evaluation.context import Context
from gnnperf.evaluation.kernel_models import How, KernelPredictor, Predicted
from gnnperf.evaluation.kinds.base import Kind
from gnnperf.evaluation.kinds.train_iter import score_plans
from gnnperf.evaluation.scores import F64, Errors, IterationScore, Key, relative
from gnnperf.evaluation.tables import score_tables
from gnnperf.hardware import Hardware, find_hardware
from gnnperf.ops import OpBatch

IN_STEP = How("neusight", "pytorch", "eager", launch_included=False, in_model=True)
"""as part of a step: launches run ahead of the device"""
TIMED_ALONE = How("neusight", "pytorch", "eager", launch_included=True, in_model=True)
"""between two events of its own, as the label of an op"""
BACKWARD = f"{MODEL_OP}, backward"


def _recognizes(path: Path) -> bool:
    if not path.is_dir():
        return False
    try:
        find_root(path)
    except InputError:
        return False
    return True


def _score(path: Path, context: Context) -> None:
    report = ImportReport("neusight")
    score_tables(IMPORTERS["neusight"](path, report), report, context)
    models = ImportReport("neusight models", "models")
    context.reports.append(models)
    by_device: dict[str, list[ModelGraph]] = {}
    for graph in read_models(path, models):
        by_device.setdefault(graph.meta.device, []).append(graph)
    for reason, fault in models.faults.items():
        context.unscored[reason] += fault.count
    for device, graphs in by_device.items():
        hardware = find_hardware(device)
        if hardware is None:
            context.unscored[f"device {device} is not in the catalogue"] += len(graphs)
        elif context.wants(hardware.name):
            try:
                _score_graphs(graphs, hardware, context)
            except InputError as why:  # no network without its group: the rest is scored
                context.unscored[str(why)] += len(graphs)
    plans = read_plans(path)
    peers = {meta.id: meta.peers_us for meta, _ in plans}
    score_plans([row for _, row in plans], "neusight, several GPUs", context, peers)


def _score_graphs(graphs: Sequence[ModelGraph], hardware: Hardware, context: Context) -> None:
    batch = join_batches([g.batch for g in graphs])
    ends = np.cumsum([len(g.batch) for g in graphs])[:-1]
    rule = np.split(roofline_rule(batch, hardware), ends)
    edges = piece_edges(graphs)
    ours = _both(context.kernels, batch, hardware, ends, edges)
    plain = _both(context.analytic, batch, hardware, ends)
    mlp = _both(context.mlp, batch, hardware, ends) if context.mlp is not None else None
    for i, graph in enumerate(graphs):
        known = _Ops(graph, ours[i], context.settings.min_us)
        if len(known.nodes):
            _note_slow_labels(graph, len(known.nodes), context)
            others = plain[i], rule[i], None if mlp is None else mlp[i]
            _score_ops(known, others, hardware, context)
        _score_step(graph, ours[i][0], plain[i][0], hardware, context)
        _score_classes(known, hardware, context)
        context.tell("neusight models", len(graph))


def _note_slow_labels(graph: ModelGraph, ops: int, context: Context) -> None:
    """Ops that were timed in a slower state than the model: their sum exceeds its own time."""
    ratio = graph.label_ratio()
    if ratio > SLOW_LABELS:
        reason = f"scored, but ops of {graph.meta.id} sum up to {ratio:.2f} of the model's own time"
        context.scores.left_out[reason] += ops


def join_batches(batches: Sequence[OpBatch]) -> OpBatch:
    """One batch after the other."""
    return OpBatch(
        *(
            np.concatenate([getattr(b, name) for b in batches])
            for name in ("family", "dims", "dtype", "known")
        )
    )


Pieces = tuple[Predicted, Predicted]
"""each piece of work of a graph as part of a step, and timed alone"""


def _both(
    model: KernelPredictor,
    batch: OpBatch,
    hardware: Hardware,
    ends: F64,
    edges: PieceEdges | None = None,
) -> list[Pieces]:
    columns = []
    for how in (IN_STEP, TIMED_ALONE):
        found = model.predict(batch, hardware, how, edges)
        parts = (np.split(v, ends) for v in (found.time_us, found.low_us, found.high_us))
        columns.append([Predicted(*values) for values in zip(*parts, strict=True)])
    return list(zip(*columns, strict=True))


class _Ops:
    """The timed ops of a graph that are scored, and their predictions."""

    def __init__(self, graph: ModelGraph, pieces: Pieces, shortest_us: float) -> None:
        self.graph = graph
        reported = np.array([name.removesuffix(" backward") in LABELS for name in graph.labels])
        long = graph.duration_us >= shortest_us  # False for NaN
        self.nodes = np.flatnonzero(reported & long & (graph.kind != Pass.ACCUMULATION))
        self.measured = graph.duration_us[self.nodes]
        self.found = Predicted(
            *(self.of_node(getattr(pieces[0], n), getattr(pieces[1], n)) for n in _COLUMNS)
        )

        self.all_us = self._with_launch(pieces[0].time_us, pieces[1].time_us)

    def of_node(self, in_step: F64, alone: F64) -> F64:
        """[chosen nodes] the main piece as timed with its launch, the others behind it."""
        return self._with_launch(in_step, alone)[self.nodes]

    def _with_launch(self, in_step: F64, alone: F64) -> F64:
        main = self.graph.main_work()
        total: F64 = self.graph.sum_by_node(in_step) + alone[main] - in_step[main]
        return total


_COLUMNS = ("time_us", "low_us", "high_us")


def _score_ops(
    ops: _Ops,
    others: tuple[Pieces, F64, Pieces | None],
    hardware: Hardware,
    context: Context,
) -> None:
    (analytic, rule, mlp), measured = others, ops.measured
    none = np.full(len(measured), np.nan)
    mlp_us = none if mlp is None else ops.of_node(mlp[0].time_us, mlp[1].time_us)
    errors = Errors(
        relative(ops.found.time_us, measured),
        (ops.found.low_us <= measured) & (measured <= ops.found.high_us),
        relative(ops.of_node(analytic[0].time_us, analytic[1].time_us), measured),
        relative(ops.graph.sum_by_node(rule)[ops.nodes], measured),
        relative(mlp_us, measured),
    )
    labels = np.array(ops.graph.labels)[ops.nodes]
    for label in np.unique(labels).tolist():
        rows = labels == label
        name = label.removesuffix(" backward")
        source = MODEL_OP if name == label else BACKWARD
        key = Key(hardware.name, name, "float32", source, "neusight")
        context.scores.add(key, errors.take(rows))


def _score_classes(ops: _Ops, hardware: Hardware, context: Context) -> None:
    """Sums over all ops and passes of a family, as the published summary has them."""
    meta = ops.graph.meta
    families = {
        n: label for n, label in zip(ops.graph.names, ops.graph.labels, strict=True) if label
    }
    family = np.array([families.get(n, "").removesuffix(" backward") for n in ops.graph.names])
    for label, published in meta.classes_us.items():
        measured = published.get("measured", 0.0)
        predicted = ops.graph.step_sum(np.where(family == label, ops.all_us, 0.0))
        if measured > 0 and predicted > 0:
            peers = {who: us for who, us in published.items() if who != "measured"}
            nothing = float("nan")
            times = (measured, predicted, predicted, predicted, nothing)
            score = IterationScore(meta.id, hardware.name, *times, label, peers_us=peers)
            context.class_sums.append(score)


def _score_step(
    graph: ModelGraph, ours: Predicted, plain: Predicted, hardware: Hardware, context: Context
) -> None:
    meta = graph.meta
    if not np.isfinite(meta.step_us):
        context.unscored["no measured time of the model"] += 1
        return
    step = graph.step_sum(graph.sum_by_node(ours.time_us))
    low, high = step_interval(graph, ours)
    parts = {}
    if np.isfinite(meta.backward_us) and np.isfinite(meta.forward_us):
        forward = graph.step_sum(graph.sum_by_node(ours.time_us), Pass.FORWARD)
        parts = {
            "forward": (meta.forward_us, forward),
            "backward": (meta.backward_us, step - forward),
        }
    context.iterations.append(
        IterationScore(
            meta.id,
            hardware.name,
            meta.step_us,
            step,
            low,
            high,
            graph.step_sum(graph.sum_by_node(plain.time_us)),
            "neusight",
            meta.raw_device,
            "sum of ops",
            meta.peers_us,
            parts,
        )
    )


def step_interval(graph: ModelGraph, found: Predicted) -> tuple[float, float]:
    """Interval of the sum, as of a step (`api.step.interval`).

    Errors of one family correlate, those of two and of the sum itself are independent.
    """
    repeat = graph.repeat[graph.owner]
    total = float((found.time_us * repeat).sum())
    families = int(graph.batch.family.max(initial=0)) + 1
    reach = []
    for deviation in (found.time_us - found.low_us, found.high_us - found.time_us):
        spread = deviation * repeat
        by_family = np.bincount(graph.batch.family, spread, minlength=families)
        for family in np.flatnonzero(by_family):
            by_family[family] *= together(spread[graph.batch.family == family])
        reach.append(float(np.sqrt((by_family**2).sum() + (TIMELINE_SPREAD * total) ** 2)))
    return max(total - reach[0], 0.0), total + reach[1]


KIND = Kind("a folder in NeuSight's public layout", _recognizes, _score)
