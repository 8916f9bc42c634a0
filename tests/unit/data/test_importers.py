"""Importers on hand-made folders in each layout, and on the public files where they are given."""

import os
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnperf.data.importers import IMPORTERS, ImportReport
from gnnperf.data.tables import KernelTable
from gnnperf.errors import InputError
from gnnperf.graph import dtype_index
from gnnperf.ops import batch_cost

ROOT = Path(__file__).parents[3]
SHARED = Path(os.environ.get("GNNPERF_SHARED", ROOT.parent / "shared")) / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the public data are not here")


def read(name: str, path: Path) -> tuple[KernelTable, ImportReport]:
    report = ImportReport(name)
    return KernelTable.join(list(IMPORTERS[name](path, report))), report


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


HEAD = "OPName,Latency,Device,Torch Version"


@pytest.fixture
def neusight(tmp_path: Path) -> Path:
    data = tmp_path / "scripts" / "asplos" / "data"
    write(
        data / "dataset/test/linear.csv",
        f"{HEAD},Kernels,B,M,N,K",
        "linear,2.5,NVIDIA L4,p2.1.0,;a,1,100,300,200",
        "linear,,NVIDIA L4,p2.1.0,;a,1,100,300,200",
        "linear,oops,NVIDIA L4,p2.1.0,;a,1,100,300,200",
        "linear,0.5,NVIDIA X9,p2.1.0,;a,1,8,16,32",
    )
    write(data / "dataset/test/bmm.csv", f"{HEAD},B,M,N,K", "bmm,1.5,Tesla T4,p2.1.0,4,64,16,32")
    write(
        data / "dataset_amd/train/collect/add/p2.4.1/AMD Instinct MI100.csv",
        "OPName,Latency,Device,B,H",
        "add,0.1,AMD Instinct MI100,10,20",
    )
    write(
        data / "dataset_amd/train/vec.csv",
        "OPName,Latency,Device,B,H",
        "add,0.1,AMD Instinct MI100,10,20",
        "addu,0.2,AMD Instinct MI100,10,20",
        "warp,0.2,AMD Instinct MI100,10,20",
    )
    write(data / "device_configs/NVIDIA_L4.json", "{}")
    return tmp_path


def test_neusight_reduces_over_n_and_counts_in_milliseconds(neusight: Path) -> None:
    table, report = read("neusight", neusight)
    assert len(table) == report.rows == 5
    linear = table.take(table.label.mask("linear"))
    assert linear.duration_us.tolist() == [2500, 500]
    # x (1, M, N) times a weight [K, N]: 2 M N K floating point operations
    assert batch_cost(linear.batch()).flops[0] == 2 * 100 * 300 * 200
    assert linear.device[0] == "l4"
    assert linear.device[1] == linear.raw_device[1] == "NVIDIA X9"
    assert linear.framework_version[0] == "2.1.0"
    assert linear.launch_included.all()
    assert (linear.file[1], linear.row[1]) == ("data/dataset/test/linear.csv", 3)
    bmm = table.take(table.label.mask("bmm"))
    assert batch_cost(bmm.batch()).flops[0] == 2 * 4 * 64 * 16 * 32
    assert batch_cost(bmm.batch()).bytes_written[0] == 4 * 4 * 64 * 32


def test_neusight_counts_bad_rows_and_names_them(neusight: Path) -> None:
    table, report = read("neusight", neusight)
    faults = {reason: (f.count, f.first) for reason, f in report.faults.items()}
    assert faults["a size or the latency is missing or not positive"] == (
        2,
        "data/dataset/test/linear.csv:1",
    )
    assert faults["op 'warp' is not known"][0] == 1
    assert faults["the row stands in an earlier file too"] == (
        1,
        "data/dataset_amd/train/vec.csv:0",
    )
    add = table.take(table.label.mask("elementwise"))
    assert batch_cost(add.batch()).bytes_read.tolist() == [2 * 4 * 200, 4 * 200]
    assert add.framework_version[0] == "2.4.1"
    assert "NVIDIA X9" in " ".join(report.notes)


def test_a_changed_column_or_a_missing_folder_is_one_clear_line(neusight: Path) -> None:
    file = neusight / "scripts/asplos/data/dataset/test/bmm.csv"
    write(file, f"{HEAD},B,M,Inner,K", "bmm,1.5,Tesla T4,p2.1.0,4,64,16,32")
    with pytest.raises(InputError, match=r"bmm\.csv: N: no such column"):
        read("neusight", neusight)
    write(file, "OPName,Time,Device,B,M,N,K", "bmm,1.5,Tesla T4,4,64,16,32")
    with pytest.raises(InputError, match=r"bmm\.csv: Latency: no such column"):
        read("neusight", neusight)
    with pytest.raises(InputError, match="no data/dataset"):
        read("neusight", neusight / "scripts/asplos/data/device_configs")


def aic_rows() -> dict[str, list[object]]:
    return {
        "gpu": ["h100_sxm", "h100_sxm", "new_gpu", "l40s"],
        "framework": ["sglang"] * 4,
        "version": ["1"] * 4,
        "family": ["gemm", "attn_generation", "gemm", "moe"],
        "dtype": ["fp8_block", "bfloat16", "bfloat16", "bfloat16"],
        "kernel_source": ["a", "b", "c", "moe_nongated"],
        "latency_us": [10.0, 20.0, -1.0, 40.0],
        "split": ["dev_train"] * 4,
        "batch": [None, 4, None, None],
        "seq": [None, 1, None, None],
        "step": [None, 127, None, None],
        "q_heads": [None, 8, None, None],
        "kv_heads": [None, 2, None, None],
        "head_dim": [None, 64, None, None],
        "m": [16, None, 16, 32],
        "n": [64, None, 64, None],
        "k": [128, None, 128, None],
        "hidden": [None, None, None, 256],
        "inter": [None, None, None, 512],
        "topk": [None, None, None, 2],
        "experts": [None, None, None, 8],
        "moe_tp": [None, None, None, 1],
        "moe_ep": [None, None, None, 1],
        "distribution": [None, None, None, "power_law_1.2"],
    }


def test_aiconfigurator_tidy_table(tmp_path: Path) -> None:
    path = tmp_path / "kernels.parquet"
    pq.write_table(pa.table(aic_rows()), path)
    table, report = read("aiconfigurator", path)
    assert report.rows == len(table) == 3
    fault = report.faults["a size or the latency is missing or not positive"]
    assert (fault.count, fault.first) == (1, "kernels.parquet:2")
    by_family = {table.family[i]: table.take(np.array([i])) for i in range(3)}
    gemm, attention, moe = (by_family[n] for n in ("gemm", "attention", "moe"))
    assert (gemm.label[0], gemm.dtype[0], gemm.device[0]) == ("gemm", "fp8_block", "h100-sxm")
    assert gemm.batch().dtype[0] == dtype_index("float8")
    assert not gemm.launch_included.any()
    # one query against 128 keys of 64 numbers, q k and p v, for 4 x 8 heads
    assert batch_cost(attention.batch()).flops[0] == 4 * 8 * 128 * 2 * 2 * 64
    # not gated: one product up, one down, for 32 x 2 (token, expert) pairs
    assert batch_cost(moe.batch()).flops[0] == 2 * 64 * 256 * 512 * 2
    assert moe.split_group[0] == "moe hidden=256 inter=512 experts=8 top_k=2"


def test_aiconfigurator_delta_nets_that_convolve_their_keys_alone(tmp_path: Path) -> None:
    rows = {
        "gpu": ["h100_sxm"] * 3,
        "framework": ["vllm", "trtllm", "sglang"],
        "version": ["0.24.0", "1.3.0rc20", "0.5.10"],
        "family": ["gdn"] * 3,
        "dtype": ["bfloat16"] * 3,
        "kernel_source": ["causal_conv1d_fn"] * 3,
        "latency_us": [10.0] * 3,
        "split": ["dev_train"] * 3,
        "batch": [2] * 3,
        "seq": [64] * 3,
        "q_heads": [16] * 3,
        "kv_heads": [32] * 3,
        "head_dim": [128] * 3,
    }
    empty = {n: [None] * 3 for n in aic_rows() if n not in rows}
    path = tmp_path / "kernels.parquet"
    pq.write_table(pa.table(rows | empty), path)
    table, _ = read("aiconfigurator", path)
    channels = {table.framework[i]: table.dims[i, 1] for i in range(3)}
    assert channels == {"vllm": (2 * 16 + 32) * 128, "trtllm": 16 * 128, "sglang": 16 * 128}


def test_aiconfigurator_tidy_table_without_a_column(tmp_path: Path) -> None:
    path = tmp_path / "kernels.parquet"
    pq.write_table(pa.table(aic_rows()).drop_columns(["latency_us"]), path)
    with pytest.raises(InputError, match="latency_us: no such column"):
        read("aiconfigurator", path)


def test_aiconfigurator_public_layout_is_in_milliseconds(tmp_path: Path) -> None:
    folder = tmp_path / "systems/data/h200_sxm/gemm/sglang/0.5"
    folder.mkdir(parents=True)
    columns = {
        "framework": ["SGLang"] * 2,
        "version": ["0.5"] * 2,
        "kernel_source": ["x"] * 2,
        "gemm_dtype": ["bfloat16", "int4_wo"],
        "m": [4, 4],
        "n": [8, 8],
        "k": [16, 16],
        "latency": [0.25, 0.5],
    }
    pq.write_table(pa.table(columns), folder / "gemm_perf.parquet")
    pq.write_table(pa.table(columns), folder / "strange_perf.parquet")
    table, report = read("aiconfigurator", tmp_path)
    assert table.duration_us.tolist() == [250]
    assert (table.device[0], table.framework[0]) == ("h200-sxm", "sglang")
    assert report.faults["gemm of type int4_wo is not modelled"].count == 1
    assert "strange_perf" in report.notes[0]
    with pytest.raises(InputError, match="no \\*_perf"):
        read("aiconfigurator", folder.parent.parent / "none")


def test_pipeweave_keeps_the_peer_beside_the_row(tmp_path: Path) -> None:
    columns = {
        "gpu": ["H20", "A40"],
        "family": ["gemm", "moe"],
        "kernel": ["fp8", "triton"],
        "dtype": ["fp8", "bf16"],
        "m": [4, 8],
        "n": [8, None],
        "k": [16, None],
        "latency_us": [3.0, 5.0],
        "experts": [None, 8],
        "topk": [None, 2],
        "hidden": [None, 32],
        "inter": [None, 16],
        "pred_pipeweave_us": [2.5, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "kernels.parquet")
    table, _ = read("pipeweave", tmp_path)
    assert table.peers["pipeweave"][0] == 2.5
    assert np.isnan(table.peers["pipeweave"][1])
    # the first grouped product makes gate and up: n = 2 x 16, from 32
    assert batch_cost(table.batch()).flops.tolist() == [2 * 4 * 8 * 16, 2 * 8 * 2 * 32 * 32]


@needs_shared
def test_every_public_neusight_row_is_read(tmp_path: Path) -> None:
    with tarfile.open(SHARED / "neusight.tar.gz") as tar:
        members = [m for m in tar if "/data/dataset/test/" in m.name]
        tar.extractall(tmp_path, members, filter="data")
    table, report = read("neusight", tmp_path / "neusight")
    assert not report.faults
    bmm = table.take(table.label.mask("bmm") & table.device.mask("l4"))
    assert len(bmm) == 2092
    peak = batch_cost(bmm.batch()).flops / bmm.duration_us / 1e6
    assert 1 < peak.max() < 31.3  # TFLOP/s, below the data sheet's fp32 peak of the L4


@needs_shared
def test_public_pipeweave_table() -> None:
    table, report = read("pipeweave", SHARED / "pipeweave")
    assert len(table) == 53166
    assert not report.faults
    error = np.abs(table.peers["pipeweave"] / table.duration_us - 1)
    assert float(np.nanmedian(error)) < 0.05  # the peer predicts these rows: units agree
