"""What works ask of a device, by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.api.jobs import chosen_step
from gnnperf.graph import NodeKind
from gnnperf.hardware import get_hardware
from gnnperf.ops import describe
from gnnperf.timeline.demand import CHANNELS, demand_of
from gnnperf.timeline.waves import blocks_per_sm, sm_share

MM = {"Input Dims": [[2048, 1024], [1024, 4096]], "Input type": ["c10::BFloat16"] * 2}
NCCL = {"Collective name": "allreduce", "In msg nelems": 25_000_000, "Out msg nelems": 25_000_000,
        "Group size": 8, "dtype": "Float", "Process Group Name": "0"}  # fmt: skip


def event(name: str, cat: str, ts: float, dur: float, **args: object) -> dict[str, Any]:
    stream = (
        {"pid": 0, "tid": args.get("stream", 7)}
        if cat in ("kernel", "gpu_memcpy")
        else {"pid": 1, "tid": 1}
    )
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "args": args, **stream}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A product, an all-reduce on a stream of its own and a copy from the host, on H100."""
    shape = {"grid": [528, 1, 1], "block": [384, 1, 1], "registers per thread": 168,
             "shared memory": 200_000}  # fmt: skip
    ring = {"grid": [24, 1, 1], "block": [640, 1, 1], "registers per thread": 96,
            "shared memory": 80_000}  # fmt: skip
    copy = {"bytes": 100_000_000, "device": 0, "stream": 9, "correlation": 3}
    events = [
        event("aten::mm", "cpu_op", 10, 30, **MM),
        event("cudaLaunchKernel", "cuda_runtime", 20, 10, correlation=1),
        event("nvjet_gemm", "kernel", 32, 40, device=0, stream=7, correlation=1, **shape),
        event("cudaLaunchKernel", "cuda_runtime", 42, 5, correlation=2),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel", 50, 900, device=0, stream=20,
              correlation=2, **ring, **NCCL),
        event("cudaMemcpyAsync", "cuda_runtime", 60, 5, correlation=3),
        event("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 70, 2000, **copy),
    ]  # fmt: skip
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": events}))
    return path


def test_demands_of_a_product_a_collective_and_a_copy(trace: Path) -> None:
    graph = chosen_step([trace]).graphs[0]
    h100 = get_hardware("h100-sxm")
    described = describe(graph)
    settled = np.zeros(len(described.node), np.bool_)
    found = demand_of(graph, described, h100, settled)
    kind = graph.nodes.kind
    (product,) = np.flatnonzero(kind == NodeKind.KERNEL)
    (ring,) = np.flatnonzero(kind == NodeKind.COLLECTIVE)
    (copy,) = np.flatnonzero(kind == NodeKind.COPY)
    # 200 KB of 228 KB of shared memory: one block per SM. On its own device the grid counts.
    assert found.blocks[product] == 528
    assert found.waves[product]
    assert found.compute_us[product] > 2 * 2048 * 1024 * 4096 / 989.4e6
    # Its 640 threads of 96 registers take 61,440 of the 65,536 registers of an SM.
    assert found.channels[ring] == pytest.approx(24 * 61_440 / 65_536)
    assert found.blocks[ring] == found.blocks[copy] == 0
    assert 0.8 < found.link_share[ring] <= 1.0
    # 100 MB in and 100 MB out at 83 % of 3,350 GB/s
    assert found.memory_us[ring] == pytest.approx(2e8 / (0.83 * 3.35e6), rel=0.01)
    assert found.channels[product] == found.channels[copy] == 0


def test_on_another_device_a_product_has_tiles_of_its_own(trace: Path) -> None:
    graph = chosen_step([trace]).graphs[0]
    described = describe(graph)
    settled = np.zeros(len(described.node), np.bool_)
    found = demand_of(graph, described, get_hardware("a100-80gb-sxm"), settled)
    (product,) = np.flatnonzero(graph.nodes.kind == NodeKind.KERNEL)
    assert found.blocks[product] == (2048 / 128) * (4096 / 128)


def test_a_grid_that_no_trace_holds_is_the_usual_one(trace: Path) -> None:
    data = json.loads(trace.read_text())
    for each in data["traceEvents"]:
        for name in ("grid", "block", "registers per thread", "shared memory"):
            each["args"].pop(name, None)
    trace.write_text(json.dumps(data))
    graph = chosen_step([trace]).graphs[0]
    described = describe(graph)
    settled = np.zeros(len(described.node), np.bool_)
    (ring,) = np.flatnonzero(graph.nodes.kind == NodeKind.COLLECTIVE)
    for name, share in (("h100-sxm", 1.0), ("mi300x", 0.125)):
        found = demand_of(graph, described, get_hardware(name), settled)
        assert found.channels[ring] == CHANNELS * share


def test_blocks_on_an_sm_are_bound_by_what_runs_out_first(trace: Path) -> None:
    graph = chosen_step([trace]).graphs[0]
    h100 = get_hardware("h100-sxm")
    (product,) = np.flatnonzero(graph.nodes.kind == NodeKind.KERNEL)
    (ring,) = np.flatnonzero(graph.nodes.kind == NodeKind.COLLECTIVE)
    rows = np.array([product, ring])
    assert sm_share(graph, rows, h100) == pytest.approx([384 * 168 / 65_536, 61_440 / 65_536])
    assert blocks_per_sm(graph, rows, h100).tolist() == [1.0, 1.0]
