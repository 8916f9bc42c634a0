"""Ops of a GPU's step whose tensors lie in host memory: no device work, little host time."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gnnperf.graph import ExecutionGraph, Job
from gnnperf.graph.model import NONE, ON_HOST
from gnnperf.ops.leaf import leaf_ops, on_host_tensors
from gnnperf.ops.lower import lower
from gnnperf.timeline.host_classes import CUSTOM, VIEW, host_class, would_launch
from gnnperf.timeline.host_measure import forest, op_names
from gnnperf.timeline.host_model import HostSide, host_times
from gnnperf.timeline.host_speed import OtherHost, on_host, other_host
from gnnperf.timeline.replay import run, schedule_of
from gnnperf.traces import read_job, read_trace

SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[3].parent / "shared"))
DLRM = SHARED / "data" / "traces" / "param_dlrm8"
needs_dlrm = pytest.mark.skipif(not DLRM.is_dir(), reason="no shared traces beside the repository")

ET = """{"schema": "1.0.1", "pid": 3, "nodes": [
 {"id": 1, "name": "[pytorch|profiler|execution_graph|process]", "parent": 1},
 {"id": 2, "name": "aten::mm", "parent": 1, "tid": 1,
  "inputs": [[5, 6, 0, 16, 4, "cuda:0"], [7, 8, 0, 16, 4, "cuda:0"]],
  "input_shapes": [[4, 4], [4, 4]], "input_types": ["Tensor(float)", "Tensor(float)"]},
 {"id": 3, "name": "aten::item", "parent": 1, "tid": 1,
  "inputs": [[9, 10, 0, 1, 4, "cpu"]], "input_shapes": [[]], "input_types": ["Tensor(float)"]},
 {"id": 4, "name": "aten::_local_scalar_dense", "parent": 3, "tid": 1,
  "inputs": [[9, 10, 0, 1, 4, "cpu"]], "input_shapes": [[]], "input_types": ["Tensor(float)"]},
 {"id": 5, "name": "aten::copy_", "parent": 1, "tid": 1,
  "inputs": [[5, 6, 0, 16, 4, "cuda:0"], [11, 12, 0, 16, 4, "cpu"]],
  "input_shapes": [[4, 4], [4, 4]], "input_types": ["Tensor(float)", "Tensor(float)"]},
 {"id": 6, "name": "aten::cat", "parent": 1, "tid": 1,
  "inputs": [[[11, 12, 0, 16, 4, "cpu"], [13, 14, 0, 16, 4, "cpu"]]],
  "input_shapes": [[[4, 4], [4, 4]]],
  "input_types": ["GenericList[Tensor(float),Tensor(float)]"]}]}"""


@pytest.fixture
def et(tmp_path: Path) -> ExecutionGraph:
    path = tmp_path / "et.json"
    path.write_text(ET)
    return read_trace(path)


def _named(graph: ExecutionGraph, nodes: object) -> list[str]:
    return [graph.name_of(int(n)) for n in np.asarray(nodes)]


def test_an_execution_trace_says_where_tensors_lie(et: ExecutionGraph) -> None:
    here = _named(et, np.flatnonzero(on_host_tensors(et)))
    assert here == ["aten::item", "aten::_local_scalar_dense", "aten::cat"]
    assert _named(et, leaf_ops(et)) == ["aten::mm", "aten::copy_"]
    step = lower(et)
    assert _named(step, step.device_nodes) == ["aten::mm", "aten::copy_"]


def test_all_ops_of_a_step_on_the_cpu_are_its_work(tmp_path: Path) -> None:
    path = tmp_path / "et.json"
    path.write_text(ET.replace("cuda:0", "cpu"))
    graph = read_trace(path)
    assert graph.meta.device_type == "cpu"
    assert not on_host_tensors(graph).any()
    assert {"aten::mm", "aten::copy_", "aten::cat"} <= set(_named(graph, leaf_ops(graph)))


def test_ops_on_host_tensors_cost_what_a_view_costs(et: ExecutionGraph) -> None:
    names = op_names(et, forest(et))
    assert names[1:3] == ["aten::item" + ON_HOST, "aten::_local_scalar_dense" + ON_HOST]
    assert [host_class(n) for n in names[1:3]] == [VIEW, VIEW]
    assert would_launch("aten::add_")
    assert not would_launch("aten::view")
    assert not would_launch("c10d::allreduce_")


def test_a_custom_autograd_node_makes_its_launches() -> None:
    name = "torch::autograd::CppNode<SplitLookupFunction_Dense_Op>"
    assert host_class(name) == CUSTOM


@needs_dlrm
def test_an_execution_trace_launches_what_its_profile_shows() -> None:
    """Rank 0 of eight: the same ops are first and last to launch, and none that did not."""
    job = read_job(sorted(DLRM.glob("*_et.*")))
    step = lower(next(g for g in job.graphs if g.meta.rank == 0))
    works = [step.name_of(int(n)) for n in step.nodes.op[step.device_nodes]]
    profile = read_job(sorted(DLRM.glob("*kineto*")))
    traced = next(g for g in profile.graphs if g.meta.rank == 0)
    device = traced.device_nodes[traced.nodes.launch[traced.device_nodes] >= 0]
    device = device[np.argsort(traced.nodes.start_us[traced.nodes.launch[device]], kind="stable")]
    issuers = traced.nodes.op[device]
    launched = [traced.name_of(int(n)) if n != NONE else "" for n in issuers]
    assert works[:6] == launched[:6]
    assert works[-4:] == launched[-4:]
    assert not {"aten::item", "aten::_local_scalar_dense"} & set(works)
    total, traced_names = Counter(works), Counter(launched)
    for name in ("aten::addcmul_", "aten::addcdiv_", "aten::sqrt", "aten::bmm"):
        assert total[name] == traced_names[name], name


@needs_dlrm
def test_another_cpu_scales_steps_without_a_host_side() -> None:
    job = read_job(sorted(DLRM.glob("*_et.*")))
    graph = lower(job.graphs[0])
    step = Job((graph,))
    plain = host_times(graph, graph.device_nodes, HostSide())
    fast = host_times(graph, graph.device_nodes, other_host("2", "", None).side)
    assert fast.total_us == pytest.approx(plain.total_us / 2)
    # the host model's times are scaled once, not again as if they were recorded
    scheduled = schedule_of(step, host=HostSide(0.5))
    assert np.array_equal(on_host(scheduled, 0.5).schedule.gap_us, scheduled.schedule.gap_us)
    nothing = [np.zeros(graph.num_nodes)]
    assert run(scheduled, nothing).iteration_us == pytest.approx(fast.total_us, rel=0.02)


def test_no_cpu_changes_nothing() -> None:
    assert other_host(None, "", None) == OtherHost()
