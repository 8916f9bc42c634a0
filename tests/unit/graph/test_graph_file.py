import json
import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from gnnperf.errors import InputError
from gnnperf.graph import ExecutionGraph, Job, load_job, save_job
from gnnperf.graph.model import tables_equal
from gnnperf.traces import read_job

SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[4] / "shared"))
TRACES = SHARED / "data" / "traces"

TINY = {
    "traceEvents": [
        {
            "ph": "X", "cat": "cpu_op", "name": f"aten::op{i}", "pid": 1, "tid": 1,
            "ts": 100 * i, "dur": 50, "args": {"Input Dims": [[i, 4]], "Input type": ["float"]},
        }
        for i in range(5)
    ]
}  # fmt: skip


def assert_equal(one: Job, other: Job) -> None:
    assert len(one.graphs) == len(other.graphs)
    assert one.folded_ranks == other.folded_ranks
    assert tables_equal(one.rendezvous, other.rendezvous)
    for left, right in zip(one.graphs, other.graphs, strict=True):
        for column in fields(ExecutionGraph):
            a, b = getattr(left, column.name), getattr(right, column.name)
            if column.name == "meta":
                assert repr(a) == repr(b)
            elif column.name == "strings":
                assert a == b
            elif column.name == "output_ptr":
                assert np.array_equal(a, b)
            else:
                assert tables_equal(a, b), column.name


def test_round_trip_of_a_tiny_job(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(TINY))
    job = read_job(trace)
    assert_equal(job, load_job(save_job(job, tmp_path / "job.npz")))


@pytest.mark.parametrize("name", ["param_linear", "torchrec_2rank_tiny", "tracelens_h100_qwen"])
def test_round_trip_of_real_jobs(name: str, tmp_path: Path) -> None:
    folder = TRACES / name
    if not folder.exists():
        pytest.skip(f"no real trace at {folder} (set GNNPERF_SHARED)")
    job = read_job(folder)
    path = save_job(job, tmp_path / "job.npz")
    assert_equal(job, load_job(path))
    assert read_job(path).steps == job.steps
    packed = sum(p.stat().st_size for p in folder.iterdir() if p.suffix != ".csv")
    assert path.stat().st_size < 2 * packed


def test_strings_are_written_once(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(TINY))
    (graph,) = read_job(trace).graphs
    path = save_job(Job((graph,) * 50), tmp_path / "job.npz")
    with np.load(path) as arrays:
        text = arrays["header"].tobytes().decode()
    assert text.count("aten::op3") == 1


def test_damaged_and_newer_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.npz"
    path.write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(InputError, match="not a gnnperf graph file"):
        load_job(path)
    header = json.dumps({"gnnperf_graph": 99}).encode()
    with path.open("wb") as file:
        np.savez_compressed(file, header=np.frombuffer(header, np.uint8))
    with pytest.raises(InputError, match="newer"):
        load_job(path)
