"""Contention in a whole prediction: published slowdowns, and what must not change."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.api import Options, Prediction, Predictor
from gnnperf.api.jobs import chosen_step
from gnnperf.cli.main import main
from gnnperf.graph import Job

STEP_US = 60_000.0
ALONE = Options(contention=False)


def product(m: int, n: int, k: int) -> dict[str, Any]:
    """A product in tiles of 128 x 128, one block per SM (200 KB of shared memory)."""
    blocks = math.ceil(m / 128) * math.ceil(n / 128)
    return {
        "op": {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2},
        "kernel": {"grid": [blocks, 1, 1], "block": [384, 1, 1], "registers per thread": 168,
                   "shared memory": 200_000, "stream": 7},
    }  # fmt: skip


def write_trace(
    path: Path, works: list[dict[str, Any] | None], gathered: int = 500_000_000, steps: int = 4
) -> Path:
    """Steps on H100: an all-gather of 24 blocks (None) or a product each 20 us, and a wait."""
    events: list[dict[str, Any]] = []
    for k in range(steps):
        begin = 1000.0 + k * STEP_US
        host = {"ph": "X", "pid": 1, "tid": 1}
        events.append({**host, "name": f"ProfilerStep#{k}", "cat": "user_annotation", "ts": begin,
                       "dur": STEP_US - 1, "args": {}})  # fmt: skip
        for i, work in enumerate(works):
            at, correlation = begin + 20 * i + 10, 1000 * k + i + 1
            name = "nccl:all_gather" if work is None else "aten::mm"
            shape = {} if work is None else work["op"]
            events += [
                {**host, "name": name, "cat": "cpu_op", "ts": at, "dur": 15, "args": shape},
                {**host, "name": "cudaLaunchKernel", "cat": "cuda_runtime", "ts": at + 5, "dur": 5,
                 "args": {"correlation": correlation}},
            ]  # fmt: skip
            if work is None:
                args = {"grid": [24, 1, 1], "block": [640, 1, 1], "registers per thread": 96,
                        "shared memory": 80_000, "stream": 20, "Collective name": "allgather",
                        "In msg nelems": gathered, "Out msg nelems": 8 * gathered,
                        "Group size": 8, "dtype": "BFloat16"}  # fmt: skip
                kernel, us = "ncclDevKernel_AllGather_RING_LL", 20_000.0
            else:
                args, kernel, us = work["kernel"], "nvjet_gemm", 50.0
            events.append(
                {"ph": "X", "pid": 0, "tid": args["stream"], "name": kernel, "cat": "kernel",
                 "ts": at + 20 + (60 * i if work else 0), "dur": us,
                 "args": {**args, "device": 0, "correlation": correlation}}
            )  # fmt: skip
        events.append({**host, "name": "cudaDeviceSynchronize", "cat": "cuda_runtime",
                       "ts": begin + 20 * len(works) + 10, "dur": 40_000, "args": {}})  # fmt: skip
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}
    path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": events}))
    return path


def predictions(path: Path) -> tuple[Prediction, Prediction]:
    """Without and with contention, by the analytic engine."""
    job = chosen_step([path])
    engine = Predictor.of_engine("analytic")
    return engine.predict(job, options=ALONE), engine.predict(job)


def slowdowns(alone: Prediction, shared: Prediction, family: str) -> list[float]:
    pairs = zip(alone.kernels, shared.kernels, strict=True)
    return [b.predicted_us / a.predicted_us for a, b in pairs if a.family == family]


def test_a_gemm_of_132_tiles_beside_24_blocks_takes_twice_as_long(tmp_path: Path) -> None:
    # Measured on H100 (forums.developer.nvidia.com, topic 337991): about 2x.
    trace = write_trace(tmp_path / "trace.json", [None, product(11 * 128, 12 * 128, 8192)])
    alone, shared = predictions(trace)
    assert slowdowns(alone, shared, "gemm") == pytest.approx([2.0], rel=0.05)


def test_gemms_beside_a_collective_slow_down_by_the_published_mean(tmp_path: Path) -> None:
    # Mean 1.19, most 1.40 over GPT and LLaMA training (arXiv 2507.03114).
    sizes = [(1024, 1024), (2048, 4096), (4096, 4096), (4096, 12288), (8192, 8192)]
    trace = write_trace(tmp_path / "trace.json", [None, *(product(m, n, 2048) for m, n in sizes)])
    found = slowdowns(*predictions(trace), "gemm")
    assert 1.1 <= np.mean(found) <= 1.3
    assert min(found) >= 1.0


def test_what_contention_adds_to_the_step_is_told(tmp_path: Path) -> None:
    # All work takes 20 times as long, so that the products' stream sets the time: while the
    # collective runs they do half of their work, so the step grows by half of its time.
    works = [None, *[product(11 * 128, 12 * 128, 8192)] * 100]
    job = chosen_step([write_trace(tmp_path / "trace.json", works, 50_000_000)])
    engine = Predictor.of_engine("analytic")
    alone = engine.predict(job, options=Options(20.0, contention=False))
    shared = engine.predict(job, options=Options(20.0))
    added = shared.iteration_time_us.predicted - alone.iteration_time_us.predicted
    assert shared.breakdown_us["contention"] == pytest.approx(added)
    assert alone.breakdown_us["contention"] == 0.0
    (collective,) = [20 * k.predicted_us for k in alone.kernels if k.family == "collective"]
    assert added == pytest.approx(collective / 2, rel=0.05)


def test_work_of_one_stream_is_the_same_to_the_last_digit(trace: Path) -> None:
    alone, shared = predictions(trace)
    assert alone == shared
    assert shared.breakdown_us["contention"] == 0.0


def test_measured_times_hold_what_ran_beside_them(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json", [None, product(11 * 128, 12 * 128, 8192)])
    job: Job = chosen_step([path])
    replay = Predictor.of_engine("measured")
    assert replay.predict(job) == replay.predict(job, options=ALONE)
    # A product without shapes keeps its measured time, beside the collective too.
    data = json.loads(path.read_text())
    for event in data["traceEvents"]:
        event["args"].pop("Input Dims", None)
    path.write_text(json.dumps(data))
    kernels = predictions(path)[1].kernels
    assert [k.predicted_us for k in kernels if k.family != "collective"] == [50.0]


def test_times_with_evidence_hold_what_ran_beside_them(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json", [None, product(11 * 128, 12 * 128, 8192)])
    options = Options(evidence=1.0)
    kernels = Predictor.of_engine("analytic").predict(chosen_step([path]), None, options).kernels
    assert [k.predicted_us for k in kernels if k.family == "gemm"] == pytest.approx([50.0])


def test_the_option_of_the_command_line(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace.json", [None, product(11 * 128, 12 * 128, 8192)])
    found = []
    for option in ([], ["--no-contention"]):
        out = tmp_path / "out.json"
        assert main(["simulate", str(trace), "--json", str(out), *option]) == 0
        kernels = json.loads(out.read_text())["kernels"]
        found.append(sum(k["predicted_us"] for k in kernels if k["family"] == "gemm"))
    assert found[0] == pytest.approx(2 * found[1], rel=0.05)
