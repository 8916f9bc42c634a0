"""One rank of one workload in a process of its own: timed, observed, profiled.

Run as `python -m gnnperf.recording.session SPEC.json`; writes the traces and `result.json`.
"""

import gzip
import json
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

from gnnperf.recording.steps import Step, make_step
from gnnperf.recording.workloads import WORKLOADS


@dataclass(frozen=True)
class Spec:
    """What one process is to do."""

    workload: str
    device: str
    seed: int
    threads: int
    rank: int
    folder: str
    """where the files go"""
    rounds: int
    """unprofiled rounds before the profiled run, and as many after it"""
    round_iterations: int
    """of one round, at least"""
    round_seconds: float
    profiled_steps: int
    rendezvous: str
    """file that the ranks meet at"""


@dataclass(frozen=True)
class Result:
    """What one process measured, microseconds."""

    rounds_us: list[list[float]]
    """iterations of each unprofiled round"""
    cpu_share: float
    profiled_us: list[float]
    files: dict[str, str]
    """kind -> file name"""


def main(argv: list[str]) -> None:
    """Run one spec."""
    spec = Spec(**json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    torch.set_num_threads(spec.threads)
    torch.set_num_interop_threads(1)
    ranks = WORKLOADS[spec.workload].ranks
    if ranks > 1:
        torch.distributed.init_process_group(
            "nccl" if spec.device == "cuda" else "gloo",
            init_method=f"file://{spec.rendezvous}",
            rank=spec.rank,
            world_size=ranks,
        )
    result = record(spec, ranks)
    path = Path(spec.folder) / f"result_rank{spec.rank}.json"
    path.write_text(json.dumps(asdict(result)), encoding="utf-8")
    if ranks > 1:
        torch.distributed.destroy_process_group()


def record(spec: Spec, ranks: int = 1) -> Result:
    """Time, observe and profile one workload; writes its traces into the folder."""
    device = torch.device(spec.device, spec.rank) if spec.device == "cuda" else torch.device("cpu")
    step = make_step(WORKLOADS[spec.workload].recipe, device, spec.seed, ranks)
    per_step = median(time_steps(step, device, 5)) * 1e-6
    count = max(spec.round_iterations, round(spec.round_seconds / per_step))
    count = _same_on_all_ranks(count, ranks)
    warm_up = max(3, count // 4)
    time_steps(step, device, warm_up)
    wall, cpu = time.perf_counter(), time.process_time()
    rounds = [time_steps(step, device, count) for _ in range(spec.rounds)]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    suffix = f"_rank{spec.rank}" if ranks > 1 else ""
    folder = Path(spec.folder)
    files = {"kineto": f"kineto{suffix}.json.gz", "et": f"pytorch_et{suffix}.json.gz"}
    observe(step, device, folder / files["et"])
    profiled = profile_steps(step, device, folder / files["kineto"], spec.profiled_steps)
    time_steps(step, device, warm_up)
    rounds += [time_steps(step, device, count) for _ in range(spec.rounds)]
    return Result(rounds, cpu / wall / spec.threads, profiled, files)


def time_steps(step: Step, device: torch.device, count: int) -> list[float]:
    """Microseconds of `count` iterations; on a GPU between the ends of successive iterations."""
    if device.type == "cuda":
        return _time_on_gpu(step, count)
    times = []
    last = time.perf_counter()
    for _ in range(count):
        step()
        now = time.perf_counter()
        times.append((now - last) * 1e6)
        last = now
    return times


def observe(step: Step, device: torch.device, path: Path) -> None:
    """Write the execution trace of one iteration."""
    raw = path.with_suffix("")
    observer = ExecutionTraceObserver()
    observer.register_callback(str(raw))
    observer.start()
    step()
    _synchronize(device)
    observer.stop()
    observer.unregister_callback()
    _pack(raw, path)


def profile_steps(step: Step, device: torch.device, path: Path, steps: int) -> list[float]:
    """Write the profiler's trace of some steady iterations; returns their microseconds."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=0, warmup=2, active=steps, repeat=1)
    times = []
    with profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
        for _ in range(2 + steps):
            start = time.perf_counter()
            step()
            times.append((time.perf_counter() - start) * 1e6)
            if len(times) == 2 + steps:
                _synchronize(device)
            profiler.step()
    raw = path.with_suffix("")
    profiler.export_chrome_trace(str(raw))
    _pack(raw, path)
    return times[2:]


def _time_on_gpu(step: Step, count: int) -> list[float]:
    event: Any = torch.cuda.Event
    marks = [event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e3 for a, b in pairwise(marks)]


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _same_on_all_ranks(count: int, ranks: int) -> int:
    if ranks == 1:
        return count
    counts: list[Any] = [count]
    torch.distributed.broadcast_object_list(counts, src=0)
    return int(counts[0])


def _pack(raw: Path, path: Path) -> None:
    """Compress a JSON file, without the path and host that the profiler writes; delete it."""
    trace = json.loads(raw.read_text(encoding="utf-8"))
    trace.pop("host_name", None)
    if "traceName" in trace:
        trace["traceName"] = path.name
    text = json.dumps(trace, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    raw.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
