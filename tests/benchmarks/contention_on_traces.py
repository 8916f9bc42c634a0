"""The contention model beside what real traces of several streams show.

    python tests/benchmarks/contention_on_traces.py ../shared/data/traces

First table: kernels that ran both beside a collective (at least 80 % of their time) and alone, same
name, grid and sizes: how much longer they took, as recorded and by the model from the time alone,
means weighted by time, and what a slowdown of 1 and the model's slowdowns miss the recorded by.
Second table: steps predicted without and with contention, beside the measured ones.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gnnperf.api import Options, Predictor
from gnnperf.api.jobs import chosen_step
from gnnperf.graph import ExecutionGraph, NodeKind
from gnnperf.hardware import find_hardware
from gnnperf.ops import describe, family_names
from gnnperf.timeline.contention import Demand, slowdowns
from gnnperf.timeline.demand import demand_of
from gnnperf.timeline.table import trace_files
from gnnperf.traces import read_job

SETS = (
    "hta_ddp_a100_ncclmeta",
    "hta_torchrec_a100",
    "tracelens_mi300_resnet_ddp",
    "ao_b200_ep_moe_ref",
    "param_dlrm8",
    "torchrec_2rank_tiny",
)
BESIDE, LEAST_US, LEAST_RATIO = 0.8, 15.0, 0.5
"""Share of its time that a kernel counts as overlapped from; kernels shorter than `LEAST_US` are
noise, and those twice as fast beside a collective are other work under the same name."""


@dataclass
class Kernel:
    """One kernel by name, grid and sizes."""

    family: str
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    pairs: list[tuple[Demand, int, int, float, int]] = field(default_factory=list)
    """demands, the kernel's and the collective's node, the latter's time, SMs of the device"""


def collect(graph: ExecutionGraph, found: dict[tuple[object, ...], Kernel]) -> None:
    """Add the kernels of one step."""
    nodes, described = graph.nodes, describe(graph)
    hardware = find_hardware(graph.meta.device)
    collectives = np.flatnonzero(nodes.kind == NodeKind.COLLECTIVE)
    if hardware is None or not len(collectives):
        return
    demand = demand_of(graph, described, hardware, np.zeros(len(described.node), np.bool_))
    begin, end = nodes.start_us, nodes.start_us + nodes.duration_us
    kernels = described.node[nodes.kind[described.node] == NodeKind.KERNEL]
    common = np.minimum(end[kernels], end[collectives, None])
    common = np.maximum(common - np.maximum(begin[kernels], begin[collectives, None]), 0.0)
    share = common.sum(axis=0) / np.maximum(nodes.duration_us[kernels], 1e-9)
    other = collectives[common.argmax(axis=0)]
    for node, part, partner in zip(kernels.tolist(), share.tolist(), other.tolist(), strict=True):
        row = int(described.row[node])
        sizes = described.batch.dims[row].tobytes() if described.batch.known[row] else b""
        family = family_names()[described.batch.family[row]]
        key = (graph.name_of(node), int(nodes.grid_blocks[node]), family, sizes)
        kernel = found.setdefault(key, Kernel(family))
        us = float(nodes.duration_us[node])
        if part >= BESIDE:
            kernel.beside.append(us)
            took = float(nodes.duration_us[partner])
            kernel.pairs.append((demand, node, partner, took, hardware.sm_count))
        elif part == 0:
            kernel.alone.append(us)


def ratios(kernel: Kernel) -> tuple[float, float, float]:
    """Measured and modelled slowdown, and the time that they count for."""
    alone = float(np.median(kernel.alone))
    on = np.ones((1, 2), np.bool_)
    modelled = [
        slowdowns(d.take(np.array([[node, other]])), np.array([[alone, us]]), on, on, sms)[0, 0]
        for d, node, other, us, sms in kernel.pairs
    ]
    measured = float(np.median(kernel.beside)) / alone
    return measured, float(np.mean(modelled)), alone * len(kernel.beside)


def slowdown_lines(folder: Path) -> Iterator[str]:
    """A line per family of one set, and one for all of it."""
    found: dict[tuple[object, ...], Kernel] = {}
    for graph in read_job(trace_files(folder)).graphs:
        collect(graph, found)
    families: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for kernel in found.values():
        if not kernel.alone or not kernel.beside or np.median(kernel.alone) < LEAST_US:
            continue
        one = ratios(kernel)
        if one[0] >= LEAST_RATIO:
            families[kernel.family].append(one)
            families["all"].append(one)
    for family, rows in sorted(families.items(), key=lambda item: (item[0] == "all", item[0])):
        measured, modelled, weight = np.array(rows).T
        yield (
            f"{folder.name} | {family} | {len(rows)} | {np.median(measured):.2f} | "
            f"{np.average(measured, weights=weight):.2f} | {np.median(modelled):.2f} | "
            f"{np.average(modelled, weights=weight):.2f} | "
            f"{np.average(np.abs(measured - 1), weights=weight):.2f} | "
            f"{np.average(np.abs(measured - modelled), weights=weight):.2f}"
        )


def step_line(folder: Path, engine: str) -> str:
    """The step of one set without and with contention, in ms."""
    job = chosen_step(trace_files(folder))
    predictor = Predictor.of_engine(engine)
    without, shared = (
        predictor.predict(job, options=Options(details=False, contention=on))
        for on in (False, True)
    )
    measured = shared.iteration_time_us.measured
    times = [without.iteration_time_us.predicted, shared.iteration_time_us.predicted]
    work = [sum(f.predicted_us for f in p.by_family) for p in (without, shared)]
    cells = [f"{us / 1e3:.2f}" for us in (*times, *work, shared.breakdown_us["overlap"])]
    known = "-" if measured is None else f"{measured / 1e3:.2f}"
    return " | ".join([folder.name, engine, known, *cells])


def main(traces: Path) -> None:
    """Print both tables."""
    heads = (
        "set, family, kernels, measured median, mean, model median, mean, miss of 1, of the model"
    )
    print("| " + heads.replace(", ", " | ") + " |\n|" + "---|" * 9)
    for name in SETS:
        for line in slowdown_lines(traces / name):
            print(f"| {line} |", flush=True)
    print("\n| set | engine | measured | alone | shared | works alone | works shared | overlap |")
    print("|" + "---|" * 8)
    for name in SETS:
        for engine in ("analytic", "gnn"):
            print(f"| {step_line(traces / name, engine)} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
