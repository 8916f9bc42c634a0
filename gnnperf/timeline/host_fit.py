"""Fit the host model: `python -m gnnperf.timeline.host_fit FOLDER... --out host.yaml`.

A folder holds sets of traces of GPUs, or own recordings with their manifest (these tell what the
profiler adds on a CPU, and nothing else). Every set gives the mean host time of each op that it
holds; these are explained as (cost of the op) times (factor of the set's host), with a loss that
an odd trace or an op that computes on the CPU does not bend.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import yaml

from gnnperf.errors import GnnperfError, InputError
from gnnperf.graph import ExecutionGraph, Job, NodeKind
from gnnperf.graph.model import F64, ON_HOST
from gnnperf.recording.manifest import NAME as MANIFEST
from gnnperf.timeline.host_classes import host_class
from gnnperf.timeline.host_measure import HostRecords, host_records
from gnnperf.timeline.host_model import HostModel, OpCost, Profiler
from gnnperf.timeline.host_profiler import fit_overhead
from gnnperf.timeline.table import trace_files
from gnnperf.traces import read_job, steady_steps

PARTS = ("before_us", "between_us", "after_us", "gap_us", "launches")
LEAST_LAUNCHES = 30
"""Fewer calls that launch in a step: nothing to learn from."""
STALLED_US = 1000.0
"""More host time per launch is no host at work: such a step is left out."""
LEAST_COUNT, LEAST_SETS = 20, 3
"""Ops and sets of an op name that has a cost of its own."""
WEIGHT = 50
"""Ops of one name and set from which on more do not count for more."""
OUTLIER = 5.0
"""A time over so many medians of its name (+ 10 us) counts as that much: a stall."""
SOFT = 0.2
"""Difference of logarithms of two times that is still noise."""
MOST_LEVEL = 4.0
"""Logarithm of a time (55 us) from which on longer ops do not count for more."""
ODD = 3.0
"""A set whose time of an op is so many times off the others' is left out for that op's parts."""
PROFILED_LAUNCH = 0.6
"""Share of a profiled launch that is the profiler's: 2 us for the call and 4 us for the record of
its kernel, of 10 us (Lin et al.'s code, T4)."""
EVENT_US = 2.0
"""What the profiler adds to a host event beside a GPU (Lin et al.'s code; docs/host.md)."""


@dataclass(frozen=True, eq=False)
class SetRecords:
    """What one set of traces tells: a row per op name."""

    name: str
    ops: tuple[str, ...]
    count: F64
    """[k] ops of the name"""
    total_us: F64
    """[k] mean of all host time of the op, gap included"""
    parts: dict[str, F64]
    """[k] means of `PARTS` (the gap: of those at top level)"""
    launch_us: float
    work_us: float
    """host time of a step per device work"""


def set_records(name: str, graphs: Sequence[ExecutionGraph]) -> SetRecords | None:
    """The records of a set's steps; None where they have no host side to learn from."""
    rows: dict[str, list[F64]] = {}
    launches: list[float] = []
    work, count = 0.0, 0
    for graph in graphs:
        if not _has_host_side(graph):
            continue
        records = host_records(graph)
        if records.total_us > STALLED_US * len(records.launch_us):
            continue
        launches += records.launch_us.tolist()
        work, count = work + records.total_us, count + len(graph.device_nodes)
        for text, row in _by_name(records):
            rows.setdefault(text, []).append(row)
    if not rows:
        return None
    table = np.array([np.sum(r, axis=0) for r in rows.values()])
    number, tops, inside = table[:, 0], table[:, 1], table[:, 2]
    sums = dict(zip(PARTS, table[:, 3:].T, strict=True))
    total = sum(sums[k] for k in PARTS[:4]) / number
    divisor = {"between_us": inside, "gap_us": tops}
    parts = {k: v / np.maximum(divisor.get(k, number), 1e-9) for k, v in sums.items()}
    for key, many in divisor.items():
        parts[key] = np.where(many > 0, parts[key], np.nan)
    return SetRecords(
        name,
        tuple(rows),
        number,
        np.asarray(total, np.float64),
        parts,
        _trimmed(np.array(launches)),
        work / count,
    )


def _has_host_side(graph: ExecutionGraph) -> bool:
    nodes, device = graph.nodes, graph.device_nodes
    host = nodes.kind == NodeKind.HOST_OP
    if not host.any() or not np.isfinite(nodes.start_us[host]).all():
        return False
    linked = nodes.launch[device]
    return len(np.unique(linked[linked >= 0])) >= LEAST_LAUNCHES


def _by_name(records: HostRecords) -> list[tuple[str, F64]]:
    """For each op name: ops, ops at top level, things inside, and the sums of `PARTS`."""
    distinct, which = np.unique(records.name, return_inverse=True)
    found = []
    for index, name in enumerate(distinct.tolist()):
        if records.names[name].endswith(ON_HOST):  # what it computes there is no cost of a host
            continue
        own = np.flatnonzero(which == index)
        gaps = records.gap_us[own]
        gaps = gaps[np.isfinite(gaps)]
        sums = [
            _bounded(records.before_us[own]).sum(),
            _bounded(records.between_us[own]).sum(),
            _bounded(records.after_us[own]).sum(),
            gaps.sum(),
            records.launches[own].sum(),
        ]
        head = [len(own), len(gaps), records.inside[own].sum()]
        found.append((records.names[name], np.array(head + sums, np.float64)))
    return found


def _bounded(values: F64) -> F64:
    return np.minimum(values, OUTLIER * float(np.median(values)) + 10.0)


def _trimmed(values: F64) -> float:
    """Mean without the lowest and the highest tenth."""
    low, high = np.quantile(values, [0.1, 0.9])
    return float(values[(values >= low) & (values <= high)].mean())


def weighted_median(values: F64, weights: F64) -> float:
    """The value at half of the weight."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])


def fit_host(sets: Sequence[SetRecords], recorded_us: float = EVENT_US) -> HostModel:
    """The host model of some sets of traces.

    Args:
        sets: What the sets tell.
        recorded_us: What the profiler adds to a host event of a step on the CPU.

    Raises:
        GnnperfError: No sets.
    """
    if not sets:
        raise GnnperfError("no set of traces with host ops and the launches of device work")
    ops = sorted({text for s in sets for text in s.ops})
    row = {text: i for i, text in enumerate(ops)}
    time = np.full((len(sets), len(ops)), np.nan)
    weight = np.zeros_like(time)
    for i, each in enumerate(sets):
        at = [row[text] for text in each.ops]
        time[i, at] = np.maximum(each.total_us, 0.1)
        weight[i, at] = np.minimum(each.count, WEIGHT)
    factor = _factors(time, weight)
    members: dict[str, list[int]] = {}
    for text, index in row.items():
        members.setdefault(host_class(text), []).append(index)
    classes = {
        key: _cost(sets, factor, [ops[i] for i in found]) for key, found in sorted(members.items())
    }
    names = {text: _cost(sets, factor, [text]) for text in ops}
    launch = float(np.median(np.array([s.launch_us for s in sets]) / factor))
    work = np.array([s.work_us for s in sets]) / factor
    return HostModel(
        launch_us=round(launch, 3),
        work_us=round(float(np.median(work)), 3),
        profiler=Profiler(EVENT_US, round(PROFILED_LAUNCH * launch, 3), round(recorded_us, 3)),
        classes=classes,
        names={k: c for k, c in names.items() if c.count >= LEAST_COUNT and c.traces >= LEAST_SETS},
        default=_cost(sets, factor, ops),
        factors={s.name: round(float(f), 3) for s, f in zip(sets, factor, strict=True)},
    )


def _factors(time: F64, weight: F64, rounds: int = 100) -> F64:
    """[s] the factor of each set's host; their median is 1.

    log time of an op in a set = level of the op + shift of the set, by turns, each a mean
    weighted by time; a residual counts in proportion to its size only up to `SOFT` (Huber).
    """
    log = np.log(time)
    known = np.isfinite(log) & (np.isfinite(log).sum(axis=0) >= 2)
    log = np.where(known, log, 0.0)
    share = np.where(known, weight, 0.0)
    shift, level = np.zeros(len(log)), np.zeros(log.shape[1])
    for _ in range(rounds):
        firm = share / np.maximum(np.abs(log - shift[:, None] - level), SOFT)
        level = _row_means(log.T - shift, firm.T)
        shift = _row_means(log - level, firm * np.exp(np.minimum(level, MOST_LEVEL)))
        shift -= np.median(shift)
    return np.asarray(np.exp(shift), np.float64)


def _row_means(values: F64, weights: F64) -> F64:
    total = weights.sum(axis=1)
    mean = (values * weights).sum(axis=1) / np.where(total > 0, total, 1.0)
    return np.asarray(np.where(total > 0, mean, 0.0), np.float64)


def _cost(sets: Sequence[SetRecords], factor: F64, ops: Sequence[str]) -> OpCost:
    """Cost of some ops together: means over the sets, odd sets left out."""
    wanted = set(ops)
    rows = []
    for each, f in zip(sets, factor, strict=True):
        own = np.array([i for i, text in enumerate(each.ops) if text in wanted], np.int64)
        if not len(own):
            continue
        many = each.count[own]
        values = [_mean(each.parts[k][own], many) / (1 if k == "launches" else f) for k in PARTS]
        rows.append([many.sum(), float(np.average(each.total_us[own], weights=many)) / f, *values])
    table = np.array(rows)
    weight = np.minimum(table[:, 0], WEIGHT)
    middle = weighted_median(table[:, 1], weight)
    fair = (table[:, 1] <= ODD * middle) & (table[:, 1] >= middle / ODD)
    means = [_mean(table[fair, 2 + i], weight[fair]) for i in range(len(PARTS))]
    fitted = {k: round(v, 3) for k, v in zip(PARTS, np.nan_to_num(means).tolist(), strict=True)}
    return OpCost(**fitted, count=int(table[:, 0].sum()), traces=len(table))


def _mean(values: F64, weights: F64) -> float:
    own = np.isfinite(values)
    return float(np.average(values[own], weights=weights[own])) if own.any() else float("nan")


def folders_of(folder: Path) -> list[Path]:
    """The sets of a folder, one each.

    Raises:
        InputError: There are none.
    """
    found = sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    if not found:
        raise InputError("holds no folders of traces", path=folder, remedy="give the folder above")
    return found


def read_sets(folder: Path) -> dict[str, Job]:
    """The steady steps of the readable sets of a folder; none of own recordings on a CPU."""
    jobs: dict[str, Job] = {}
    for path in folders_of(folder):
        try:
            job = read_job(trace_files(path))
        except InputError as why:
            sys.stderr.write(f"left out {path.name}: {why}\n")
            continue
        steps = steady_steps(job)
        graphs = tuple(g for g in job.graphs if g.meta.step in steps)
        if any(len(g.device_nodes) for g in graphs):
            jobs[path.name] = Job(graphs)
    return jobs


def all_records(folders: Sequence[Path]) -> list[SetRecords]:
    """The records of every set of some folders that has a host side."""
    found = []
    for folder in folders:
        for name, job in read_sets(folder).items():
            records = set_records(name, job.graphs)
            if records is not None:
                found.append(records)
    return found


def recorded_us(folders: Sequence[Path]) -> float:
    """What the profiler adds to a host event by the first folder of recordings, else `EVENT_US`."""
    recorded = [f for f in folders if (f / MANIFEST).is_file()]
    return fit_overhead(recorded[0]).event_us if recorded else EVENT_US


def save_host_model(model: HostModel, path: Path) -> None:
    """Write a model as YAML."""
    head = (
        "# Host times of ops, fitted by `python -m gnnperf.timeline.host_fit`; docs/host.md.\n"
        "# Microseconds under the profiler on a host of factor 1 (the median of the sets).\n"
    )
    text = yaml.safe_dump(asdict(model), sort_keys=False, default_flow_style=None, width=100)
    path.write_text(head + text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Fit and write; 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(prog="python -m gnnperf.timeline.host_fit")
    parser.add_argument("folders", nargs="+", type=Path, help="folders of sets of traces")
    parser.add_argument("--out", type=Path, required=True, help="YAML file to write")
    args = parser.parse_args(arguments)
    try:
        sets = all_records(args.folders)
        fitted = fit_host(sets, recorded_us(args.folders))
    except GnnperfError as why:
        sys.stderr.write(f"{why}\n")
        return 2
    used = ", ".join(f"{s.name} ({int(s.count.sum())} ops)" for s in sets)
    command = "python -m gnnperf.timeline.host_fit " + " ".join(arguments)
    fitted = replace(fitted, provenance={"traces": used, "command": command})
    save_host_model(fitted, args.out)
    sys.stdout.write(f"{len(fitted.classes)} classes, {len(fitted.names)} names: {args.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
