"""Times `gnnperf infer` of a step of 10,000 nodes, process start to end, and the prediction in it.

Time on the clock, and of the processor: on a machine that others use, the second is the first
without them.

python tests/benchmarks/bench_infer.py [TRACE] [--hardware h100-sxm] [--runs 5]
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[3] / "shared"))
DEFAULT = SHARED / "data" / "traces" / "hta_torchrec_a100"


def now() -> tuple[float, float]:
    """Seconds on the clock, and of the processor in this process and its children."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(s.ru_utime + s.ru_stime for s in spent)


def whole(trace: Path, hardware: str) -> tuple[float, float]:
    """Seconds of one process."""
    command = [sys.executable, "-m", "gnnperf.cli.main", "infer", str(trace)]
    begin = now()
    subprocess.run([*command, "--hardware", hardware], check=True, capture_output=True)
    return between(begin, now())


def between(begin: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    """Both differences."""
    return end[0] - begin[0], end[1] - begin[1]


def parts(trace: Path, hardware: str) -> dict[str, tuple[float, float]]:
    """Seconds of the parts within this process."""
    marks = [("", now())]
    from gnnperf.api import Predictor
    from gnnperf.api.jobs import chosen_step
    from gnnperf.cli.steps import one_thread

    predictor = Predictor.load()
    one_thread()
    marks.append(("import and load", now()))
    job = chosen_step([trace])
    marks.append(("read", now()))
    predictor.predict(job, hardware)
    marks.append(("first prediction", now()))
    predictor.predict(job, hardware)
    marks.append(("prediction", now()))
    nodes = sum(graph.num_nodes for graph in job.graphs)
    device = sum(len(graph.device_nodes) for graph in job.graphs)
    print(f"step of {nodes:,} nodes, {device:,} of them device work")
    return {name: between(begin, end) for (_, begin), (name, end) in pairwise(marks)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--hardware", default="h100-sxm")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    for name, (clock, spent) in parts(args.trace, args.hardware).items():
        print(f"{name}: {clock:.2f} s, {spent:.2f} s of the processor")
    times = [whole(args.trace, args.hardware) for _ in range(args.runs)]
    clock, spent = (min(column) for column in zip(*times, strict=True))
    print(f"process, least of {args.runs}: {clock:.2f} s, {spent:.2f} s of the processor")
