"""A hand-made Kineto trace of three steps: two mm kernels, the second without shapes."""

import json
from pathlib import Path
from typing import Any

import pytest

STEP_US, STEPS = 200.0, 4
MM = {"Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]}


def _step(k: int) -> list[dict[str, Any]]:
    """Host: two ops with a launch each; device: 40 us and 30 us behind each other."""
    t = 1000.0 + k * STEP_US
    c = 10 * k

    def x(name: str, cat: str, ts: float, dur: float, **args: object) -> dict[str, Any]:
        host = cat != "kernel"
        where = {"pid": 1, "tid": 1} if host else {"pid": 0, "tid": 7}
        return {
            "ph": "X",
            "name": name,
            "cat": cat,
            "ts": t + ts,
            "dur": dur,
            "args": args,
            **where,
        }

    def kernel(name: str, ts: float, dur: float, correlation: int) -> dict[str, Any]:
        return x(name, "kernel", ts, dur, device=0, stream=7, correlation=correlation,
                 grid=[64, 1, 1], block=[256, 1, 1])  # fmt: skip

    return [
        x(f"ProfilerStep#{k}", "user_annotation", 0, STEP_US - 1),
        x("aten::mm", "cpu_op", 10, 30, **MM),
        x("cudaLaunchKernel", "cuda_runtime", 20, 10, correlation=c + 1),
        kernel("ampere_sgemm_128x64_nn", 32, 40, c + 1),
        x("my::op", "cpu_op", 50, 30),
        x("cudaLaunchKernel", "cuda_runtime", 60, 10, correlation=c + 2),
        kernel("my_kernel", 74, 30, c + 2),
    ]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    events = [e for k in range(STEPS) for e in _step(k)]
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": events}))
    return path
