"""Analytic device times against traced ones: python tests/benchmarks/analytic_on_traces.py DIR...

Each DIR holds the files of one trace. Prints, for the step with the most device work and on the
trace's own device, the share of device time whose sizes are known and, by family, the sum of the
analytic over the sum of the traced times (known rows only, communication left out: most of its
traced time is waiting).
"""

import sys
from pathlib import Path

import numpy as np

from gnnperf.analytic import device_time
from gnnperf.errors import GnnperfError
from gnnperf.hardware import find_hardware
from gnnperf.ops import describe, family_names
from gnnperf.traces import read_job


def line_of(folder: Path) -> str:
    """A row of the table; says why where there is none."""
    try:
        graphs = read_job(folder).graphs
    except GnnperfError as why:
        return f"| {folder.name} | not read: {str(why)[:60]} | | |"
    graph = max(graphs, key=lambda g: len(g.device_nodes))
    hardware = find_hardware(graph.meta.device) if graph.meta.device else None
    if hardware is None or not len(graph.device_nodes):
        return f"| {folder.name} | no device work of a known device | | |"
    found = describe(graph)
    measured = np.nan_to_num(graph.nodes.duration_us[found.node])
    times = device_time(found.batch, hardware).total_us
    names = np.array(family_names())[found.batch.family]
    work = names != "collective"
    known = found.batch.known & work
    parts = []
    for name in sorted(set(names[known]), key=lambda f: -measured[known & (names == f)].sum()):
        rows = known & (names == name)
        ratio = times[rows].sum() / max(measured[rows].sum(), 1e-9)
        share = measured[rows].sum() / measured[work].sum()
        if share >= 0.01:
            parts.append(f"{name} {ratio:.2f} ({100 * share:.0f} %)")
    whole = times[known].sum() / max(measured[known].sum(), 1e-9)
    share = measured[known].sum() / measured[work].sum()
    return (
        f"| {folder.name} ({hardware.name}) | {100 * share:.0f} % | {whole:.2f} | "
        f"{', '.join(parts)} |"
    )


if __name__ == "__main__":
    print("| trace (device) | time of known size | analytic / traced | by family (share of time) |")
    print("|---|---|---|---|")
    for argument in sys.argv[1:]:
        print(line_of(Path(argument)))
