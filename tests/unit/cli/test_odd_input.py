"""What the verbs say of input that is odd or wrong: a result, or one line and exit 2."""

import json
from pathlib import Path
from typing import Any

import pytest

from gnnperf.cli.main import main

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
