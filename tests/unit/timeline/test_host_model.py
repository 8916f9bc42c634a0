"""The host model: forest, records, costs along the chain of launches, fit, and the profiler."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gnnperf.errors import InputError
from gnnperf.graph import ExecutionGraph, Job, NodeKind
from gnnperf.timeline.host_classes import (
    ALLOCATE,
    ANNOTATION,
    BACKWARD,
    ENGINE,
    UNKNOWN,
    VIEW,
    host_class,
)
from gnnperf.timeline.host_fit import SetRecords, fit_host, main, save_host_model
from gnnperf.timeline.host_measure import forest, host_records
from gnnperf.timeline.host_model import (
    HostModel,
    HostSide,
    OpCost,
    Profiler,
    default_host_model,
    host_factor,
    host_times,
    load_host_model,
)
from gnnperf.timeline.host_profiler import Overhead, host_scale, without_profiler
from gnnperf.timeline.replay import run, schedule_of
from gnnperf.traces import read_trace

SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[3].parent / "shared"))
RECORDED = Path(__file__).parents[3] / "datasets" / "cpu-recordings"


def traced(programs: SimpleNamespace) -> ExecutionGraph:
    """`aten::linear` [0, 60] holds `aten::t` [5, 10] and `aten::addmm` [20, 50], which launches at
    [30, 36]; then `aten::view` [70, 72] and `aten::relu` [75, 95] with a launch at [80, 85]."""
    calls = [
        ("range", 0.0, 100.0, 7),
        ("aten::linear", 0.0, 60.0, 7),
        ("aten::t", 5.0, 10.0, 7),
        ("aten::addmm", 20.0, 50.0, 7),
        ("cudaLaunchKernel", 30.0, 36.0, 7),
        ("aten::view", 70.0, 72.0, 7),
        ("aten::relu", 75.0, 95.0, 7),
        ("cudaLaunchKernel", 80.0, 85.0, 7),
    ]
    work = [(NodeKind.KERNEL, "k", 7, 40.0, 45.0, 4), (NodeKind.KERNEL, "k", 7, 90.0, 95.0, 7)]
    graph: ExecutionGraph = programs.graph_of(calls, work, 0.0, 100.0, 100.0)
    nodes = graph.nodes
    nodes.kind[[0, 1, 2, 3, 5, 6]] = NodeKind.HOST_OP
    parent = np.array([-1, 0, 1, 1, 3, 0, 0, 6, -1, -1], np.int32)
    op = np.array([-1, -1, -1, -1, 3, -1, -1, 6, 3, 6], np.int32)
    return replace(graph, nodes=replace(nodes, parent=parent, op=op))


def names(graph: ExecutionGraph, rows: np.ndarray) -> list[str]:
    return [graph.name_of(int(n)) for n in rows]


def costs(**of: OpCost) -> HostModel:
    classes = {key.replace("_", " "): cost for key, cost in of.items()}
    return HostModel(4.0, 30.0, Profiler(1.0, 2.0, 1.5), classes, {}, OpCost(9.0, 0.0, 0.0, 1.0))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::addmm", "gemm"),
        ("aten::view", VIEW),
        ("aten::empty_strided", ALLOCATE),
        ("autograd::engine::evaluate_function: MulBackward0", ENGINE),
        ("MulBackward0", BACKWARD),
        ("torch::autograd::AccumulateGrad", BACKWARD),
        ("nccl:all_reduce", "collective"),
        ("Optimizer.step#SGD.step", ANNOTATION),
        ("## forward ##", ANNOTATION),
        ("mine::op", UNKNOWN),
    ],
)
def test_classes_of_names(name: str, expected: str) -> None:
    assert host_class(name) == expected


def test_annotations_are_looked_through(programs: SimpleNamespace) -> None:
    graph = traced(programs)
    tree = forest(graph)
    assert names(graph, tree.node) == [
        "aten::linear",
        "aten::t",
        "aten::addmm",
        "aten::view",
        "aten::relu",
    ]
    assert tree.parent.tolist() == [-1, 0, 0, -1, -1]
    assert tree.last.tolist() == [2, 1, 2, 3, 4]
    assert tree.row[[4, 7, 8, 9]].tolist() == [2, 4, 2, 4]


def test_host_time_falls_before_between_and_after(programs: SimpleNamespace) -> None:
    records = host_records(traced(programs))
    assert records.before_us.tolist() == [5, 5, 10, 2, 5]
    assert records.between_us.tolist() == [10, 0, 0, 0, 0]
    assert records.after_us.tolist() == [10, 0, 14, 0, 10]
    assert records.gap_us[[0, 3]].tolist() == [10, 3]
    assert np.isnan(records.gap_us[[1, 2, 4]]).all()
    assert records.launches.tolist() == [0, 0, 1, 0, 1]
    assert sorted(records.launch_us.tolist()) == [5, 6]
    # All of the step but the 5 us after its last op.
    assert records.total_us == pytest.approx(95)


def test_times_of_launches_by_hand(programs: SimpleNamespace) -> None:
    graph = traced(programs)
    model = costs(
        gemm=OpCost(10.0, 1.0, 3.0, 20.0),
        view=OpCost(2.0, 0.0, 0.0, 5.0),
        elementwise=OpCost(6.0, 0.0, 4.0, 8.0),
    )
    side = HostSide(profiled=True, model=model)
    times = host_times(graph, np.array([8, 9]), side)
    # linear opens 10 + 2 x 1, t 2, addmm 10 + 1; addmm closes 3, linear 3 + 20, view 2 + 5, relu 6.
    assert times.gap_us.tolist() == pytest.approx([25, 3 + 23 + 7 + 6])
    assert times.launch_us.tolist() == [4, 4]
    assert times.tail_us == pytest.approx(4 + 8)
    assert times.unknown == {}
    slow = host_times(graph, np.array([8, 9]), replace(side, factor=2.0))
    assert slow.total_us == pytest.approx(2 * times.total_us)
    bare = host_times(graph, np.array([8, 9]), HostSide(model=model))
    # Five events of 1 us each, two launches of 2 us.
    assert bare.total_us == pytest.approx(times.total_us - 5 - 4)


def test_unknown_ops_are_counted(programs: SimpleNamespace) -> None:
    graph = traced(programs)
    model = costs(view=OpCost(2.0, 0.0, 0.0, 5.0))
    times = host_times(graph, np.array([8, 9]), HostSide(profiled=True, model=model))
    assert times.unknown == {"aten::linear": 1, "aten::addmm": 1, "aten::relu": 1}


def test_without_host_ops_each_work_has_its_share(programs: SimpleNamespace) -> None:
    graph = programs.record([programs.Instruction("launch", 5.0)] * 3)
    graph.nodes.launch[:] = -1
    works = graph.device_nodes
    times = host_times(graph, works, HostSide(profiled=True, model=costs()))
    assert times.total_us == pytest.approx(3 * 30)


def test_a_step_without_launches_runs_at_the_speed_of_the_model(programs: SimpleNamespace) -> None:
    graph = traced(programs)
    graph.nodes.launch[:] = -1
    result = run(schedule_of(Job((graph,))), kernel_scale=0.0)
    assert result.iteration_us == pytest.approx(host_times(graph, np.array([8, 9])).total_us)
    assert any("host model" in said for said in result.assumed)
    slow = schedule_of(Job((graph,)), host=HostSide(factor=3.0))
    assert run(slow, kernel_scale=0.0).iteration_us == pytest.approx(3 * result.iteration_us)


def records_of(name: str, speed: float, odd: float = 1.0) -> SetRecords:
    ops = ("aten::mm", "aten::relu", "aten::view")
    cost = np.array([20.0, 8.0, 2.0]) * speed * np.array([1.0, odd, 1.0])
    zero = np.zeros(3)
    parts = {"before_us": cost, "between_us": zero, "after_us": zero, "gap_us": zero}
    parts["launches"] = np.array([1.0, 1.0, 0.0])
    return SetRecords(name, ops, np.full(3, 100.0), cost, parts, 5.0 * speed, 30.0 * speed)


def test_the_fit_tells_slow_hosts_from_slow_ops() -> None:
    sets = [records_of(n, f) for n, f in (("a", 0.5), ("b", 1.0), ("c", 4.0))]
    sets.append(records_of("odd", 1.0, odd=50.0))
    model = fit_host(sets)
    assert model.factors == pytest.approx({"a": 0.5, "b": 1.0, "c": 4.0, "odd": 1.0}, rel=0.1)
    assert model.names["aten::mm"].before_us == pytest.approx(20.0, rel=0.1)
    assert model.classes[VIEW].before_us == pytest.approx(2.0, rel=0.1)
    assert model.launch_us == pytest.approx(5.0, rel=0.1)


def test_a_model_comes_back_from_its_file(tmp_path: Path) -> None:
    model = default_host_model()
    save_host_model(model, tmp_path / "m.yaml")
    assert load_host_model(tmp_path / "m.yaml") == model
    (tmp_path / "newer.yaml").write_text("format: 2\n")
    with pytest.raises(InputError, match="no `classes`"):
        load_host_model(tmp_path / "newer.yaml")
    assert main([str(tmp_path / "none"), "--out", str(tmp_path / "o.yaml")]) == 2


def test_the_profiler_gives_back_what_lies_between(programs: SimpleNamespace) -> None:
    calls = [
        ("aten::mm", 0.0, 100.0, 7),
        ("aten::t", 10.0, 20.0, 7),
        ("aten::relu", 110.0, 150.0, 7),
    ]
    graph = programs.graph_of(calls, [], 0.0, 200.0, np.nan)
    graph.nodes.kind[:] = NodeKind.HOST_OP
    bare = without_profiler(graph, event_us=2.0)
    assert bare.meta.host_step_us == pytest.approx(200 - 3 * 2)
    # Nothing lies before the first start, so that its half comes out of what follows.
    assert bare.nodes.duration_us.tolist() == pytest.approx([100 - 4, 10 - 1, 40 - 1])
    assert (np.diff(bare.nodes.start_us[[0, 1, 2]]) > 0).all()
    assert without_profiler(graph, event_us=1000.0).nodes.duration_us.min() >= 0
    untouched = without_profiler(graph, event_us=0.0).nodes
    assert untouched.duration_us.tolist() == graph.nodes.duration_us.tolist()


def test_the_overhead_is_the_slope_and_bears_an_outlier() -> None:
    events = np.array([100, 200, 400, 800, 300])
    slower = 1.5 * events + np.array([0.0, 0.0, 0.0, 0.0, 5000.0])
    cost = Overhead(("a", "b", "c", "d", "odd"), events, slower, np.full(5, 20.0))
    assert cost.event_us == pytest.approx(1.5, rel=0.1)
    assert cost.without("odd") == pytest.approx(1.5)


def test_own_recordings_tell_what_the_profiler_costs() -> None:
    folder = RECORDED / "mlp-small"
    if not folder.is_dir():
        pytest.skip("no recordings beside the package")
    graph = read_trace(folder / "kineto.json.gz")
    bare = without_profiler(graph)
    assert 0.5 * graph.meta.host_step_us < bare.meta.host_step_us < graph.meta.host_step_us
    assert host_factor(graph) == 1.0
    assert host_scale(graph) == 1.0


def test_a_real_host_is_predicted_from_its_ops() -> None:
    folder = SHARED / "data" / "traces" / "tracelens_h100_qwen"
    if not folder.is_dir():
        pytest.skip("the public traces are not here")
    graph = read_trace(next(folder.glob("*.json.gz")))
    works = graph.device_nodes[graph.nodes.launch[graph.device_nodes] >= 0]
    works = works[np.argsort(graph.nodes.start_us[graph.nodes.launch[works]])]
    side = HostSide(factor=host_factor(graph), profiled=True)
    told = host_times(graph, works, side).total_us
    assert told == pytest.approx(host_records(graph).total_us, rel=0.15)
    assert 0.2 <= host_scale(graph) < 0.9
