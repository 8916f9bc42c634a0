"""Fits the coefficients of `collectives.yaml`.

`python -m gnnperf.analytic.collective_fit DATA [OUT]`; DATA is a folder with
`multigpu/collectives.csv`, `aiconfigurator/collectives.csv.gz` and
`pipeweave/collectives.csv.gz`. Prints the errors with each generation of links left out, and
with each platform left out.
"""

import csv
import gzip
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from gnnperf.analytic.collectives import FITTED, Coefficients, Terms, evaluate
from gnnperf.analytic.sigmoid import fit_sigmoid, sigmoid_time_us
from gnnperf.analytic.sweeps import OVER_NODES, SIZE_NAMES, Case, read_cases, size_class
from gnnperf.analytic.wiring import BRIDGE

F64 = NDArray[np.float64]

TABLES = (
    "multigpu/collectives.csv",
    "aiconfigurator/collectives.csv.gz",
    "pipeweave/collectives.csv.gz",
)
START = Coefficients(
    start=(2.5, 2.3, 2.3, 3.4, 2.5),
    hop=(0.5, 0.5, 0.5, 0.1, 0.1),
    full=(1.2, 1.3, 1.3, 1.4, 1.2),
    few=(0.2, 0.6, 0.5, 0.3, 0.1),
    ramp=(3.0, 3.0, 3.0, 3.0, 2.0),
    pcie=2.0,
    narrow=1.04,
    in_switch=0.8,
    net_start=10.0,
    net_full=1.25,
    net_ramp=5.0,
)
"""Where the fit begins: read off the sweeps of H100 and A100 by eye."""
RIDGE = 0.05
"""Weight of the distance (in logarithms) from START, against coefficients that no row shows."""


def read_rows(folder: Path, every: bool = False) -> list[dict[str, str]]:
    """Rows of the three tables that tell the time of NCCL (or oneCCL), each once.

    Left out, here and in the scores: other libraries' one-shot kernels, pipeweave's H100 pairs
    (the data's own notes doubt them), and what the profiler-based sources (vidur, pipeweave)
    say below 1 MiB, where most of the time is waiting for the slower rank; vidur's A100 pairs of
    nodes, whose network is not stated, and its A40 pairs, which did not use their bridge (4 GB/s).
    `every` keeps all of them.
    """
    seen: set[tuple[str, ...]] = set()
    rows = []
    for name in TABLES:
        path = folder / name
        with gzip.open(path, "rt") if name.endswith("gz") else path.open() as file:
            for row in csv.DictReader(file):
                source = row.get("source") or row.get("source_file") or ""
                key = (row["bytes"], row["time_us"], row["collective"], row["n_gpus"])
                if key in seen or not (every or _fair(row, source)):
                    continue
                seen.add(key)
                rows.append(row)
    return rows


def _fair(row: dict[str, str], source: str) -> bool:
    profiled = "vidur" in source or "dataset/collective" in source
    if row.get("library", "nccl") != "nccl":
        return False
    if row["gpu"] == "H100" and row["n_gpus"] == "2" and "dataset/collective" in source:
        return False
    unstated_network = "vidur" in source and row.get("nodes") == "2" and row["gpu"] != "H100"
    if unstated_network or row["gpu"] == "A40":
        return False
    return not (profiled and float(row["bytes"]) < 2**20)


def fit(cases: Sequence[Case]) -> Coefficients:
    """Coefficients by damped least squares (Levenberg, Marquardt) on log ratios, softened."""
    weights = np.concatenate(_weights(cases))
    target = np.concatenate([np.log(case.measured_us) for case in cases])

    def residual(p: F64) -> F64:
        c = unpack(p)
        model = np.concatenate([np.log(evaluate(c, case.terms)) for case in cases])
        r = model - target
        soft: F64 = np.sqrt(2 * (np.sqrt(1 + (r / 0.2) ** 2) - 1)) * 0.2 * np.sign(r)
        return np.concatenate([soft * weights, RIDGE * (p - pack(START))])

    return unpack(least_squares(residual, pack(START)))


def least_squares(residual: Callable[[F64], F64], start: F64, steps: int = 40) -> F64:
    """The minimum of the sum of squares near `start`, by Levenberg and Marquardt's method."""
    p, r, damping = start.copy(), residual(start), 1e-2
    for _ in range(steps):
        columns = [(residual(p + 1e-4 * unit) - r) / 1e-4 for unit in np.eye(len(p))]
        jacobian = np.stack(columns, axis=1)
        normal, slope = jacobian.T @ jacobian, jacobian.T @ r
        before = float(r @ r)
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -slope)
            trial = residual(p + step)
            if float(trial @ trial) < before:
                p, r, damping = p + step, trial, damping / 4
                break
            damping *= 4
        if before - float(r @ r) < 1e-7 * before:
            return p
    return p


def pack(c: Coefficients) -> F64:
    """Logarithms of all coefficients in a row; all of them are positive."""
    parts = [np.atleast_1d(np.asarray(getattr(c, f.name), np.float64)) for f in fields(c)]
    packed: F64 = np.log(np.concatenate(parts))
    return packed


def unpack(p: F64) -> Coefficients:
    """The inverse of `pack`."""
    values, at = np.exp(p), 0
    parts: dict[str, Any] = {}
    for f in fields(Coefficients):
        size = np.atleast_1d(getattr(START, f.name)).size
        part = values[at : at + size]
        parts[f.name] = tuple(map(float, part)) if size > 1 else float(part[0])
        at += size
    return Coefficients(**parts)


def _weights(cases: Sequence[Case]) -> list[F64]:
    """Each device, kind, group and factor of 4 in size counts the same, whoever sampled it more."""
    keys = []
    for case in cases:
        t, size = case.terms, np.log2(case.bytes + 1) // 2
        figures = np.stack([t.base, t.peers, t.levels, size, t.narrow, t.in_switch], axis=1)
        keys += [(case.device, *row) for row in figures.tolist()]
    counts = dict.fromkeys(keys, 0)
    for key in keys:
        counts[key] += 1
    flat = np.array([counts[key] ** -0.5 for key in keys])
    return list(np.split(flat, np.cumsum([len(case.bytes) for case in cases])[:-1]))


Model = Callable[[Case], F64]


def alpha_beta(cases: Sequence[Case]) -> Model:
    """The plain rule: latency and bandwidth by kind, nothing between, fitted in the same way."""
    kept = np.concatenate([np.stack([_latency(c.terms), _wire(c.terms)], 1) for c in cases])
    base = np.concatenate([c.terms.base for c in cases])
    time, weight = np.concatenate([c.measured_us for c in cases]), np.concatenate(_weights(cases))
    found = np.ones((len(FITTED), 2))
    for k in range(len(FITTED)):
        mine = base == k

        def residual(p: F64, mine: NDArray[np.bool_] = mine) -> F64:
            ratio: F64 = np.log(kept[mine] @ np.exp(p) / time[mine])
            return weight[mine] * ratio

        found[k] = np.exp(least_squares(residual, np.log([3.0, 1.5])))
    return lambda case: np.asarray(
        (np.stack([_latency(case.terms), _wire(case.terms)], 1) * found[case.terms.base]).sum(1)
    )


def _latency(t: Terms) -> F64:
    return t.latency_us * (1 + t.hops) + t.net_latency_us * t.levels


def _wire(t: Terms) -> F64:
    return np.maximum(t.wire_us, t.net_us)


def sigmoid(cases: Sequence[Case]) -> Model:
    """The seed's piecewise sigmoid: the fit of the same kind and group on another platform.

    It has no law for another platform; here its bandwidth is scaled by that of the links.
    """
    known: dict[tuple[int, float, float], tuple[float, Any]] = {}
    for case in cases:
        t = case.terms
        for key in set(zip(t.base.tolist(), t.peers.tolist(), t.levels.tolist(), strict=True)):
            mine = (t.base == key[0]) & (t.peers == key[1]) & (t.levels == key[2])
            mine &= ~t.narrow & (case.bytes > 0)
            if mine.sum() > 12 and np.ptp(np.log2(case.bytes[mine])) > 12:
                known[key] = (
                    _scale(case),
                    fit_sigmoid(case.bytes[mine], case.measured_us[mine], 1.0),
                )

    def model(case: Case) -> F64:
        t, out = case.terms, np.full(len(case.bytes), np.nan)
        for i in range(len(out)):
            entry = known.get((int(t.base[i]), float(t.peers[i]), float(t.levels[i])))
            if entry is not None:
                out[i] = sigmoid_time_us(case.bytes[i] * entry[0] / _scale(case), entry[1], 1.0)
        return out

    return model


def _scale(case: Case) -> float:
    return case.platform.intra_node.bandwidth_gb_per_s


def by_link(case: Case) -> str:
    """The generation of links: what is left out together."""
    return case.platform.intra_node.name


def inside_nodes(case: Case) -> Case:
    """The rows of a case whose groups lie in one node."""
    keep = case.terms.levels == 0
    parts = {f.name: getattr(case.terms, f.name)[keep] for f in fields(Terms)}
    return replace(
        case, rows=case.rows[keep], terms=Terms(**parts), bytes=case.bytes[keep],
        measured_us=case.measured_us[keep],
    )  # fmt: skip


def by_platform(case: Case) -> str:
    """The platform by name; its siblings of the same links stay in the fit."""
    return case.platform.name if case.platform.intra_node.name != BRIDGE.name else BRIDGE.name


def held_out(
    cases: Sequence[Case], group: Callable[[Case], str]
) -> Iterator[tuple[str, list[Case], list[Case]]]:
    """Each group in turn: its name, the other cases, its cases."""
    for name in sorted({group(case) for case in cases}):
        inside = [group(case) == name for case in cases]
        rest = [case for case, is_in in zip(cases, inside, strict=True) if not is_in]
        yield name, rest, [case for case, is_in in zip(cases, inside, strict=True) if is_in]


def report(
    cases: Sequence[Case], group: Callable[[Case], str]
) -> tuple[list[str], dict[str, list[float]]]:
    """A table of errors inside nodes on groups left out, and the 90 % intervals that follow."""
    lines = [
        "| left out | size | rows | here | alpha-beta | sigmoid (rows) |",
        "|---|---|---|---|---|---|",
    ]
    ratios: list[list[F64]] = [[], [], []]
    for link, rest, left in held_out(cases, group):
        c, plain, seed = fit(rest), alpha_beta(rest), sigmoid(rest)
        out = [inside_nodes(case) for case in left]
        models: list[Model] = [lambda case, c=c: evaluate(c, case.terms), plain, seed]  # type: ignore[misc]
        size = np.concatenate([size_class(case.bytes) for case in out])
        time = np.concatenate([case.measured_us for case in out])
        guess = [np.concatenate([model(case) for case in out]) for model in models]
        weight = np.concatenate(_weights(out)) ** 2
        for k, name in enumerate(SIZE_NAMES):
            mine = size == k
            if not mine.any():
                continue
            ratios[k].append(time[mine] / guess[0][mine])
            shown = [100 * np.abs(g[mine] / time[mine] - 1) for g in guess]
            there = np.isfinite(shown[2])
            w = weight[mine]
            third = "none"
            if there.any():
                third = f"{np.average(shown[2][there], weights=w[there]):.1f} ({there.sum()})"
            means = " | ".join(f"{np.average(s, weights=w):.1f}" for s in shown[:2])
            lines.append(f"| {link} | {name} | {mine.sum()} | {means} | {third} |")
    bounds = {
        name: [round(float(v), 3) for v in _balanced(ratios[k])]
        for k, name in enumerate(SIZE_NAMES)
    }
    return lines, bounds


def over_nodes(c: Coefficients, cases: Sequence[Case]) -> list[float]:
    """The 90 % interval over nodes, from every network, also those that no table states."""
    groups: dict[tuple[str, float], list[F64]] = {}
    for case in cases:
        mine, link = case.terms.levels > 0, case.platform.inter_node
        if link is not None and mine.any():
            ratio = case.measured_us[mine] / evaluate(c, case.terms)[mine]
            groups.setdefault((case.device, link.bandwidth_gb_per_s), []).append(ratio)
    return [round(float(v), 3) for v in _balanced([np.concatenate(g) for g in groups.values()])]


def _balanced(groups: list[F64]) -> F64:
    """Quantiles 5 and 95 % of the mean over groups' distributions: no group outweighs another."""
    values = np.concatenate(groups)
    weight = np.concatenate([np.full(len(g), 1 / len(g)) for g in groups])
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / weight.sum()
    return np.asarray(np.interp([0.05, 0.95], share, values[order]))


def main(arguments: Sequence[str]) -> None:
    """Fit, print the errors, write the YAML."""
    cases, refused = read_cases(read_rows(Path(arguments[0])))
    c = fit(cases)
    lines, bounds = report(cases, by_link)
    bounds[OVER_NODES] = over_nodes(c, read_cases(read_rows(Path(arguments[0]), every=True))[0])
    lines += ["", *report(cases, by_platform)[0]]
    shown = {
        f.name: [round(v, 4) for v in value] if isinstance(value, tuple) else round(value, 4)
        for f in fields(c)
        for value in [getattr(c, f.name)]
    }
    text = yaml.safe_dump({"coefficients": shown, "interval_90": bounds}, sort_keys=False)
    sys.stdout.write("\n".join([*lines, f"left out: {dict(refused)}", "", text]))
    if len(arguments) > 1:
        Path(arguments[1]).write_text(HEADER + text, encoding="utf-8")


HEADER = """\
# Written by `python -m gnnperf.analytic.collective_fit DATA gnnperf/analytic/collectives.yaml`.
# Ratios to the link figures of gnnperf/hardware/platforms; by kind: all_reduce, all_gather,
# reduce_scatter, all_to_all, send_recv. interval_90: measured over predicted, 5 and 95 %
# quantiles over rows whose generation of links was left out of the fit (over nodes: every row
# across nodes, also over networks that no table states).
# Data: nccl-tests and profiler sweeps of vTrain, LLMCompass, aiconfigurator, vidur, pipeweave,
# aws-samples and others; list and licences: docs/collectives.md.
"""

if __name__ == "__main__":
    main(sys.argv[1:])
