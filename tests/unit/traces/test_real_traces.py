"""The public traces against what was found in them by other means (traces.csv, iterations.csv)."""

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gnnperf.graph import EdgeKind, NodeKind
from gnnperf.traces import Report, read_job, steady_steps, validate


def rows_of(name: str, real: Callable[[str], Path]) -> list[dict[str, str]]:
    with Path(real(name)).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@cache
def report_of(path: Path) -> Report:
    return validate(path)


SETS = [
    "ao_b200_ep_moe_ref", "hta_alexnet", "hta_ddp_a100_ncclmeta", "hta_event_sync",
    "hta_mi250_toy", "hta_torchrec_a100", "hta_triton", "hta_v100_ns", "kineto_resnet50_old_list",
    "kineto_resnet50_w0", "param_dlrm8", "param_linear", "sidnb13_h100_tflayer",
    "torchrec_2rank_tiny", "tracelens_compile_triton", "tracelens_h100_falconsai",
    "tracelens_h100_qwen", "tracelens_mi210_gpu_only", "tracelens_mi300_qwen",
    "tracelens_mi300_resnet_ddp", "tracelens_norm_layers", "tracelens_sglang_decode",
    "tracelens_vllm_decode_full",
]  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_counts_and_links(name: str, real: Callable[[str], Path]) -> None:
    checked = 0
    for row in rows_of("traces.csv", real):
        if row["name"] != name or row["format"] != "kineto":
            continue
        report = report_of(real(row["local_file"]))
        (file,) = [f for f in report.files if f.file.endswith(row["member"])]
        links = file.links
        assert links.working == float(row["kernels"])
        assert links.copies == float(row["memcpy_memset"])
        ops = file.events.get("cpu_op", 0) + file.events.get("Operator", 0)
        assert ops == float(row["cpu_ops"])
        if row["comm_kernels"]:
            assert links.collectives == float(row["comm_kernels"])
        assert file.kernels_with_op_pct == pytest.approx(
            float(row["kernel_in_cpuop_by_nesting_pct"]), abs=0.06
        )
        assert file.device_with_launch_pct == pytest.approx(
            float(row["corr_in_runtime_pct"]), abs=0.11
        )
        checked += 1
    assert checked


PERIODS = sorted(
    {
        "hta_torchrec_a100", "tracelens_mi300_resnet_ddp", "torchrec_2rank_tiny",
        "hta_ddp_a100_ncclmeta", "kineto_resnet50_old_list", "kineto_resnet50_w0", "hta_v100_ns",
    }
)  # fmt: skip


@pytest.mark.parametrize("name", PERIODS)
def test_periods_of_the_device(name: str, real: Callable[[str], Path]) -> None:
    job = read_job(real(name))
    for row in rows_of("iterations.csv", real):
        if row["name"] != name:
            continue
        rank = int(float(row["rank"] or 0))
        graphs = [g for g in job.graphs if g.meta.rank == rank]
        assert len(graphs) == int(row["steps"])
        expected = [float(x) for x in row["gpu_first_kernel_period_ms"].split()]
        found = [g.meta.device_period_us / 1e3 for g in graphs]
        assert found[:-1] == pytest.approx(expected, abs=0.006)
        assert np.isnan(found[-1])
        kernels = [
            int(
                np.isin(g.nodes.kind, (NodeKind.KERNEL, NodeKind.COLLECTIVE))[
                    g.nodes.launch >= 0
                ].sum()
            )
            for g in graphs
        ]
        assert kernels == [int(x) for x in row["kernels_per_step"].split()]
        assert len(steady_steps(job)) == int(row["n_periods"])


OTHERS = [
    "astrasim_dlrm_et_plus", "astrasim_pb_allreduce4", "astrasim_pb_resnet_dp64",
    "chakra_pb_feeder", "hta_cpu_only_small", "hta_no_gpu", "hta_simple_add_pair",
    "nsys_converted_list", "param_et_1.0.3", "param_et_gpt2", "param_et_pt2",
    "pippy_autograd_bert", "tracelens_h100_gaunernst", "tracelens_mi300_falconsai",
    "tracelens_mi300_gaunernst",
]  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_read_whole(name: str, real: Callable[[str], Path]) -> None:
    job = read_job(real(name))
    for graph in job.graphs:
        graph.check()
        assert graph.num_nodes


def test_every_set_is_in_a_list(real: Callable[[str], Path]) -> None:
    folders = {p.name for p in real("traces.csv").parent.iterdir() if p.is_dir()}
    assert folders == set(SETS) | set(OTHERS)


def test_pairs_match_every_node_by_name(real: Callable[[str], Path]) -> None:
    job = read_job(real("param_linear"))
    (how,) = {dict(g.meta.notes)["execution_trace_link"] for g in job.graphs}
    assert how == "928 of 928 nodes by names"
    job = read_job(real("param_dlrm8"))
    assert job.ranks == list(range(8))
    for graph in job.graphs:
        assert dict(graph.meta.notes)["execution_trace_link"] == "1672 of 1672 nodes by names"
        assert (graph.edges.kind == EdgeKind.DATA).any()
    assert np.diff(job.rendezvous.ptr).tolist() == [8] * 8


def test_pair_with_valid_ids(real: Callable[[str], Path]) -> None:
    (graph,) = read_job(real("hta_simple_add_pair")).graphs
    assert dict(graph.meta.notes)["execution_trace_link"] == "36 of 36 nodes by external id"
