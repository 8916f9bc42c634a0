"""Tables from traces: hand-made sets of two ranks, and the public ones."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.cli.main import main
from gnnperf.data.from_traces import merged, table_of, table_of_sets, trace_sets
from gnnperf.data.samples import samples_of
from gnnperf.data.splits import trace_groups
from gnnperf.data.tables import load_table
from gnnperf.ops import describe
from gnnperf.traces import read_job

SIZES = {"Input Dims": [[512, 256], [256, 128]], "Input type": ["float", "float"]}


def _step(k: int, us: float) -> list[dict[str, Any]]:
    def x(name: str, cat: str, ts: float, dur: float, **args: object) -> dict[str, Any]:
        on_device = cat in ("kernel", "gpu_memcpy")
        where = {"pid": 0, "tid": 7} if on_device else {"pid": 1, "tid": 1}
        at = 1000.0 + 400.0 * k + ts
        return {"ph": "X", "name": name, "cat": cat, "ts": at, "dur": dur, "args": args, **where}

    def run(number: int, ts: float, dur: float, name: str, cat: str, **args: object) -> list[Any]:
        call = x("cudaLaunchKernel", "cuda_runtime", ts, 2, correlation=10 * k + number)
        given = {"device": 0, "stream": 7, "correlation": 10 * k + number, **args}
        return [call, x(name, cat, ts + 5, dur, **given)]

    return [
        x(f"ProfilerStep#{k}", "user_annotation", 0, 399.0),
        x("aten::mm", "cpu_op", 10, 30, **SIZES),
        *run(1, 20, us, "sgemm", "kernel"),
        x("aten::never_heard_of", "cpu_op", 100, 20),
        *run(2, 110, 5.0, "strange", "kernel"),
        *run(3, 200, 30.0, "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", bytes=100_000),
        *run(4, 300, 50.0, "ncclKernel_AllReduce_RING", "kernel"),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One set of three steps on an A100, one whose device is named by nothing, one broken."""
    for name, devices in (("known", [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]), ("unnamed", [])):
        place = tmp_path / "sets" / name
        place.mkdir(parents=True)
        events = [e for k, us in enumerate((90.0, 40.0, 44.0)) for e in _step(k, us)]
        trace = {"deviceProperties": devices, "traceEvents": events}
        (place / "trace.json").write_text(json.dumps(trace))
    (tmp_path / "sets" / "broken").mkdir()
    return tmp_path / "sets"


def test_rows_of_equal_ops_are_their_median(folder: Path) -> None:
    found = table_of_sets(trace_sets([folder]))
    table = found.built.table
    assert found.rows == {"known": 2}
    assert set(found.left_out) == {"unnamed", "broken"}
    product = table.take(table.family.mask("gemm"))
    assert product.dims[0, :4].tolist() == [1, 512, 128, 256]
    assert product.duration_us.tolist() == [44.0]  # of 90, 40 and 44
    assert not product.launch_included[0]
    assert (product.source[0], product.model[0], product.split_group[0]) == (
        "trace", "known", "known"
    )  # fmt: skip
    assert product.device[0] == "a100-sxm-80gb"


def test_what_is_left_out_is_counted(folder: Path) -> None:
    built = table_of(read_job([folder / "known"]))
    assert built.unknown == {"aten::never_heard_of": 3}
    assert built.collectives == 3
    assert len(built.table) == 6


def test_the_description_is_that_of_a_prediction(folder: Path) -> None:
    job = read_job([folder / "known"])
    table = table_of(job).table
    graph = job.graphs[0]
    described = describe(graph)
    rows = described.row[table.row[table.file.codes == 0][:2]]
    assert np.array_equal(described.batch.dims[rows], table.dims[:2])


def test_samples_leave_out_links_and_know_their_trace(folder: Path) -> None:
    table = table_of_sets(trace_sets([folder])).built.table
    assert trace_groups(table).names == ("trace-known",)
    samples = samples_of(table)
    assert len(samples) == 1  # the copy from the host is a link's time
    assert samples.of_groups(["trace-known"]).tolist() == [0]
    assert samples.of_groups(["trace-known"], inside=False).tolist() == []
    assert samples.of_groups(["a100"]).tolist() == [0]
    assert samples.rows.in_model.tolist() == [1.0]


def test_merged_is_the_mean_unless_said_otherwise(folder: Path) -> None:
    table = table_of(read_job([folder / "known"])).table
    rows = merged(table)
    assert rows.duration_us[rows.family.mask("gemm")] == pytest.approx(58.0)


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "traces.parquet"
    assert main(["dataset", "build", str(folder), "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "left out unnamed: names no device" in text
    assert "3 of unknown size or family" in text
    assert "3 collectives" in text
    assert len(load_table(out)) == 2
    assert main(["dataset", "build", str(folder / "none"), "--out", str(out)]) == 2


def _public() -> Path:
    shared = os.environ.get("GNNPERF_SHARED") or Path(__file__).parents[4] / "shared"
    place = Path(shared) / "data" / "traces" / "tracelens_norm_layers"
    if not place.exists():
        pytest.skip("the public traces are not beside the repository")
    return place


def test_a_public_trace() -> None:
    table = table_of_sets(trace_sets([_public()])).built.table
    assert table.device.present() == ["mi300x"]
    assert table.family.mask("norm").sum() > 20
    assert (table.duration_us < 300).all()
