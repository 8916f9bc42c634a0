import json
from pathlib import Path
from typing import Any

import pytest

from gnnperf.cli.main import main
from gnnperf.graph import save_job
from gnnperf.traces import read_job, validate
from gnnperf.traces.validate import CHECKS

Tiny = Any
"""The builder of `conftest.py`, which importlib mode does not let us import."""
Json = Any


def test_report_of_a_good_trace(
    tiny: Tiny, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, out = tiny.write(tiny.one_op()), tmp_path / "report.json"
    assert main(["validate", str(path), "--json", str(out)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for word in ("kineto", "trace.json", "whole", *CHECKS):
        assert word in shown.out
    report = json.loads(out.read_text())
    assert report["files"][0]["links"]["kernels"] == 1
    assert report["files"][0]["kernels_with_op_pct"] == 100.0
    assert report["files"][0]["kernels_with_shapes_pct"] == 100.0
    assert set(report["checks"]) == set(CHECKS)
    assert not any(report["checks"].values())


def test_each_check_counts(tiny: Tiny) -> None:
    events = [
        *tiny.one_op(),
        tiny.op("aten::shapeless", 100, 20),
        tiny.call("cudaLaunchKernel", 102, 5, 2),
        tiny.kernel("early", 99, 2, 2),
        tiny.call("cudaMemsetAsync", 110, 3, 3),
        tiny.kernel("orphan", 200, 20, 77),
        tiny.kernel("overlapping", 210, 20, 78),
    ]
    path = tiny.write(events, WARNING=["CUPTI dropped 12 records"])
    checks = validate(path).checks
    assert checks == {
        "launch_without_kernel": 1,
        "kernel_without_launch": 2,
        "negative_gaps": 1,
        "stream_overlaps": 1,
        "collective_before_inputs": 0,
        "missing_shapes": 1,
        "truncated_file": 0,
        "dropped_events": 1,
        "events_without_time": 0,
        "repaired_values": 0,
        "clock_skew": None,
        "unmatched_collectives": None,
    }


def et_plus(collective_start: int) -> str:
    """A kernel that writes a tensor from 10 to 30 and a collective that reads it."""
    tensor = [[[5, 6, 0, 4, 4, "cuda:0"]], [[4]], ["Tensor(float)"]]
    empty = [[], [], []]

    def node(
        ids: tuple[int, int],
        name: str,
        span: tuple[int, int],
        entering: Json,
        leaving: Json,
        **more: Json,
    ) -> Json:
        sides: dict[str, Json] = {}
        for side, (values, shapes, types) in (("input", entering), ("output", leaving)):
            sides |= {f"{side}s": values, f"{side}_shapes": shapes, f"{side}_types": types}
        return {
            "id": ids[0], "name": name, "parent": ids[1], "rf_id": ids[0], "tid": 1,
            "ts": span[0], "dur": span[1], **sides, **more,
        }  # fmt: skip

    kernel = {"cat": "kernel", "ph": "X", "pid": 0, "args": {}}
    rows = [
        node((2, 1), "aten::relu", (0, 5), empty, tensor),
        node((3, 2), "relu_kernel", (10, 20), empty, empty, **kernel),
        node((4, 1), "c10d::allreduce_", (6, 5), tensor, empty),
        node((5, 4), "ncclKernel_AllReduce", (collective_start, 9), empty, empty, **kernel),
    ]
    return json.dumps({"schema": "1.0.1", "pid": 1, "nodes": rows})


@pytest.mark.parametrize(("start", "count"), [(30, 0), (20, 1)])
def test_collective_before_its_inputs(tiny: Tiny, start: int, count: int) -> None:
    assert validate(tiny.text(et_plus(start))).checks["collective_before_inputs"] == count


def test_refused_file_is_one_line_and_two(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tiny.write(tiny.one_op()), tiny.text('{"traceEvents": [{', "bad.json")
    assert main(["validate", str(good), str(bad)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert "bad.json" in shown.err


def test_graph_file_gives_the_same_links(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny.write(tiny.one_op())
    saved = save_job(read_job(path), tmp_path / "graph.npz")
    (of_trace,), (of_graph,) = validate(path).files, validate(saved).files
    assert of_graph.links == of_trace.links
    assert of_graph.format == "gnnperf graph (kineto)"
    assert main(["validate", str(saved), "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["validate", str(saved), str(path)]) == 2
    assert "give it alone" in capsys.readouterr().err
