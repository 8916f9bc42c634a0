"""Times single ops, and has the profiler write down what each was."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from gnnperf.recording.op_cases import Call, Draw, cases

MARK = "gnnperf_case_"
"""Annotation of the one profiled call of case k: MARK + str(k)."""
BLOCKS, BLOCK_SECONDS, MOST_CALLS = 5, 2e-3, 500
METHOD = (
    "Single calls of PyTorch ops through Python, tensors as warm as their size allows: two calls "
    "to warm up, then the median of five blocks of calls of about 2 ms (500 calls at most). CPU: "
    "perf_counter around a block; CUDA: events around it. The call's overhead is inside."
)


@dataclass(frozen=True)
class OpTimes:
    """What was timed: one entry a case."""

    labels: list[str]
    duration_us: list[float]
    """median of the blocks' means"""


def time_ops(
    device: str,
    threads: int,
    trace: Path,
    share: float = 1.0,
    seed: int = 0,
    track: Callable[[str], None] | None = None,
) -> OpTimes:
    """Time every case and write a trace that holds one call of each, in their order.

    The tensors are warm where they fit into the caches: calls of a case follow each other.

    Args:
        device: cpu or cuda.
        threads: Threads of an op on the CPU.
        trace: Where the profiler's trace goes (JSON).
        share: Scales how many sizes of each op are drawn.
        seed: Of sizes and values.
        track: Called with the label of each case.
    """
    torch.set_num_threads(threads)
    where = torch.device(device)
    labels, times = [], []
    with torch.no_grad():
        for label, call in _cases(where, seed, share):
            times.append(_time(call, where))
            labels.append(label)
            if track is not None:
                track(label)
        _note(_cases(where, seed, share), where, trace)
    return OpTimes(labels, times)


def _cases(device: torch.device, seed: int, share: float) -> Iterator[tuple[str, Call]]:
    torch.manual_seed(seed)
    return cases(Draw(device, Random(seed)), share)


def _note(made: Iterator[tuple[str, Call]], device: torch.device, trace: Path) -> None:
    """Profile one call of each case; what makes the tensors lies outside the annotations."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, record_shapes=True) as profiler:
        for index, (_, call) in enumerate(made):
            with record_function(f"{MARK}{index}"):
                call()
    profiler.export_chrome_trace(str(trace))


def _time(call: Call, device: torch.device) -> float:
    """Microseconds of one call."""
    for _ in range(2):
        call()
    once = _block(call, 1, device)
    count = min(max(1, round(BLOCK_SECONDS * 1e6 / max(once, 0.1))), MOST_CALLS)
    return median(_block(call, count, device) for _ in range(BLOCKS))


def _block(call: Call, count: int, device: torch.device) -> float:
    if device.type == "cuda":
        return _block_on_gpu(call, count)
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) * 1e6 / count


def _block_on_gpu(call: Call, count: int) -> float:
    event: Any = torch.cuda.Event
    first, last = event(enable_timing=True), event(enable_timing=True)
    first.record()
    for _ in range(count):
        call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) * 1e3 / count
