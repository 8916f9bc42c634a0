"""The tables of docs/host.md: `python -m gnnperf.timeline.host_table FOLDER...`.

Of a folder of traces of GPUs: each set's host time, predicted from the sequence of its ops by a
model of all other sets; and the rank's steps of `ET_SET` from their execution traces alone. Of
own recordings on a CPU: their unprofiled steps by the profiled ones.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnperf.errors import InputError
from gnnperf.graph import ExecutionGraph, Job, NodeKind, Rendezvous
from gnnperf.graph.model import F64, I64, ON_HOST
from gnnperf.ops.lower import lower
from gnnperf.recording.manifest import NAME as MANIFEST
from gnnperf.recording.manifest import Recording, read_manifest
from gnnperf.timeline.host_fit import SetRecords, all_records, fit_host, read_sets, set_records
from gnnperf.timeline.host_measure import Forest, forest, host_records
from gnnperf.timeline.host_model import HostModel, HostSide, host_factor, host_times
from gnnperf.timeline.host_profiler import fit_overhead, without_profiler
from gnnperf.timeline.hostless import HostDefaults
from gnnperf.timeline.replay import run, schedule_of
from gnnperf.timeline.table import trace_files
from gnnperf.traces import read_job

ET_SET = "param_dlrm8"
"""A set with traces and execution traces of the same steps of eight ranks."""
MOST_STEPS = 6
"""Steps of a set that are looked at."""


@dataclass(frozen=True)
class HostRow:
    """Host time of a step of one set, milliseconds; medians over its steps and ranks."""

    name: str
    free_ms: float
    """the step replayed with all device work free: its host alone, with all that it does"""
    ops_ms: float
    """of its ops, launches and the gaps between them (gaps over 200 us left out)"""
    constant_ms: float
    """25 us per op that launches, 4 us per further launch"""
    pooled_ms: float
    """mean per name of top-level op over the other sets, as in the paper"""
    typical_ms: float
    """this model, factor 1"""
    known_ms: float
    """this model, with the factor of the set's own host"""
    factor: float


@dataclass(frozen=True, eq=False)
class _Pool:
    """The paper's scheme: samples of one set."""

    ops: dict[str, F64]
    """host time of each op at top level by name, with what is inside, without launches"""
    gap_us: F64
    launch_us: F64


def _pool(graphs: Sequence[ExecutionGraph]) -> _Pool:
    ops: dict[str, list[float]] = {}
    gaps, launches = [], []
    for graph in graphs:
        records, tree = host_records(graph), forest(graph)
        top = np.flatnonzero(tree.parent < 0)
        inside = np.bincount(_tops(tree), records.own_us, len(tree.node))[top]
        for name, us in zip(records.name[top].tolist(), inside.tolist(), strict=True):
            ops.setdefault(records.names[name].removesuffix(ON_HOST), []).append(us)
        gaps.append(records.gap_us[np.isfinite(records.gap_us)])
        launches.append(records.launch_us)
    return _Pool(
        {k: np.array(v) for k, v in ops.items()}, np.concatenate(gaps), np.concatenate(launches)
    )


def _tops(tree: Forest) -> I64:
    """[h] the row at top level that each op is in, by pointer doubling."""
    top = np.where(tree.parent < 0, np.arange(len(tree.parent)), tree.parent)
    while not np.array_equal(top, top[top]):
        top = top[top]
    return top


def _mean(values: Sequence[F64]) -> float:
    """Mean without outliers (1.5 times the range of the quartiles, as in the paper's code)."""
    pooled = np.concatenate(values)
    low, high = np.quantile(pooled, [0.25, 0.75])
    width = 1.5 * (high - low)
    return float(pooled[(pooled >= low - width) & (pooled <= high + width)].mean())


def _pooled_us(graph: ExecutionGraph, pools: Sequence[_Pool]) -> float:
    """Host time of a step by the paper's scheme; an op that the pools lack costs its gap only."""
    tree = forest(graph)
    top = tree.node[tree.parent < 0]
    time = _mean([p.gap_us for p in pools]) * len(top)
    time += _mean([p.launch_us for p in pools]) * len(launched(graph))
    names, counts = np.unique(graph.nodes.name[top], return_counts=True)
    for name, many in zip(names.tolist(), counts.tolist(), strict=True):
        text = graph.strings[name]
        samples = [p.ops[text] for p in pools if text in p.ops]
        if samples:
            time += many * _mean(samples)
    return time


def launched(graph: ExecutionGraph) -> I64:
    """Device works with a launch in the trace, one of each launch, in order of launches."""
    nodes = graph.nodes
    device = graph.device_nodes
    device = device[nodes.launch[device] >= 0]
    _, first = np.unique(nodes.launch[device], return_index=True)
    device = device[first]
    return device[np.argsort(nodes.start_us[nodes.launch[device]], kind="stable")]


def _free_us(graph: ExecutionGraph) -> float:
    step = schedule_of(Job((graph,), Rendezvous.none()))
    return run(step, kernel_scale=0.0).iteration_us


def host_rows(folders: Sequence[Path]) -> list[HostRow]:
    """A row per set with a host side and device work, each by a model of the other sets."""
    graphs: dict[str, list[ExecutionGraph]] = {}
    records: dict[str, SetRecords] = {}
    for folder in folders:
        for name, job in read_sets(folder).items():
            found = set_records(name, job.graphs)
            if found is not None:
                records[name] = found
                graphs[name] = _some(job.graphs)
    pools = {n: _pool(graphs[n]) for n in graphs}
    rows = []
    for name in graphs:
        model = fit_host([r for n, r in records.items() if n != name])
        others = [p for n, p in pools.items() if n != name]
        table = [_figures(g, model, others) for g in graphs[name]]
        rows.append(HostRow(name, *np.median(np.array(table), axis=0).tolist()))
    return rows


def _some(graphs: Sequence[ExecutionGraph]) -> list[ExecutionGraph]:
    chosen = np.unique(np.linspace(0, len(graphs) - 1, min(MOST_STEPS, len(graphs))).round())
    return [graphs[int(i)] for i in chosen]


def _figures(graph: ExecutionGraph, model: HostModel, pools: Sequence[_Pool]) -> list[float]:
    works = launched(graph)
    factor = host_factor(graph, model)
    typical = host_times(graph, works, HostSide(profiled=True, model=model)).total_us
    op = graph.nodes.op[works]
    ops = 1 + int((op[1:] != op[:-1]).sum())
    host = HostDefaults()
    constant = host.op_us * ops + host.launch_us * len(works)
    us = [
        _free_us(graph),
        host_records(graph).total_us,
        constant,
        _pooled_us(graph, pools),
        typical,
        factor * typical,
    ]
    return [t / 1e3 for t in us] + [factor]


@dataclass(frozen=True)
class EtRow:
    """The step of one rank from its execution trace alone, milliseconds, under the profiler."""

    rank: int
    measured_ms: float
    """first op of the rank that began last to the end of the rank's own last kernel"""
    predicted_ms: float
    """from its first op to its last launch: the step is host-bound by far"""
    constant_ms: float
    """the same with 25 us per op that launches"""


def et_rows(folder: Path, sets: Sequence[SetRecords]) -> list[EtRow]:
    """Steps of `ET_SET` by a model of the other sets; device work is taken as free."""
    model = fit_host([s for s in sets if s.name != ET_SET])
    own = folder / ET_SET
    begin, end = [], {}
    for graph in read_job(trace_files(own)).graphs:
        nodes, work = graph.nodes, launched(graph)
        ops = graph.is_kind(NodeKind.HOST_OP)
        begin.append(graph.meta.step_start_us + float(nodes.start_us[ops].min()))
        last = nodes.start_us[work] + nodes.duration_us[work]
        end[graph.meta.rank] = graph.meta.step_start_us + float(last.max())
    together = max(begin)
    rows = []
    for graph in read_job(sorted(own.glob("*_et.*"))).graphs:
        step = lower(graph)
        works = step.device_nodes
        times = host_times(step, works, HostSide(profiled=True, model=model))
        span = times.total_us - times.tail_us
        host = HostDefaults()
        constant = (host.op_us + host.launch_us) * len(works)
        rank = step.meta.rank
        rows.append(EtRow(rank, (end[rank] - together) / 1e3, span / 1e3, constant / 1e3))
    return rows


@dataclass(frozen=True)
class RecordedRow:
    """A workload on the CPU, milliseconds."""

    name: str
    measured_ms: float
    """median iteration without a profiler"""
    profiled_ms: float
    """its traced steps replayed, the median"""
    predicted_ms: float
    """the same without the profiler, whose cost is of the other workloads"""
    spread_pct: float
    """half of the range from 10 % to 90 % of the unprofiled iterations"""


def recorded_rows(folder: Path) -> list[RecordedRow]:
    """A row per recording of a folder with a manifest."""
    cost = fit_overhead(folder)
    found = read_manifest(folder).recordings
    return [_recorded(folder, r, cost.without(r.name)) for r in found]


def _recorded(folder: Path, recording: Recording, event_us: float) -> RecordedRow:
    job = read_job([folder / f.file for f in recording.files if f.kind == "kineto"])
    times = []
    for number in job.steps:
        step = job.of_step(number)
        bare = replace(step, graphs=tuple(without_profiler(g, event_us) for g in step.graphs))
        times.append([run(schedule_of(j)).iteration_us / 1e3 for j in (step, bare)])
    profiled, predicted = np.median(np.array(times), axis=0).tolist()
    measured = recording.measured
    return RecordedRow(
        recording.name, measured.median_us / 1e3, profiled, predicted, 100 * measured.spread
    )


def _error(value: float, reference: float) -> str:
    return f"{100 * (value / reference - 1):+.0f} %"


def _print(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    lines += [" | ".join(row) for row in rows]
    sys.stdout.write("\n".join(f"| {line} |" for line in lines) + "\n\n")


def _summary(label: str, values: Sequence[float], references: Sequence[float]) -> None:
    error = 100 * np.abs(np.array(values) / np.array(references) - 1)
    middle = np.exp(np.log(np.maximum(error, 0.04)).mean())
    sys.stdout.write(
        f"{label}: |error| median {np.median(error):.1f} %, geometric mean {middle:.1f} %, "
        f"mean {error.mean():.1f} %, largest {error.max():.0f} %\n"
    )


SCHEMES = {
    "constant": "constant_ms",
    "pooled": "pooled_ms",
    "model": "typical_ms",
    "model, host known": "known_ms",
}


def print_traces(folder: Path) -> None:
    """The tables of a folder of traces of GPUs."""
    rows = host_rows([folder])
    cells = [
        [r.name, f"{r.free_ms:.1f}", f"{r.ops_ms:.1f}", f"{r.factor:.2f}"]
        + [_error(getattr(r, key), r.free_ms) for key in SCHEMES.values()]
        for r in rows
    ]
    _print(["set", "host ms", "of its ops", "factor", *SCHEMES], cells)
    for label, key in SCHEMES.items():
        values = [getattr(r, key) for r in rows]
        _summary(f"{label}, of the host", values, [r.free_ms for r in rows])
        _summary(f"{label}, of its ops", values, [r.ops_ms for r in rows])
    if (folder / ET_SET).is_dir():
        ranks = et_rows(folder, all_records([folder]))
        _print(
            ["rank", "measured", "model", "constant"],
            [
                [
                    str(r.rank),
                    f"{r.measured_ms:.2f}",
                    _error(r.predicted_ms, r.measured_ms),
                    _error(r.constant_ms, r.measured_ms),
                ]
                for r in ranks
            ],
        )


def print_recordings(folder: Path) -> None:
    """The table of own recordings."""
    rows = recorded_rows(folder)
    reference = [r.measured_ms for r in rows]
    _print(
        ["workload", "unprofiled ms", "spread", "profiled", "without the profiler"],
        [
            [
                r.name,
                f"{r.measured_ms:.2f}",
                f"{r.spread_pct:.0f} %",
                _error(r.profiled_ms, r.measured_ms),
                _error(r.predicted_ms, r.measured_ms),
            ]
            for r in rows
        ],
    )
    _summary("profiled", [r.profiled_ms for r in rows], reference)
    _summary("without the profiler", [r.predicted_ms for r in rows], reference)


def main(arguments: Sequence[str]) -> int:
    """Print the tables of each folder."""
    if not arguments:
        sys.stderr.write("usage: python -m gnnperf.timeline.host_table FOLDER...\n")
        return 2
    try:
        for argument in arguments:
            folder = Path(argument)
            show = print_recordings if (folder / MANIFEST).is_file() else print_traces
            show(folder)
    except InputError as why:
        sys.stderr.write(f"{why}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
