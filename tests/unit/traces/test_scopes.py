"""Scopes and phases of events, by hand and on real traces."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.graph import ExecutionGraph, NodeKind, Phase
from gnnperf.traces import read_job, read_trace

Tiny = Any
"""The builder of `conftest.py`, which importlib mode does not let us import."""

H2D = "Memcpy HtoD (Pageable -> Device)"


def scope(graph: ExecutionGraph, name: str) -> str | None:
    (node,) = (i for i in range(graph.num_nodes) if graph.name_of(i) == name)
    index = int(graph.nodes.scope[node])
    return None if index < 0 else graph.strings[index]


def phase(graph: ExecutionGraph, name: str) -> Phase:
    found = {int(graph.nodes.phase[i]) for i in range(graph.num_nodes) if graph.name_of(i) == name}
    (only,) = found
    return Phase(only)


def test_the_backward_of_an_op_has_the_scope_of_its_forward_op(tiny: Tiny) -> None:
    linked = {"Fwd_thread_id": 1}
    graph = read_trace(
        tiny.write(
            [
                tiny.event("python_function", "nn.Module: Net_0", 0, 90),
                tiny.event("python_function", "nn.Module: Linear_0", 5, 20),
                # detach makes no node of the autograd graph: it shows the number of the next one
                tiny.op("aten::detach", 6, 1, Sequence_number=41),
                tiny.op("aten::linear", 10, 10, Sequence_number=40),
                tiny.event("python_function", "nn.Module: ReLU_0", 40, 20),
                tiny.op("aten::relu", 45, 10, Sequence_number=41),
                tiny.op("engine: ReluBackward0", 100, 20, tid=2, Sequence_number=41, **linked),
                tiny.op("aten::threshold_backward", 105, 5, tid=2),
                tiny.call("cudaLaunchKernel", 106, 2, 9, tid=2),
                tiny.op("engine: AddmmBackward0", 130, 20, tid=2, Sequence_number=40, **linked),
                # A number of another thread's forward op that the trace does not hold
                tiny.op("engine: MulBackward0", 160, 9, tid=2, Sequence_number=40, Fwd_thread_id=3),
                tiny.kernel("relu_kernel", 120, 4, 9),
            ]
        )
    )
    assert scope(graph, "engine: ReluBackward0") == "Net_0.ReLU_0"
    assert scope(graph, "aten::threshold_backward") == "Net_0.ReLU_0"
    assert scope(graph, "relu_kernel") == "Net_0.ReLU_0"
    assert scope(graph, "engine: AddmmBackward0") == "Net_0.Linear_0"
    assert phase(graph, "relu_kernel") == Phase.BACKWARD


def test_without_modules_annotations_are_the_scopes(tiny: Tiny) -> None:
    graph = read_trace(
        tiny.write(
            [
                tiny.step(3, 0, 1000),
                tiny.event("user_annotation", "forward", 10, 90),
                tiny.event("user_annotation", "embedding", 20, 30),
                tiny.op("aten::embedding", 25, 5),
                tiny.op("aten::mm", 60, 5),
                tiny.op("aten::add", 200, 5),
                tiny.call("cudaLaunchKernel", 26, 2, 1),
                tiny.kernel("gather", 40, 4, 1),
            ]
        )
    )
    assert scope(graph, "aten::embedding") == "/forward/embedding"
    assert scope(graph, "gather") == "/forward/embedding"
    assert scope(graph, "aten::mm") == "/forward"
    assert scope(graph, "aten::add") is None


def test_annotations_of_an_execution_trace_are_scopes(tmp_path: Path) -> None:
    def node(number: int, name: str, parent: int, scope: int = 0) -> dict[str, object]:
        return {
            "id": number, "name": name, "parent": parent, "rf_id": number, "tid": 1,
            "scope": scope, "inputs": [], "input_shapes": [], "input_types": [],
            "outputs": [], "output_shapes": [], "output_types": [],
        }  # fmt: skip

    nodes = [
        node(1, "## forward ##", 0, 7),
        node(2, "aten::mm", 1),
        node(3, "aten::add", 0),
    ]
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1.0.1", "pid": 1, "nodes": nodes}))
    graph = read_trace(path)
    assert scope(graph, "aten::mm") == "/## forward ##"
    assert scope(graph, "aten::add") is None


def test_loading_and_copies_of_the_data_are_a_phase(tiny: Tiny) -> None:
    graph = read_trace(
        tiny.write(
            [
                tiny.event("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 0, 50),
                tiny.op("aten::stack", 5, 20),
                tiny.op("aten::to", 60, 20),
                tiny.call("cudaMemcpyAsync", 65, 5, 1),
                tiny.event("gpu_memcpy", H2D, 70, 9, 7, device=0, stream=7, correlation=1),
                tiny.op("aten::mm", 90, 10),
                tiny.call("cudaLaunchKernel", 92, 5, 2),
                tiny.kernel("sgemm", 100, 9, 2),
                tiny.event("user_annotation", "Optimizer.step#Adam.step", 120, 40),
                tiny.op("aten::lift", 125, 20),
                tiny.call("cudaMemcpyAsync", 130, 5, 3),
                tiny.event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 140, 3, 7, device=0,
                           stream=7, correlation=3),
            ]
        )
    )  # fmt: skip
    assert phase(graph, "aten::stack") == Phase.DATA
    assert phase(graph, H2D) == Phase.DATA
    assert phase(graph, "sgemm") == Phase.FORWARD
    assert phase(graph, "Memcpy HtoD (Pinned -> Device)") == Phase.OPTIMIZER


def test_a_copy_that_a_module_issues_is_its_own(tiny: Tiny) -> None:
    graph = read_trace(
        tiny.write(
            [
                tiny.event("python_function", "nn.Module: Net_0", 0, 90),
                tiny.op("aten::to", 10, 20),
                tiny.call("cudaMemcpyAsync", 12, 5, 1),
                tiny.event("gpu_memcpy", H2D, 70, 9, 7, device=0, stream=7, correlation=1),
            ]
        )
    )
    assert phase(graph, H2D) == Phase.FORWARD


def test_several_backwards_recomputation_and_the_optimizer(tiny: Tiny) -> None:
    """Gradient accumulation with activation checkpointing, on two threads."""
    events = []
    for k, t in enumerate((0, 1000)):
        events += [
            tiny.op(f"forward{k}", t + 10, 50),
            tiny.op("engine::nothing", t + 100, 5, tid=2, Fwd_thread_id=1),
            tiny.op("CheckpointFunctionBackward", t + 110, 200, tid=2),
            tiny.op("recomputed", t + 120, 50, tid=2),
            tiny.op("aten::_to_copy", t + 125, 5, tid=2),
            tiny.op("autograd::engine::evaluate_function: MmBackward0", t + 180, 50, tid=2),
            tiny.op(f"between{k}", t + 400, 5, tid=2),
        ]
    events += [
        tiny.event("user_annotation", "Optimizer.step#AdamW.step", 3000, 100),
        tiny.op("aten::_foreach_add_", 3010, 20),
        tiny.op("aten::_fused_adamw_", 3040, 20),
    ]
    graph = read_trace(tiny.write(events))
    for name in ("forward0", "forward1"):
        assert phase(graph, name) == Phase.FORWARD
    for name in ("recomputed", "aten::_to_copy", "between0", "between1"):
        assert phase(graph, name) == Phase.BACKWARD
    for name in ("aten::_foreach_add_", "aten::_fused_adamw_"):
        assert phase(graph, name) == Phase.OPTIMIZER


def test_a_backward_on_the_calling_thread_ends_with_it(tiny: Tiny) -> None:
    graph = read_trace(
        tiny.write(
            [
                tiny.op("aten::mm", 0, 10),
                tiny.op("autograd::engine::evaluate_function: MmBackward0", 20, 30),
                tiny.op("aten::t", 25, 10),
                tiny.op("aten::add", 60, 10),
                *(tiny.op("SumBackward0", 100 + 10 * k, 5) for k in range(5)),
            ]
        )
    )
    assert phase(graph, "aten::mm") == phase(graph, "aten::add") == Phase.FORWARD
    assert phase(graph, "aten::t") == Phase.BACKWARD


def test_a_thread_that_begins_with_the_backward_runs_it(tiny: Tiny) -> None:
    """As in files whose host ops all lie at the top level."""
    events = [tiny.op("aten::mm", 0, 10), tiny.op("AddmmBackward0", 20, 5, tid=2)]
    events += [tiny.op(f"aten::op{k}", 30 + 10 * k, 5, tid=2) for k in range(3)]
    graph = read_trace(tiny.write(events))
    assert phase(graph, "aten::op2") == Phase.BACKWARD
    assert phase(graph, "aten::mm") == Phase.FORWARD


def test_work_without_a_host_side_has_no_phase(tiny: Tiny) -> None:
    graph = read_trace(
        tiny.write([tiny.call("hipLaunchKernel", 0, 5, 1), tiny.kernel("gemm", 10, 5, 1)])
    )
    assert phase(graph, "gemm") == Phase.UNKNOWN


def phase_us(graph: ExecutionGraph) -> dict[Phase, float]:
    device = graph.device_nodes
    us = np.bincount(graph.nodes.phase[device], graph.nodes.duration_us[device])
    return {Phase(i): float(v) for i, v in enumerate(us) if v > 0}


def test_one_run_in_two_formats_has_the_same_phases(real: Callable[[str], Path]) -> None:
    kineto = read_job([real("param_dlrm8")]).graphs[0]
    merged = read_job([real("astrasim_dlrm_et_plus/dlrm_eg_0_plus.json.gz")]).graphs[0]
    assert phase_us(merged) == pytest.approx(phase_us(kineto))


def test_backward_kernels_of_a_real_trace_have_their_modules(real: Callable[[str], Path]) -> None:
    (graph,) = read_job([real("tracelens_norm_layers")]).graphs
    device = graph.device_nodes
    backward = device[graph.nodes.phase[device] == Phase.BACKWARD]
    kernels = backward[graph.nodes.kind[backward] == NodeKind.KERNEL]
    known = graph.nodes.scope[kernels] >= 0
    assert known.mean() > 0.75
    scopes = {graph.strings[i] for i in graph.nodes.scope[kernels[known]].tolist()}
    forward = device[graph.nodes.phase[device] == Phase.FORWARD]
    assert scopes <= {graph.strings[i] for i in graph.nodes.scope[forward].tolist() if i >= 0}


def test_small_models_on_a_cpu_have_a_forward() -> None:
    """Most ops of their only thread are of the backward pass."""
    recording = Path(__file__).parents[3] / "datasets/cpu-recordings/mlp-small/kineto.json.gz"
    graph = read_job([recording]).graphs[0]
    found = {graph.name_of(i) for i in np.flatnonzero(graph.nodes.phase == Phase.FORWARD)}
    assert "aten::linear" in found
    assert not any("Backward" in name for name in found)
