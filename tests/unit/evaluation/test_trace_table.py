"""The table of traced steps, on a hand-made set of two kernels."""

import json
from pathlib import Path
from typing import Any

import pytest

from gnnperf.api.predictor import default_checkpoint
from gnnperf.evaluation.trace_table import main, score_folder, step_table

SIZES = {"Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]}


def _events(k: int) -> list[dict[str, Any]]:
    def x(name: str, cat: str, ts: float, dur: float, **args: object) -> dict[str, Any]:
        where = {"pid": 0, "tid": 7} if cat == "kernel" else {"pid": 1, "tid": 1}
        return {
            "ph": "X",
            "name": name,
            "cat": cat,
            "ts": 1000.0 + 200.0 * k + ts,
            "dur": dur,
            "args": args,
            **where,
        }

    return [
        x(f"ProfilerStep#{k}", "user_annotation", 0, 199.0),
        x("aten::mm", "cpu_op", 10, 30, **SIZES),
        x("cudaLaunchKernel", "cuda_runtime", 20, 10, correlation=k + 1),
        x("sgemm", "kernel", 32, 40, device=0, stream=7, correlation=k + 1),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "sets" / "tiny"
    place.mkdir(parents=True)
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}
    events = [e for k in range(4) for e in _events(k)]
    trace = {"deviceProperties": [device], "traceEvents": events}
    (place / "trace.json").write_text(json.dumps(trace))
    (place.parent / "broken").mkdir()
    return place.parent


def test_a_step_and_its_kernels(folder: Path) -> None:
    (row,) = score_folder(folder, None, None)
    assert (row.name, row.hardware.name, row.seen) == ("tiny", "a100-sxm-80gb", True)
    assert row.measured_us == 200.0  # its own period
    assert row.kernel_us.tolist() == [40.0]
    assert row.known_share == 1.0
    predicted = row.kernels_us["formulas"][0]
    assert row.busy_error("formulas") == pytest.approx(100 * (predicted / 40.0 - 1))
    assert row.step_error("formulas") == pytest.approx(0.0, abs=1.0)  # host-bound


def test_the_network_alone_is_another_engine(folder: Path) -> None:
    (mixed,), (alone,) = (score_folder(folder, None, None, alone=a) for a in (False, True))
    network, formulas = alone.kernels_us["known"][0], mixed.kernels_us["formulas"][0]
    assert mixed.kernels_us["known"][0] == pytest.approx(network**0.35 * formulas**0.65)


def test_a_network_that_never_saw_a_trace_is_told_apart(folder: Path) -> None:
    shipped = default_checkpoint()
    (row,) = score_folder(folder, None, None, folds=[shipped])
    assert row.kernels_us["trace out"] == pytest.approx(row.kernels_us["known"])


def test_the_reference_of_iterations_csv_comes_first(folder: Path) -> None:
    (folder / "iterations.csv").write_text(
        "name,reference_iteration_ms\ntiny,0.25\ntiny,0.15\ntiny,\n"
    )
    (row,) = score_folder(folder, None, None)
    assert row.measured_us == pytest.approx(200.0)
    assert "| tiny | a100-sxm-80gb | 0.20 |" in step_table([row])[2]


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder)]) == 0
    out, err = capsys.readouterr()
    assert "| tiny | a100-sxm-80gb |" in out
    assert "left out broken" in err
    assert main([str(folder / "nowhere")]) == 2
