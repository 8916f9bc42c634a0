"""Events whose values no profiler should write: they are left out and counted, never believed."""

import json
from typing import Any

import numpy as np
import pytest

from gnnperf.api import Predictor
from gnnperf.errors import InputError
from gnnperf.graph import ExecutionGraph
from gnnperf.traces import read_job, read_trace, steady_steps, validate

Tiny = Any
"""The builder of `conftest.py`, which importlib mode does not let us import."""


def named(graph: ExecutionGraph, name: str) -> list[int]:
    return [i for i in range(graph.num_nodes) if graph.name_of(i) == name]


@pytest.mark.parametrize(
    ("ts", "dur"),
    [(50, -1), (1e18, 1), (-1e308, 1), (50, 1e308), (50, None), ("soon", 1), (50, "nan")],
)
def test_work_without_a_usable_time_is_left_out(tiny: Tiny, ts: object, dur: object) -> None:
    path = tiny.write([*tiny.one_op(), tiny.kernel("odd", ts, dur, 1)])
    graph = read_trace(path)
    assert not named(graph, "odd")
    (sgemm,) = named(graph, "sgemm")
    assert graph.nodes.duration_us[sgemm] == 7
    assert validate(path).checks["events_without_time"] == 1
    assert graph.meta.warnings == ("1 events without a usable time",)


def test_nothing_timed_is_refused(tiny: Tiny) -> None:
    events = tiny.one_op()
    for event in events:
        event["dur"] = -5
    with pytest.raises(InputError, match=r"ts, dur: none of its 3 events"):
        read_job(tiny.write(events))


@pytest.mark.parametrize("value", [1e30, 2**70, -(2**70), 2**31])
def test_numbers_past_their_type_are_unknown(tiny: Tiny, value: float) -> None:
    events = tiny.one_op()
    kernel = events[-1]["args"]
    kernel["registers per thread"] = kernel["shared memory"] = kernel["device"] = value
    kernel["block"] = [abs(int(value)), 1, 1]
    graph = read_trace(tiny.write(events))
    (sgemm,) = named(graph, "sgemm")
    assert graph.nodes.registers[sgemm] == graph.nodes.shared_memory[sgemm] == -1
    assert graph.nodes.block_threads[sgemm] == -1
    assert graph.lanes.device[graph.nodes.lane[sgemm]] == -1


def test_ids_past_64_bits_link_nothing(tiny: Tiny) -> None:
    events = tiny.one_op()
    events[-1]["args"]["correlation"] = 2**70
    events[-1]["args"]["grid"] = [2**40, 2**40, 1]
    graph = read_trace(tiny.write(events))
    (sgemm,) = named(graph, "sgemm")
    assert graph.nodes.launch[sgemm] == graph.nodes.grid_blocks[sgemm] == -1


def test_a_grid_of_other_digits(tiny: Tiny) -> None:
    events = tiny.one_op()
    events[-1]["args"]["grid"] = "(4, ², 2)"
    graph = read_trace(tiny.text(json.dumps({"traceEvents": events}, ensure_ascii=False)))
    assert graph.nodes.grid_blocks[named(graph, "sgemm")[0]] == 8


def test_a_step_without_an_end_ends_no_other(tiny: Tiny) -> None:
    steps = [tiny.step(0, 0, None), tiny.step(1, 100, 99), tiny.step(2, 200, 99)]
    works = [e for t in (0, 100, 200) for e in _shifted(tiny.one_op(), t)]
    job = read_job(tiny.write([*steps, *works]))
    assert [g.meta.step_name for g in job.graphs] == [f"ProfilerStep#{i}" for i in range(3)]
    assert job.graphs[0].meta.host_step_us == 100


def test_kernels_that_all_start_at_once_tell_no_period(tiny: Tiny) -> None:
    steps = [tiny.step(i, 100 * i, 99) for i in range(3)]
    works = [e for t in (0, 100, 200) for e in _shifted(tiny.one_op(), t)]
    for event in works:
        if event["cat"] == "kernel":
            event.update(ts=40, dur=0)
    job = read_job(tiny.write([*steps, *works], deviceProperties=[{"id": 0, "name": "A100"}]))
    assert all(np.isnan(g.meta.device_period_us) for g in job.graphs)
    assert [g.meta.device_span_us for g in job.graphs] == [0, 0, 0]
    prediction = Predictor.of_engine("measured").predict(job.of_step(1))
    assert prediction.iteration_time_us.measured is None


def _shifted(events: list[Any], by: float) -> list[Any]:
    for event in events:
        event["ts"] += by
        if "correlation" in event["args"]:
            event["args"]["correlation"] += int(by)
    return events


def test_steps_without_their_kernels_are_not_steady(tiny: Tiny) -> None:
    steps = [tiny.step(i, 100 * i, 99) for i in range(6)]
    works = [_shifted(tiny.one_op(), 100 * i) for i in range(6)]
    kept = [e for i, w in enumerate(works) for e in (w if i % 2 else w[:-1])]
    job = read_job(tiny.write([*steps, *kept]))
    assert [len(g.device_nodes) for g in job.graphs] == [0, 1, 0, 1, 0, 1]
    assert set(steady_steps(job)) <= {1, 3, 5}


@pytest.mark.parametrize("elements", [2**62, 2**63 - 1])
def test_sizes_and_ranks_of_collectives_past_their_type(tiny: Tiny, elements: int) -> None:
    events = tiny.one_op()
    events[-1]["args"] |= {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": elements,
        "Out msg nelems": 10,
        "Process Group Ranks": [0, 2**40],
    }
    said = read_trace(tiny.write(events)).collectives
    assert said.input_bytes.tolist() == [-1]
    assert said.output_bytes.tolist() == [40]
    assert said.ranks.tolist() == []


@pytest.mark.parametrize(("later", "said"), [(0, True), (1e6, False)])
def test_two_files_of_one_rank(tiny: Tiny, later: float, said: bool) -> None:
    for name, by in (("a.json", 0.0), ("b.json", later)):
        events = [tiny.step(i, 100 * i + by, 99) for i in range(2)]
        events += [e for i in range(2) for e in _shifted(tiny.one_op(), 100 * i + by)]
        tiny.write(events, name, distributedInfo={"rank": 0, "world_size": 2})
    job = read_job(tiny.folder)
    assert job.ranks == [0]
    assert len(job.graphs) == 4
    warned = [any("say they are rank 0" in w for w in g.meta.warnings) for g in job.graphs]
    assert warned == [said] * 4


def test_a_stray_file_beside_traces_is_left_out_and_named(tiny: Tiny) -> None:
    tiny.write(tiny.one_op(), "rank0.json")
    tiny.text('{"notes": 1}', "notes.json")
    (graph, *_) = read_job(tiny.folder).graphs
    assert [w for w in graph.meta.warnings if "notes.json" in w and "left out" in w]


def test_a_stray_file_by_name_and_a_folder_of_strays_are_refused(tiny: Tiny) -> None:
    path = tiny.text('{"notes": 1}', "notes.json")
    for given in (path, tiny.folder):
        with pytest.raises(InputError, match=r"notes\.json.*no format"):
            read_job(given)


def test_a_wrong_header_names_its_field(tiny: Tiny) -> None:
    path = tiny.write(tiny.one_op(), deviceProperties="H100")
    with pytest.raises(InputError, match="the header") as caught:
        read_job(path)
    assert caught.value.field == "deviceProperties"
