"""Rows of whole graphs: hand-made ones, and real traces where they are at hand."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.graph import Collectives, ExecutionGraph, NodeKind
from gnnperf.graph.model import NONE
from gnnperf.ops import batch_cost, describe, dim_index, family_names
from gnnperf.ops.describe import read_call
from gnnperf.ops.embedding import SPARSE
from gnnperf.ops.signature import call_signatures, fold, mix
from gnnperf.traces import read_job

Build = Callable[..., Any]
SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[4] / "shared"))
TRACES = SHARED / "data" / "traces"


def families(graph: ExecutionGraph) -> list[str]:
    return [family_names()[f] for f in describe(graph).batch.family]


def layer(host: Build, kernel: Build, width: int, at: int) -> list[Any]:
    """linear > addmm > one kernel, then relu > one kernel."""
    return [
        host("aten::linear", tensors=[(4, 8), (width, 8), (width,)]),
        host("aten::addmm", parent=at, tensors=[(width,), (4, 8), (8, width)]),
        kernel("ampere_sgemm_32x32", at + 1),
        host("aten::relu", tensors=[(4, width)]),
        host("aten::clamp_min", parent=at + 3, tensors=[(4, width), None]),
        kernel("void at::native::vectorized_elementwise_kernel<4>", at + 4),
    ]


def test_rows_follow_the_nodes(graph_of: Build, host: Build, kernel: Build) -> None:
    specs = [*layer(host, kernel, 16, 0), *layer(host, kernel, 32, 6), *layer(host, kernel, 16, 12)]
    graph = graph_of(specs)
    found = describe(graph)
    assert found.node.tolist() == [2, 5, 8, 11, 14, 17]
    assert found.row[found.node].tolist() == list(range(6))
    assert (found.row[[0, 1, 3]] == NONE).all()
    n = found.batch.dims[:, dim_index("gemm", "n")]
    assert n[[0, 2, 4]].tolist() == [16, 32, 16]
    assert batch_cost(found.batch).flops[0] == 2 * 4 * 8 * 16
    assert found.op[0] == 1
    assert not found.unknown


def test_unknown_ops_are_counted_by_name(graph_of: Build, host: Build, kernel: Build) -> None:
    graph = graph_of(
        [
            host("aten::mm", tensors=[None, None]),
            kernel("gemm_a", 0),
            host("mylib::fancy", tensors=[(10,)]),
            kernel("fancy_kernel", 2),
            kernel("fancy_kernel", 2),
            kernel("lonely", NONE),
        ]
    )
    found = describe(graph)
    assert found.unknown == {"aten::mm": 1, "mylib::fancy": 2, "lonely": 1}
    assert not found.batch.known.any()


def test_assumptions_are_counted_per_call(graph_of: Build, host: Build, kernel: Build) -> None:
    specs = []
    for i in range(3):
        specs += [host("aten::sum", tensors=[(4, 8)]), kernel("reduce_kernel", 2 * i)]
    graph = graph_of(specs)
    assert describe(graph).assumed == {}
    specs = []
    for i in range(3):
        specs += [host("aten::sum", tensors=[(4, 8), None]), kernel("reduce_kernel", 2 * i)]
    assert describe(graph_of(specs)).assumed == {"reduction over everything": 3}


def test_values_make_calls_differ(graph_of: Build, host: Build, kernel: Build) -> None:
    specs = []
    for i, dim in enumerate(("[0]", "[1]", "[0]")):
        op = host("aten::sum", tensors=[(4, 8), None], values=[None, dim])
        specs += [op, kernel("reduce_kernel", 2 * i)]
    found = describe(graph_of(specs))
    assert found.batch.dims[:, dim_index("reduce", "out_numel")].tolist() == [8, 4, 8]


def test_copies_and_collectives(graph_of: Build, host: Build, kernel: Build) -> None:
    specs = [host("c10d::allreduce_", tensors=[(1000,)]), kernel("ncclDevKernel_AllReduce", 0),
             kernel("ncclDevKernel_Generic", NONE), kernel("Memcpy HtoD (Pinned -> Device)", NONE,
                                                           bytes=64)]  # fmt: skip
    specs[1].kind = specs[2].kind = NodeKind.COLLECTIVE
    specs[3].kind = NodeKind.COPY
    graph = graph_of([*specs, host("all_gather"), host("x")])
    at = graph.strings.index("all_gather")
    facts = Collectives(
        np.array([2], np.int32), np.array([at], np.int32), np.array([NONE], np.int32),
        np.array([NONE], np.int64), np.array([100], np.int64), np.array([800], np.int64),
        np.array([8], np.int32), np.zeros(2, np.int64), np.zeros(0, np.int32),
    )  # fmt: skip
    object.__setattr__(graph, "collectives", facts)
    found = describe(graph)
    assert families(graph) == ["collective", "collective", "copy"]
    assert found.batch.dims[0, :4].tolist() == [0, 4000, 4000, 0]
    assert found.batch.dims[1, :4].tolist() == [1, 100, 800, 8]
    assert found.batch.dims[2, :3].tolist() == [64, 1, 1]


def test_a_cpu_graph_is_described_by_its_leaf_ops(graph_of: Build, host: Build) -> None:
    graph = graph_of(
        [
            host("aten::linear", tensors=[(4, 8), (2, 8)]),
            host("aten::addmm", parent=0, tensors=[(2,), (4, 8), (8, 2)]),
            host("aten::relu", tensors=[(4, 2)]),
        ],
        device_type="cpu",
    )
    found = describe(graph)
    assert found.node.tolist() == [1, 2]
    assert families(graph) == ["gemm", "elementwise"]


def test_an_empty_graph(graph_of: Build) -> None:
    assert len(describe(graph_of([])).batch) == 0


def test_signatures_depend_on_order_and_extent() -> None:
    ptr = np.array([0, 2, 4, 5, 5, 7])
    values = mix(np.array([1, 2, 2, 1, 1, 1, 2]))
    found = fold(ptr, values)
    assert found[0] == found[4]
    assert len({int(f) for f in found[:4]}) == 4


def test_calls_round_trip_through_the_graph(graph_of: Build, host: Build) -> None:
    graph = graph_of(
        [
            host("aten::cat", tensors=[[(2, 3), (4, 3)], None], values=[None, "0"]),
            host("aten::cat", tensors=[[(2, 3), (4, 3)], None], values=[None, "1"]),
            host("aten::cat", tensors=[[(2, 3)], (4, 3)], values=[None, "0"]),
        ]
    )
    call = read_call(graph, 0)
    assert [t.shape for t in call.args[0]] == [(2, 3), (4, 3)]
    assert call.value(1) == 0
    assert len(set(call_signatures(graph).tolist())) == 3


def read(name: str) -> ExecutionGraph:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"needs the public traces at {TRACES}")
    from gnnperf.traces import read_job

    graphs = read_job(path).graphs
    return max(graphs, key=lambda g: len(g.device_nodes) + 1e-9 * g.num_nodes)


@pytest.mark.parametrize(
    "name",
    [
        "tracelens_h100_falconsai",
        "tracelens_h100_gaunernst",
        "tracelens_mi300_gaunernst",
        "tracelens_norm_layers",
        "kineto_resnet50_w0",
    ],
)
def test_traces_with_shapes_are_known_completely(name: str) -> None:
    graph = read(name)
    found = describe(graph)
    assert found.node.tolist() == graph.device_nodes.tolist()
    assert found.unknown == {}
    cost = batch_cost(found.batch)
    assert np.isfinite(cost.flops).all()
    assert ((cost.bytes_read + cost.bytes_written) > 0).all()


def test_resnet50_has_its_published_flops() -> None:
    """4.09 G multiply-adds per image (torchvision), three times: forward and two gradients.

    Strides are not recorded there; they come out of the sizes of the gradients.
    """
    found = describe(read("kineto_resnet50_w0"))
    names = np.array(family_names())[found.batch.family]
    flops = batch_cost(found.batch).flops[np.isin(names, ("conv", "gemm"))].sum()
    batch = found.batch.dims[names == "conv", 0].max()
    assert flops / batch == pytest.approx(3 * 2 * 4.09e9, rel=0.01)


def test_gpt2_large_has_the_flops_of_its_parameters() -> None:
    """6 per parameter and token (Kaplan et al.) plus attention; one sequence of 512 tokens."""
    found = describe(read("param_et_gpt2"))
    parameters = 36 * 12 * 1280**2 + 50257 * 1280
    attention = 36 * 12 * 512**2 * 1280
    assert batch_cost(found.batch).flops.sum() == pytest.approx(
        6 * parameters * 512 + attention, rel=0.02
    )


@pytest.mark.parametrize(
    "name",
    [
        "hta_mi250_toy",
        "hta_simple_add_pair",
        "hta_triton",
        "nsys_converted_list",
        "sidnb13_h100_tflayer",
        "torchrec_2rank_tiny",
        "tracelens_compile_triton",
        "tracelens_mi210_gpu_only",
        "tracelens_vllm_decode_full",
    ],
)
def test_every_kind_of_trace_is_described(name: str) -> None:
    graph = read(name)
    found = describe(graph)
    assert found.node.tolist() == graph.device_nodes.tolist()
    assert sum(found.unknown.values()) == (~found.batch.known).sum()
    assert np.isfinite(found.batch.dims).all()


def test_own_cpu_recordings_are_known_completely() -> None:
    recordings = Path(__file__).parents[3] / "datasets" / "cpu-recordings"
    folders = sorted(p for p in recordings.glob("*") if p.is_dir())[:3]
    if not folders:
        pytest.skip(f"no recordings at {recordings}")
    from gnnperf.traces import read_job

    for folder in folders:
        graph = read_job(folder).graphs[0]
        found = describe(graph)
        assert found.unknown == {}
        covered = graph.nodes.duration_us[found.node].sum()
        assert covered > 0.6 * graph.meta.host_step_us


def test_a_sparse_gradient_is_added_to_its_rows_alone() -> None:
    folder = Path(__file__).parents[3] / "datasets" / "cpu-recordings" / "dlrm-small"
    graph = read_job(folder / "kineto.json.gz").graphs[1]
    found = describe(graph)
    names = np.array([graph.name_of(int(n)) for n in found.node])
    family = np.array(family_names())[found.batch.family]
    # 8 tables of 10,000 x 16, a batch of 128 with one lookup each (recording/workloads.py)
    added = found.batch.dims[(names == "aten::add_") & (family == "gather")]
    assert len(added) == 8
    assert (added[:, dim_index("gather", "index_numel")] == 128).all()
    assert (added[:, dim_index("gather", "out_numel")] == 128 * 16).all()
    gradient = found.batch.dims[names == "aten::_embedding_bag_backward"]
    assert (gradient[:, dim_index("embedding", "direction")] == SPARSE).all()
    # the other sums keep all their elements
    rest = found.batch.dims[(names == "aten::add_") & (family == "elementwise")]
    assert len(rest) > 0
    assert rest[:, 0].max() < 10_000 * 16
