"""Times the way from a big trace to its graphs, as ratios to decoding the same file with orjson.

python tests/benchmarks/bench_trace.py [TRACE] [--events 1000000] [--keep FILE]

Makes a trace of a million events from a real one: its events again and again, later in time,
with new correlation and op ids and step numbers. Each part runs in a process of its own, so
that its peak of memory is its own; the figures are the least CPU time of three runs. A part that
needs the graphs reads them first, untimed.
"""

import argparse
import gzip
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[3] / "shared"))
DEFAULT = SHARED / "data" / "traces" / "hta_torchrec_a100" / "control.json.gz"
RUNS = 3

_FIELD = re.compile(
    rb'"(ts|correlation|External id|external id|id)": (\d+)(\.\d+)?|ProfilerStep#(\d+)'
)


def make_trace(source: Path, target: Path, events: int) -> int:
    """Write a trace of about `events` events; returns their number."""
    data = source.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    opening = re.search(rb'"traceEvents"\s*:\s*\[', data)
    begin = opening.end() if opening else data.index(b"[") + 1
    end, table = _array(data, begin)
    times = [float(str(e["ts"])) for e in table if e.get("ph") == "X" and e.get("cat") != "Trace"]
    ids = [int(m[2]) for m in _FIELD.finditer(data) if m[1] in (b"correlation", b"External id")]
    steps = [int(m[4]) for m in _FIELD.finditer(data) if m[4]]
    shift = {
        b"ts": int(max(times) - min(times)) + 1000,
        b"step": max(steps, default=0) - min(steps, default=0) + 1,
    }
    copies = -(-events // len(table))
    with target.open("wb") as file:
        file.write(data[:begin])
        for copy in range(copies):
            file.write(b"," if copy else b"")
            file.write(_shifted(data[begin:end], copy, shift, max(ids) + 1))
        file.write(data[end:])
    return copies * len(table)


def _array(data: bytes, begin: int) -> tuple[int, list[dict[str, object]]]:
    """Where the array of events ends, and its events."""
    for found in re.finditer(rb"\}\s*(?=\]\s*(?:[,}]|$))", data[begin:]):
        end = begin + found.end()
        try:
            return end, json.loads(b"[" + data[begin:end] + b"]")
        except json.JSONDecodeError:
            continue
    raise SystemExit("no array of events in the trace")


def _shifted(text: bytes, copy: int, shift: dict[bytes, int], ids: int) -> bytes:
    if copy == 0:
        return text

    def moved(match: re.Match[bytes]) -> bytes:
        if match[4]:
            return b"ProfilerStep#%d" % (int(match[4]) + copy * shift[b"step"])
        by = shift[b"ts"] if match[1] == b"ts" else ids
        return b'"%s": %d%s' % (match[1], int(match[2]) + copy * by, match[3] or b"")

    return _FIELD.sub(moved, text)


Run = Callable[[], object]


def decode(path: Path) -> Run:
    """What everything is compared with."""
    import orjson

    return lambda: orjson.loads(path.read_bytes())


def read_and_build(path: Path) -> Run:
    """The file to the graphs of all its steps."""
    from gnnperf.traces import read_job

    return lambda: read_job(path)


def featurize(path: Path) -> Run:
    """Families, dimensions and costs of all device work of all steps."""
    from gnnperf.ops import describe
    from gnnperf.traces import read_job

    job = read_job(path)
    return lambda: [describe(graph) for graph in job.graphs]


def predict(engine: str) -> Callable[[Path], Run]:
    """Every step with an engine: features, device times and the timeline."""

    def prepare(path: Path) -> Run:
        from gnnperf.api.predictor import Options, Predictor
        from gnnperf.traces import read_job

        job = read_job(path)
        predictor = Predictor.of_engine(engine)
        few = Options(details=False)
        return lambda: [predictor.predict(job.of_step(s), options=few) for s in job.steps]

    return prepare


PARTS: dict[str, Callable[[Path], Run]] = {
    "decode with orjson": decode,
    "read and build": read_and_build,
    "featurize": featurize,
    "replay": predict("measured"),
    "network and timeline": predict("gnn"),
}
"""Name -> what is timed: given the file, it prepares and returns what to run. The first is the
unit of the ratios; the last, with reading, is the whole way to a prediction of every step."""


def _measure(part: str, path: Path) -> tuple[float, float]:
    """Best seconds of some runs, and the peak of memory in bytes, in a process of its own."""
    command = [sys.executable, __file__, str(path), "--part", part]
    seconds, peak = [], 0.0
    for _ in range(RUNS):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            print(f"{part} failed: {done.stderr.strip().splitlines()[-1]}")
            return float("nan"), float("nan")
        result = json.loads(done.stdout)
        seconds.append(result["seconds"])
        peak = max(peak, result["peak"])
    return min(seconds), peak


def _run_part(part: str, path: Path) -> None:
    run = PARTS[part](path)
    start = time.process_time()
    run()
    seconds = time.process_time() - start
    print(json.dumps({"seconds": seconds, "peak": _peak_bytes()}))


def _peak_bytes() -> float:
    """Peak of this process's memory. (The peak that getrusage tells includes the parent's.)"""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if found:
            return 1024.0 * int(found[1])
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Make the trace, measure each part, print the ratios."""
    parser = argparse.ArgumentParser(description="time reading a big trace")
    parser.add_argument("trace", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="where to leave the trace that was made")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        _run_part(args.part, args.trace)
        return
    with tempfile.TemporaryDirectory() as folder:
        big = args.keep or Path(folder) / "big.json"
        count = make_trace(args.trace, big, args.events)
        size = big.stat().st_size
        print(f"{count} events, {size / 1e6:.0f} MB, from {args.trace}")
        unit = 0.0
        for part in PARTS:
            seconds, peak = _measure(part, big)
            unit = unit or seconds
            print(
                f"{part:22s} {seconds:6.2f} s  {seconds / unit:5.2f} x decoding"
                f"  peak {peak / size:5.2f} x the file"
            )


if __name__ == "__main__":
    main()
