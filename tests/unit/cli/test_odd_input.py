"""What the verbs say of input that is odd or wrong: a result, or one line and exit 2."""

import io
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.cli.main import main
from gnnperf.data.tables import load_table, save_table

MM = {"Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]}


def event(cat: str, name: str, ts: float, dur: float, **args: object) -> dict[str, Any]:
    where = {"pid": 0, "tid": 7} if cat == "kernel" else {"pid": 1, "tid": 1}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args, **where}


def write(path: Path, op: str = "aten::mm", kernel: str = "sgemm", device: str = "A100") -> Path:
    """A trace of three steps of one op each."""
    events = []
    for i in range(3):
        t, c = 200.0 * i, i + 1
        events += [
            event("user_annotation", f"ProfilerStep#{i}", t, 199),
            event("cpu_op", op, t + 10, 30, **MM),
            event("cuda_runtime", "cudaLaunchKernel", t + 20, 10, correlation=c),
            event("kernel", kernel, t + 32, 40, device=0, stream=7, correlation=c),
        ]
    devices = [{"id": 0, "name": device}]
    path.write_text(json.dumps({"deviceProperties": devices, "traceEvents": events}))
    return path


def complaint(words: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a run that ends with 2."""
    try:
        status: Any = main([str(word) for word in words])
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr().err.strip()
    assert status == 2, said
    assert len(said.splitlines()) == 1, said
    return said


@pytest.mark.parametrize("name", ["[/x]", "[red", "a[bold]b[/bold]", "核:rocket:", "[link=x]"])
def test_names_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    trace = write(tmp_path / f"{name.replace('/', '')}.json", name, name, "[GPU /x]")
    assert main(["infer", str(trace), "--engine", "measured"]) == 0
    shown = capsys.readouterr().out
    assert f" {name} " in shown
    assert f"of {trace.name}:" in shown
    assert "'[GPU /x]'" in shown


def test_an_unknown_device_is_told_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(tmp_path / "t.json", device="FooGPU 9000")
    said = complaint(["simulate", trace], capsys)
    assert "t.json" in said
    assert "FooGPU 9000" in said
    assert "--hardware" in said
    said = complaint(["simulate", trace, "--hardware", "cpu"], capsys)
    assert "t.json: --hardware" in said


@pytest.mark.parametrize(
    "words",
    [
        ["--kernel-scale", "nan"],
        ["--kernel-scale", "1e300"],
        ["--kernel-scale", "-1"],
        ["--kernel-scale", "much"],
        ["--top", "-3"],
        ["--top", "x"],
        ["--step", "99"],
    ],
)
def test_silly_options_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    said = complaint(["simulate", write(tmp_path / "t.json"), *words], capsys)
    assert words[0].lstrip("-") in said
    assert words[1] in said


@pytest.mark.parametrize("ending", ["npz", "parquet"])
@pytest.mark.parametrize("place", ["folder.{}", "t.json/x.{}"])
def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, ending: str
) -> None:
    trace = write(tmp_path / "t.json")
    out = tmp_path / place.format(ending)
    if "folder" in place:
        out.mkdir()
    said = complaint(["dataset", "build", trace, "--out", out], capsys)
    assert str(tmp_path) in said


def test_reports_into_missing_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = write(tmp_path / "t.json"), tmp_path / "none" / "x.json"
    for words in (["simulate", trace], ["validate", trace], ["hardware", "show", "a100"]):
        assert str(out) in complaint([*words, "--json", out], capsys)


def _header(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def alter(arrays: dict[str, Any]) -> None:
        header = json.loads(arrays["header"].tobytes())
        change(header)
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)

    return alter


DAMAGE: dict[str, Callable[[dict[str, Any]], None]] = {
    "nodes.name": lambda a: a["0/nodes/name"].fill(9999),
    "nodes.launch": lambda a: a["0/nodes/launch"].fill(9999),
    "nodes.kind": lambda a: a["0/nodes/kind"].fill(99),
    "lanes.label": lambda a: a["0/lanes/label"].fill(9999),
    "edges.src": lambda a: a["0/edges/src"].fill(-2),
    "inputs.dtype": lambda a: a["0/inputs/dtype"].fill(99),
    "nodes.parent": lambda a: a["0/nodes/parent"].fill(0),
    "no time": lambda a: a["0/nodes/duration_us"].fill(-1),
    "without a start": lambda a: a["0/nodes/start_us"].fill(np.nan),
    "several lengths": lambda a: a.update({"0/nodes/name": a["0/nodes/name"][:2]}),
    "0/nodes/kind is float64": lambda a: a.update({"0/nodes/kind": a["0/nodes/kind"] * 1.0}),
    "0/edges/dst": lambda a: a.pop("0/edges/dst"),
    "rendezvous.ptr": lambda a: a.update({"rendezvous/ptr": np.array([0, 5])}),
    "$.step": _header(lambda h: h["graphs"][0]["meta"].update(step="x")),
    "$.device": _header(lambda h: h["graphs"][0]["meta"].update(device=5)),
    "unknown zzz": _header(lambda h: h["graphs"][0]["meta"].update(zzz=5)),
    "IndexError": _header(lambda h: h["graphs"][0].update(strings=50)),
    "Expected `str`": _header(lambda h: h.update(strings=[[1, 2]])),
    "newer": _header(lambda h: h.update(gnnperf_graph=99)),
}


@pytest.mark.parametrize("word", DAMAGE)
def test_a_damaged_graph_file_is_refused_by_every_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    assert main(["dataset", "build", str(write(tmp_path / "t.json")), "--out", str(good)]) == 0
    with np.load(good) as stored:
        arrays = {name: stored[name].copy() for name in stored.files}
    DAMAGE[word](arrays)
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    bad.write_bytes(packed.getvalue())
    capsys.readouterr()
    for verb in ("simulate", "validate"):
        said = complaint([verb, bad], capsys)
        assert f"{bad}: " in said
        assert word in said


def test_a_graph_file_says_what_its_trace_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, graphs = write(tmp_path / "t.json"), tmp_path / "t.npz"
    assert main(["dataset", "build", str(trace), "--out", str(graphs)]) == 0
    found = []
    for place in (trace, graphs, trace):
        out = tmp_path / "out.json"
        assert main(["simulate", str(place), "--json", str(out)]) == 0
        found.append(out.read_bytes())
    capsys.readouterr()
    assert found[0] == found[1] == found[2]


def test_an_execution_trace_whose_op_is_its_own_parent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        {"id": i, "name": "aten::mm", "parent": parent} for i, parent in ((2, 2), (3, 4), (4, 3))
    ]
    path = tmp_path / "e.json"
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": nodes}))
    assert main(["validate", str(path)]) == 0
    assert "pytorch-et" in capsys.readouterr().out


def test_json_nested_beyond_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = '[{"ph": "X", "args": {"Input Dims": ' + "[" * 5000 + "]" * 5000 + "}}]"
    path = tmp_path / "deep.json"
    path.write_text('{"traceEvents": ' + events + "}")
    assert "deep.json" in complaint(["validate", path], capsys)


@pytest.mark.parametrize(
    "change",
    [
        {"tid": 2**70},
        {"input_shapes": 5, "input_types": ["Tensor(float)"]},
        {"input_types": 5},
        {"attrs": [{"name": "rf_id"}]},
        {"name": "record_param_comms", "inputs": ["x", "allreduce"],
         "input_types": ["Int", "String"]},
        {"ts": 5, "dur": -3},
        {"ts": 1e300, "dur": 1},
    ],
)  # fmt: skip
def test_an_execution_trace_of_wrong_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object]
) -> None:
    first = {"id": 1, "name": "aten::mm", "ts": 1, "dur": 1}
    path = tmp_path / "e.json"
    nodes = [first, {"id": 2, "name": "aten::mm", **change}]
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": nodes}))
    assert "e.json: nodes: " in complaint(["validate", path], capsys)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("devices: 5", "devices"),
        ("devices: {a: 5}", "a"),
        ("families: 5\ndevices: {a: {extends: f}}", "families"),
        ("families: {f: 5}\ndevices: {a: {extends: f}}", "f"),
        ("platforms: [1]", "platforms"),
        ("name: a\nsources: 5", "sources"),
    ],
)
def test_a_hardware_file_of_wrong_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, field: str
) -> None:
    path = tmp_path / "h.yaml"
    path.write_text(text)
    said = complaint(["hardware", "check", path], capsys)
    assert f"h.yaml: {field}: expected a group of keys" in said


@pytest.mark.parametrize("duration", [0.0, -1.0, float("nan"), float("inf")])
def test_a_kernel_table_with_a_duration_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], duration: float
) -> None:
    table = tmp_path / "t.parquet"
    assert main(["dataset", "build", str(write(tmp_path / "t.json")), "--out", str(table)]) == 0
    held = load_table(table)
    save_table(replace(held, duration_us=np.full(len(held), duration)), table)
    said = complaint(["evaluate", table, "--engine", "analytic"], capsys)
    assert "t.parquet: duration_us" in said


@pytest.mark.parametrize(
    "setting",
    ["seed=-5", "threads=0", "model.hidden=-4", "model.layers=0", "prior.batch_size=0", "seed=[1"],
)
def test_a_training_config_that_cannot_be_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("wandb: disabled\n")
    words = ["train", "--config", config, "--run", tmp_path / "run", "--set", setting]
    assert setting.split("=")[0] in complaint(words, capsys)
    assert not (tmp_path / "run").exists()


def test_a_plain_pickle_is_no_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.ckpt"
    path.write_bytes(pickle.dumps({"a": 1}))
    said = complaint(["infer", write(tmp_path / "t.json"), "--checkpoint", path], capsys)
    assert "model.ckpt: no checkpoint" in said


@pytest.mark.parametrize("value", ["nan", "-1", "2", "much"])
def test_trust_in_the_trace_is_from_0_to_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    words = ["infer", write(tmp_path / "t.json"), "--evidence", value]
    assert "from 0 to 1" in complaint(words, capsys)
