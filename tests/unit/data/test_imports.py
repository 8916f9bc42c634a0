"""`gnnperf dataset import` from start to end."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnperf.cli.main import main
from gnnperf.data.model_graphs import load_graphs
from gnnperf.data.tables import load_table


def neusight(root: Path, header: str = "OPName,Latency,Device,B,H") -> Path:
    base = root / "public" / "scripts" / "asplos"
    for folder in ("data/dataset/test", "label/NVIDIA_L4", "results/opgraph"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    (base / "data/dataset/test/softmax.csv").write_text(
        f"{header}\nsoftmax,0.5,NVIDIA L4,64,128\nsoftmax,,NVIDIA L4,64,128\n"
    )
    times = {"num_layer": 1, "e2e_latency": 1.0, "fw_latency": 1.0, "bwall_latency": 0}
    (base / "label/NVIDIA_L4/tiny-inf-4-2.json").write_text(json.dumps(times))
    (base / "results/opgraph/tiny-inf-4-2.csv").write_text(
        "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape\n"
        "softmax,VECsoftmax,\"[['VECsoftmax', (64, 128)]]\",[],[],set(),,"
        '"[(64, 128)]","(64, 128)"\n'
    )
    return root / "public"


def test_neusight_becomes_a_table_and_graphs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, report = tmp_path / "out", tmp_path / "report.json"
    arguments = ["dataset", "import", "neusight", str(neusight(tmp_path)), "--out", str(out)]
    assert main([*arguments, "--json", str(report)]) == 0
    assert load_table(out / "neusight.parquet").duration_us.tolist() == [500]
    (graph,) = load_graphs(out / "neusight-models.npz")
    assert graph.names == ("softmax",)
    said = capsys.readouterr().out
    assert "left out 1 rows" in said
    assert "softmax.csv:1" in said
    table, models = json.loads(report.read_text())["reports"]
    assert table["read"] == 1
    assert [v["count"] for v in table["left_out"].values()] == [1]
    assert models["read"] == 1


def test_a_failed_import_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    folder = neusight(tmp_path, "OPName,Latency,Device,B,Width")
    assert main(["dataset", "import", "neusight", str(folder), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    assert "H: no such column" in said
    assert not [p for p in out.iterdir() if p.suffix in (".parquet", ".partial")]


def test_tidy_tables_and_absent_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {
        "gpu": ["H20"],
        "family": ["gemm"],
        "kernel": ["fp8"],
        "dtype": ["fp8"],
        "m": [4],
        "n": [8],
        "k": [16],
        "latency_us": [3.0],
        "pred_pipeweave_us": [2.0],
    }
    pq.write_table(pa.table(columns), tmp_path / "kernels.parquet")
    out = str(tmp_path / "out")
    assert main(["dataset", "import", "pipeweave", str(tmp_path), "--out", out]) == 0
    table = load_table(tmp_path / "out/pipeweave.parquet")
    assert table.peers["pipeweave"].tolist() == [2]
    capsys.readouterr()
    assert main(["dataset", "import", "pipeweave", str(tmp_path / "none"), "--out", out]) == 2
    assert "no such file" in capsys.readouterr().err
