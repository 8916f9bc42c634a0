"""`gnnperf evaluate` on small folders of every layout, by the analytic engine."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnperf.cli.main import main
from gnnperf.data.tables import family_dims, make_table, save_table

KERNEL = {
    *("device", "family", "dtype", "source", "n", "mape", "median_ape", "bias", "coverage"),
    *("analytic_mape", "analytic_median_ape", "mlp_mape", "mlp_median_ape"),
}
STEP = {"id", "device", "measured_us", "predicted_us", "low_us", "high_us", "ape", "analytic_us"}


def evaluated(tmp_path: Path, *paths: Path, more: tuple[str, ...] = ()) -> dict[str, Any]:
    out = tmp_path / "out.json"
    arguments = ["evaluate", *map(str, paths), "--engine", "analytic", *more, "--json", str(out)]
    assert main(arguments) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    assert all(found["kernels"][i].keys() >= KERNEL for i in range(len(found["kernels"])))
    assert all(found["iterations"][i].keys() >= STEP for i in range(len(found["iterations"])))
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["evaluate", *map(str, arguments)]) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    return said


def neusight(tmp_path: Path) -> Path:
    base = tmp_path / "neusight" / "scripts" / "asplos"
    graph = base / "results/opgraph/tiny-inf-512-8.csv"
    for folder in ("data/dataset/test", "label/Tesla_T4", "label/NVIDIA_X9", "results/opgraph"):
        (base / folder).mkdir(parents=True)
    (base / "data/dataset/test/linear.csv").write_text(
        "OPName,Latency,Device,B,M,N,K\n"
        "linear,9,Tesla T4,1,4096,1024,1024\nlinear,0.01,Tesla T4,1,4,4,4\n"
        "linear,9,NVIDIA X9,1,4096,1024,1024\n"
    )
    graph.write_text(
        "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape\n"
        'x,misc,[],[],[],set(),,[],"(8, 512, 1024)"\n'
        "bert_layer_0_fc,Linear,\"[['Linear', (4096, 1024, 1024)]]\",[],[],{'x'},,"
        '"[(8, 512, 1024)]","(8, 512, 1024)"\n'
        "softmax,VECsoftmax,\"[['VECsoftmax', (4096, 1024)]]\",[],[],{'bert_layer_0_fc'},,"
        '"[(8, 512, 1024)]","(8, 512, 1024)"\n'
    )
    times = {"num_layer": 4, "e2e_latency": 20.0, "fw_latency": 20.0, "bwall_latency": 0}
    for device in ("Tesla_T4", "NVIDIA_X9"):
        (base / f"label/{device}/tiny-inf-512-8.json").write_text(json.dumps(times))
    (base / "label/Tesla_T4/tiny-inf-512-8.csv").write_text(
        "Name,fw_latency,bw_latency,acc_latency\nbert_layer_0_fc,4,0,0\nsoftmax,0.3,0,0\n"
    )
    return tmp_path / "neusight"


def test_neusight_folder(tmp_path: Path) -> None:
    found = evaluated(tmp_path, neusight(tmp_path))
    entries = {(k["device"], k["family"], k["source"]): k for k in found["kernels"]}
    assert set(entries) == {
        ("t4", "linear", "kernel table"),
        ("t4", "linear", "model op"),
        ("t4", "softmax", "model op"),
    }
    (step,) = found["iterations"]
    assert (step["id"], step["device"]) == ("Tesla_T4/tiny-inf-512-8", "t4")
    assert step["measured_us"] == 20_000
    assert step["low_us"] < step["predicted_us"] < step["high_us"]
    summary = found["summary"]
    assert summary["unknown_devices"] == {"NVIDIA X9": 1}
    assert summary["unscored_iterations"] == {"device NVIDIA_X9 is not in the catalogue": 1}
    assert sum(summary["left_out"].values()) == 1  # shorter than 50 us with its launch


def test_the_layer_counts_as_often_as_the_model_repeats_it(tmp_path: Path) -> None:
    folder = neusight(tmp_path)
    once = evaluated(tmp_path, folder)["iterations"][0]["predicted_us"]
    label = folder / "scripts/asplos/label/Tesla_T4/tiny-inf-512-8.json"
    label.write_text(label.read_text().replace('"num_layer": 4', '"num_layer": 8'))
    again = evaluated(tmp_path, folder)["iterations"][0]["predicted_us"]
    assert again == pytest.approx(2 * once)


def test_published_predictions_stand_beside_ours(tmp_path: Path) -> None:
    folder = neusight(tmp_path)
    summary = folder / "scripts/asplos/summary/summary.csv"
    summary.parent.mkdir()
    values = {
        "device": "Tesla_T4",
        "model_name": "tiny",
        "mode": "inf",
        "seqlen": 512,
        "batch": 8,
        "option": "",
        "neusight_all_e2e_latency": 25.0,
        "roofline_all_e2e_latency": 10.0,
        "habitat_all_e2e_latency": "",
        "micro_all_e2e_latency": "",
        "label_Linear_e2e_latency": 16.0,
        "neusight_Linear_e2e_latency": 12.0,
        "label_BMM_e2e_latency": 0.0,
    }
    with summary.open("w", newline="") as file:
        rows = csv.DictWriter(file, values)
        rows.writeheader()
        rows.writerow(values)
    found = evaluated(tmp_path, folder)
    peers = found["summary"]["iterations"]["neusight"]["peers"]
    # 20 ms were measured
    assert {name: p["mape"] for name, p in peers.items()} == {"neusight": 25, "roofline": 50}
    assert found["iterations"][0]["peers_us"] == {"neusight": 25_000, "roofline": 10_000}
    sums = found["summary"]["class_sums"]
    assert set(sums) == {"linear"}
    assert sums["linear"]["peers"]["neusight"]["mape"] == 25


def kernels(path: Path, device: str = "h100-sxm") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = make_table(
        np.array([100.0, 200]),
        family_dims("gemm", 2, batch=1, m=4096, n=4096, k=np.array([1024, 2048])),
        peers={},
        device=device,
        raw_device=device,
        family="gemm",
        label="gemm",
        dtype="bfloat16",
        source="own",
        launch_included=False,
        row=np.arange(2),
        origin="kernel table",
    )
    return save_table(table, path)


def test_own_table_tidy_table_and_a_folder_of_both(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    kernels(folder / "own.parquet")
    tidy = {
        "gpu": ["rtx_pro_6000_server", "h200_sxm"],
        "framework": ["vllm"] * 2,
        "version": ["1"] * 2,
        "family": ["gemm"] * 2,
        "dtype": ["fp8", "bfloat16"],
        "kernel_source": ["x"] * 2,
        "latency_us": [50.0, 60.0],
        "m": [512] * 2,
        "n": [4096] * 2,
        "k": [4096] * 2,
    }
    pq.write_table(pa.table(tidy), folder / "kernels.parquet")
    found = evaluated(tmp_path, folder)
    seen = {(k["device"], k["dtype"], k["family"], k["n"]) for k in found["kernels"]}
    assert ("h100-sxm", "bfloat16", "gemm", 2) in seen
    assert ("h200-sxm", "bfloat16", "gemm", 1) in seen
    assert len(seen) == 3
    only = evaluated(tmp_path, folder, more=("--leave-out", "h200-sxm"))  # with its group
    assert {k["device"] for k in only["kernels"]} == {"h100-sxm", "h200-sxm"}
    assert only["summary"]["leave_out"] == "hopper"
    with (folder / "kernels.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(tidy)
        rows.writerows(zip(*tidy.values(), strict=True))
    assert len(evaluated(tmp_path, folder / "kernels.csv")["kernels"]) == 2


def test_aiconfigurator_public_layout_with_its_collectives(tmp_path: Path) -> None:
    data = tmp_path / "repository/systems/data/h200_sxm"
    common = {"framework": ["SGLang"], "version": ["1"], "kernel_source": ["x"]}
    gemm = {**common, "gemm_dtype": ["bfloat16"], "m": [512], "n": [4096], "k": [4096]}
    nccl = {**common, "op_name": ["all_reduce"], "nccl_dtype": ["half"], "num_gpus": [8]}
    for folder, columns in (
        ("gemm/sglang/1/gemm_perf", {**gemm, "latency": [0.05]}),
        ("comm/nccl/2/nccl_perf", {**nccl, "message_size": [1 << 20], "latency": [0.03]}),
    ):
        (data / folder).parent.mkdir(parents=True)
        pq.write_table(pa.table(columns), data / f"{folder}.parquet")
    found = evaluated(tmp_path, tmp_path / "repository")
    families = {k["family"]: k for k in found["kernels"]}
    assert set(families) == {"gemm", "collective"}
    assert families["gemm"]["device"] == families["collective"]["device"] == "h200-sxm"
    assert found["iterations"][0]["measured_us"] == 30


def test_sweeps_of_collectives_compressed_or_not(tmp_path: Path) -> None:
    text = "gpu,n_gpus,collective,bytes,time_us,dtype\nH100,8,all_reduce,1048576,30,half\n"
    text += "X9,8,all_reduce,1048576,30,half\n"
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "c.csv").write_text(text)
    one, two = (evaluated(tmp_path, tmp_path / n) for n in ("c.csv", "c.csv.gz"))
    assert [k["mape"] for k in one["kernels"]] == [k["mape"] for k in two["kernels"]]
    assert one["summary"]["unknown_devices"] == {"X9": 1}


def test_training_plans(tmp_path: Path) -> None:
    path = tmp_path / "train_iter.csv"
    path.write_text(
        "row_id,gpu,model,n_gpus,tp,dp,pp,global_batch,micro_batch,seq,hidden,heads,layers,"
        "precision,iteration_ms,iteration_ms_how\n"
        "a1,A100-SXM4-80GB,GPT,8,8,1,1,8,1,2048,4096,32,32,fp16,900,measured\n"
        "a2,A100-SXM4-80GB,GPT,8,8,1,1,8,1,2048,4096,32,32,fp16,900,derived = x\n"
    )
    found = evaluated(tmp_path, path)
    assert [s["id"] for s in found["iterations"]] == ["a1"]
    assert sum(found["summary"]["unscored_iterations"].values()) == 1


def test_what_is_not_recognized_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junk = tmp_path / "junk.json"
    junk.write_bytes(b"\x00\x01junk")
    assert "recognizes" in refused(capsys, junk)
    assert "no such file" in refused(capsys, tmp_path / "none")
    assert "recognizes" in refused(capsys, tmp_path)
    path = kernels(tmp_path / "k.parquet")
    assert "known: " in refused(capsys, path, "--engine", "analytic", "--leave-out", "x9")
    assert "--limit" in refused(capsys, path, "--engine", "analytic", "--limit", "0")


def test_a_changed_column_of_a_recognized_folder_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = neusight(tmp_path)
    table = folder / "scripts/asplos/data/dataset/test/linear.csv"
    table.write_text(table.read_text().replace("Latency", "Time"))
    assert "linear.csv: Latency: no such column" in refused(capsys, folder, "--engine", "analytic")


def test_people_get_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluated(tmp_path, neusight(tmp_path), kernels(tmp_path / "k.parquet"))
    said = capsys.readouterr().out
    for word in ("t4", "model op", "h100-sxm", "Tesla_T4/tiny-inf-512-8", "NVIDIA X9 (1)"):
        assert word in said


def test_traces_without_a_reference_or_a_file_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "iterations.csv").write_text(
        "name,reference_iteration_ms\nnothing,\nabsent,12.5\nbroken,3\n"
    )
    (folder / "broken").mkdir()
    (folder / "broken" / "t.json").write_text("{}")
    found = evaluated(tmp_path, folder)
    assert not found["iterations"]
    counted = found["summary"]["unscored_iterations"]
    assert counted["no reference time in iterations.csv"] == 1
    assert counted["no trace beside iterations.csv"] == 1
    assert sum(counted.values()) == 3  # and what the reader says of the broken one


def test_a_group_that_the_data_lacks_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = kernels(tmp_path / "own.parquet")
    said = refused(capsys, table, "--engine", "analytic", "--leave-out", "t4")
    assert "holds no row of 't4'" in said
