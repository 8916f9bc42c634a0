"""Timed ops become rows of a kernel table whose dimensions are those of the calls."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function

from gnnperf.cli.main import main
from gnnperf.data.tables import load_table
from gnnperf.data.timed_ops import Origin, table_of_ops
from gnnperf.ops import dim_index
from gnnperf.recording.manifest import read_manifest, verify

AT = Origin("cpu", "a CPU", 1, "2", "ops.parquet")


def test_dimensions_of_known_calls(tmp_path: Path) -> None:
    a, b, bias = torch.randn(6, 10), torch.randn(12, 10), torch.randn(12)
    x = torch.randn(3, 5)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        with record_function("case_0"):
            F.linear(a, b, bias)
        torch.exp(x)  # between the cases: no row
        with record_function("case_1"):
            torch.exp(torch.tanh(x))  # two ops: no row
        with record_function("case_2"):
            torch.softmax(x, -1)
        with record_function("case_3"):
            torch.cat([x, x])
    trace = tmp_path / "ops.json"
    profiler.export_chrome_trace(str(trace))
    times = [7.0, 8.0, 9.0, 5.0]
    table, left_out = table_of_ops(trace, "case_", ["linear", "two", "soft", "cat"], times, AT)
    assert left_out == 1
    assert table.duration_us.tolist() == [7.0, 9.0, 5.0]
    assert [table.family[i] for i in range(3)] == ["gemm", "softmax", "gather"]
    assert [table.label[i] for i in range(3)] == ["linear", "soft", "cat"]
    gemm = {name: table.dims[0, dim_index("gemm", name)] for name in ("batch", "m", "n", "k")}
    assert gemm == {"batch": 1, "m": 6, "n": 12, "k": 10}
    assert table.dims[1, :2].tolist() == [3, 5]
    assert table.dtype[2] == "float32"
    assert table.device[0] == "cpu"
    assert table.launch_included.all()


def test_the_suite_of_single_ops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["dataset", "record", "--suite", "ops", "--quick", "--out", str(tmp_path)]
    assert main([*command, "--device", "cpu"]) == 0
    assert "left out" in capsys.readouterr().out
    table = load_table(tmp_path / "ops-cpu-1t.parquet")
    (entry,) = read_manifest(tmp_path).tables
    assert (entry.rows, entry.threads) == (len(table), 1)
    assert verify(tmp_path) == []
    assert entry.left_out == 0
    families = set(table.family.present())
    wanted = {"gemm", "conv", "attention", "norm", "softmax", "reduce", "elementwise", "pool"}
    assert wanted | {"embedding", "gather", "copy", "optimizer", "sort"} <= families
    assert table.batch().known.all()
    assert np.isfinite(table.duration_us).all()
    assert (table.duration_us > 0.1).all()
