"""Predict the step of a job: the graph, the hardware, the engine, the timeline."""

import platform as machine
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnperf.api.details import Details, details_of, scopes_of
from gnnperf.api.engines import COVERAGE, AnalyticEngine, Engine, NetworkEngine, Times
from gnnperf.api.evidence import (
    evidence_of,
    fill_unknown,
    of_libraries,
    rows_with_evidence,
    told,
    use_evidence,
    with_waits,
)
from gnnperf.api.jobs import CHOICE
from gnnperf.api.mixed import MixedEngine
from gnnperf.api.placing import Placement, place, replayed
from gnnperf.api.prediction import Estimate, Prediction
from gnnperf.api.sharing import Shared, share_device
from gnnperf.api.step import (
    RankTimes,
    family_totals,
    interval,
    solve,
)
from gnnperf.errors import InputError, UnknownNameError
from gnnperf.graph import ExecutionGraph, Job, Rendezvous
from gnnperf.hardware import Hardware
from gnnperf.ops import Description, OpBatch, describe
from gnnperf.timeline.breakdown import breakdown
from gnnperf.timeline.host_speed import on_host, other_host
from gnnperf.timeline.replay import Result, StepSchedule, schedule_of

if TYPE_CHECKING:
    from gnnperf.nn.predict import KernelModel, OpPrediction

F64 = NDArray[np.float64]

HOST_BOUND, DEVICE_BOUND = 0.9, 0.1
"""Share of the step that stays with all device work at no time, from which a step is called
host-bound, and share of the step without device work up to which it is called device-bound."""


@dataclass(frozen=True)
class Options:
    """How a prediction is made."""

    kernel_scale: float = 1.0
    """all device work takes this many times as long"""
    details: bool = True
    """also the kernels, the critical path and the interval of the step"""
    contention: bool = True
    """works predicted alone that run side by side slow one another down"""
    evidence: float | None = None
    """how far kernel times of the trace are believed on the target, 0 to 1; None: as far as
    measured tables speak for it (0.75 on a GPU of the source's group, else 0)"""
    cpu: str | None = None
    """host of the target: a CPU of the catalogue, or its speed over the recorded one; None: the
    recorded one"""


class Predictor:
    """Predicts kernels and steps with one engine; without one it replays measured times."""

    def __init__(self, engine: Engine | None, model: "KernelModel | None" = None) -> None:
        self.engine, self.model = engine, model
        self.name = "measured" if engine is None else engine.name

    @classmethod
    def load(
        cls, checkpoint: str | Path | None = None, calibration: str | Path | None = None
    ) -> "Predictor":
        """The network of a checkpoint (None: the one that gnnperf ships).

        Raises:
            InputError: No checkpoint of gnnperf, or a newer format.
        """
        from gnnperf.nn.predict import KernelModel  # torch is not needed before

        model = KernelModel.load(default_checkpoint() if checkpoint is None else checkpoint)
        if calibration is not None:
            model = model.calibrated(calibration)
        return cls(MixedEngine(NetworkEngine(model)), model)

    @classmethod
    def of_engine(cls, name: str, checkpoint: str | Path | None = None) -> "Predictor":
        """The engine of that name: gnn, analytic or measured; raises UnknownNameError."""
        if name == "analytic":
            return cls(AnalyticEngine())
        if name == "measured":
            return cls(None)
        if name == "gnn":
            return cls.load(checkpoint)
        raise UnknownNameError("engine", name, ["analytic", "gnn", "measured"])

    def predict_ops(self, batch: OpBatch, hardware: Hardware, **how: Any) -> "OpPrediction":  # noqa: ANN401
        """Predict rows of device work; see `gnnperf.nn.predict.KernelModel.predict`."""
        if self.model is None:
            raise InputError(f"the {self.name} engine has no network", remedy="use gnn")
        return self.model.predict(batch, hardware, **how)

    def predict(
        self,
        graph: ExecutionGraph | Job,
        hardware: str | Hardware | None = None,
        options: Options | None = None,
        measured: tuple[float, str] | None = None,
    ) -> Prediction:
        """Predict one step; see `predict_with_timeline`."""
        return self.predict_with_timeline(graph, hardware, options, measured)[0]

    def predict_with_timeline(
        self,
        graph: ExecutionGraph | Job,
        hardware: str | Hardware | None = None,
        options: Options | None = None,
        measured: tuple[float, str] | None = None,
    ) -> tuple[Prediction, Result]:
        """Predict one step, and give the timeline behind it.

        Args:
            graph: A graph, or a job of one step (a graph per rank).
            hardware: Device to predict for; default: the one that ran the trace.
            options: Scale of device work, and how much is computed.
            measured: A measured step time in us and how it was measured, to be shown beside the
                prediction instead of the trace's own.

        Raises:
            InputError: Unknown hardware, or a graph that cannot be put on it.
        """
        options = options or Options()
        job = graph if isinstance(graph, Job) else Job((graph,), Rendezvous.none())
        put = replayed if self.engine is None else place
        placed = put(job, hardware)
        ranks, warnings = self._rank_times(placed, options.evidence)
        step, said = _scheduled(placed, options.cpu)
        warnings += said
        shared = self._run(step, placed, ranks, options)
        solved = Solved(job, placed, shared.ranks, shared.result, shared.added_us)
        warnings += shared.warnings
        return self._prediction(solved, options, measured, warnings), shared.result

    def _run(
        self, step: StepSchedule, placed: Placement, ranks: list[RankTimes], options: Options
    ) -> Shared:
        """The timeline; measured times, and those of a host, hold what ran beside them."""
        scale = options.kernel_scale
        if options.contention and self.engine is not None and not placed.on_host:
            return share_device(step, placed, ranks, scale, options.evidence)
        return Shared(solve(step, ranks, [r.time_us for r in ranks], scale), tuple(ranks), 0.0)

    def _rank_times(
        self, placed: Placement, trust: float | None
    ) -> tuple[list[RankTimes], list[str]]:
        ranks, warnings = [], Counter[str]()
        for graph in placed.job.graphs:
            described = describe(graph)
            measured = graph.nodes.duration_us[described.node]
            times = self._times(graph, described, placed, trust)
            for line in times.warnings:
                warnings[line] += 1
            for what, count in described.assumed.items():
                warnings[f"assumed: {what} ({count} ops)"] += 1
            shown = np.full(len(measured), np.nan) if placed.moved else measured
            ranks.append(RankTimes(described, times.time_us, times.low_us, times.high_us, shown))
        return ranks, [w if n == 1 else f"{w} [on {n} ranks]" for w, n in warnings.items()]

    def _times(
        self, graph: ExecutionGraph, described: Description, placed: Placement, trust: float | None
    ) -> Times:
        measured = graph.nodes.duration_us[described.node]
        if self.engine is None or placed.target is None:
            return Times(measured, measured, measured, COVERAGE)
        times = self.engine.times(graph, described, placed.target)
        rows = rows_with_evidence(graph, described, measured)
        if rows.any() and not placed.on_host:
            evidence = evidence_of(placed.own, placed.target, trust)
            if evidence.source is not None and evidence.trust > 0:
                source = (
                    times if evidence.same else self.engine.times(graph, described, evidence.source)
                )
                times = use_evidence(times, source.time_us, measured, rows, evidence)
            said = [told(evidence, int(rows.sum()))]
            library = of_libraries(graph, described) if placed.moved else 0
            if library:
                said.append(f"{library} library kernels are timed by their op, not by their name")
            times = replace(times, warnings=(*times.warnings, *said))
        absent = len(placed.job.graphs) < graph.meta.world_size
        times = with_waits(times, described, measured, same=not placed.moved, absent=absent)
        return fill_unknown(times, described, measured, placed.own, placed.target)

    def _prediction(
        self,
        solved: "Solved",
        options: Options,
        measured: tuple[float, str] | None,
        notes: list[str],
    ) -> Prediction:
        placed, result = solved.placed, solved.result
        job = placed.job
        if placed.moved:
            measured = None
        elif measured is None:
            measured = measured_step(solved.traced, result)
        predicted, scale = result.iteration_us, options.kernel_scale
        low, high = predicted, predicted
        if options.details:
            low, high = interval(result.step, solved.ranks, scale, predicted)
        unknown: Counter[str] = Counter()
        for rank in solved.ranks:
            unknown.update(rank.described.unknown)
        parts = breakdown(result) | {"contention": solved.contention_us}
        more = details_of(result, solved.ranks) if options.details else Details()
        warnings = [w for g in job.graphs for w in g.meta.warnings]
        warnings += [f"timeline: {a}, since the trace does not show it" for a in result.assumed]
        warnings += [*placed.notes, *notes]
        return Prediction(
            iteration_time_us=Estimate(
                predicted, low, high, COVERAGE, None if measured is None else measured[0]
            ),
            breakdown_us=parts,
            by_family=family_totals(solved.ranks),
            by_phase=more.by_phase,
            by_scope=more.by_scope,
            kernels=more.kernels,
            critical_path=more.critical_path,
            savings=more.savings,
            warnings=tuple(dict.fromkeys(warnings)),
            unknown_ops=dict(sorted(unknown.items())),
            provenance=self._provenance(solved, measured, parts),
        )

    def _provenance(
        self, solved: "Solved", measured: tuple[float, str] | None, parts: dict[str, float]
    ) -> dict[str, Any]:
        placed = solved.placed
        metas = [g.meta for g in placed.job.graphs]
        checkpoint = None if self.model is None else self.model.identity
        return {
            "source": ", ".join(dict.fromkeys(Path(m.source).name for m in metas)),
            "trace_sha256": list(dict.fromkeys(m.sha256 for m in metas)),
            "ranks": [m.rank for m in metas],
            "step_name": metas[0].step_name or "the whole trace",
            "step_choice": dict(metas[0].notes).get(CHOICE, "given"),
            "engine": self.name,
            "checkpoint": checkpoint,
            "hardware": placed.label,
            "moved": placed.moved,
            "how": solved.result.how,
            "scopes": scopes_of(solved.result),
            "bound": bound_of(solved, parts),
            "measured_how": None if measured is None else measured[1],
            "versions": {
                "gnnperf": version("gnnperf"),
                "python": machine.python_version(),
                "numpy": np.__version__,
            },
        }


@dataclass(frozen=True, eq=False)
class Solved:
    """A job on a device, its times, its timeline."""

    traced: Job
    """as it was read"""
    placed: Placement
    ranks: Sequence[RankTimes]
    result: Result
    contention_us: float
    """what works that run side by side add to the step"""


def _scheduled(placed: Placement, cpu: str | None) -> tuple[StepSchedule, list[str]]:
    """The step on its host, and what was done to the host's times."""
    if cpu is None:
        return schedule_of(placed.job), []
    if placed.on_host:
        raise InputError(
            "the step runs on the host itself: another CPU is another --hardware", field="--cpu"
        )
    host = other_host(cpu, placed.job.graphs[0].meta.host_cpu, placed.own)
    step = schedule_of(placed.job, host=host.side)
    return on_host(step, host.scale), [host.told]


def default_checkpoint() -> Path:
    """The checkpoint that gnnperf ships: beside the package, or below the working directory.

    Raises:
        InputError: There is none.
    """
    for root in (Path(__file__).parents[2], Path.cwd()):
        path = root / "checkpoints" / "default"
        if path.is_dir():
            return path
    raise InputError(
        "no default checkpoint beside the package or in ./checkpoints/default",
        remedy="give --checkpoint, or use --engine analytic",
    )


def measured_step(traced: Job, result: Result) -> tuple[float, str] | None:
    """What the trace itself measured of that which the timeline computes, the median of ranks."""
    metas = [g.meta for g in traced.graphs]
    if all(m.device_type == "cpu" for m in metas):
        times, what = [m.host_step_us for m in metas], "step on the host"
    elif result.step.periodic:
        times = [m.device_period_us for m in metas]
        what = "first kernel of the step to first kernel of the next"
        if not np.isfinite(times).any():
            times, what = [m.host_step_us for m in metas], "step on the host"
    else:
        times, what = [m.device_span_us for m in metas], "first to last kernel of the step"
    known = [t for t in times if np.isfinite(t) and t > 0]
    return (float(np.median(known)), f"{what}, under the profiler") if known else None


def bound_of(solved: Solved, parts: dict[str, float]) -> str:
    """In words: does the host or the device set the time of the step?"""
    if solved.placed.on_host:
        return "runs on the host"
    whole = solved.result.iteration_us or 1.0
    free = solve(solved.result.step, solved.ranks, [r.time_us for r in solved.ranks], 0.0)
    idle = parts["host_bound_idle"] / whole
    if free.iteration_us >= HOST_BOUND * whole:
        return f"host-bound (with free device work it would take {free.iteration_us / whole:.0%})"
    if idle <= DEVICE_BOUND:
        return f"device-bound (the device idles {idle:.0%} of the step)"
    return f"bound by both (the device idles {idle:.0%} of the step)"
