"""Steps without device work, turned into what a GPU would run."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gnnperf.graph import EdgeKind, ExecutionGraph, NodeKind, Phase
from gnnperf.ops import FAMILIES, describe, family_names, lower
from gnnperf.ops.lower import TO_HOST_NAME

Build = Callable[..., Any]


@pytest.fixture
def step(graph_of: Build, host: Build) -> ExecutionGraph:
    return graph_of(
        [
            host("aten::linear", tensors=[(4, 8), (2, 8)]),
            host("aten::addmm", parent=0, tensors=[(2,), (4, 8), (8, 2)]),
            host("c10d::allreduce_", tensors=[(100,)]),
            host("aten::mul", tensors=[(4, 2), (4, 2)], columns={"phase": Phase.BACKWARD}),
            host("aten::item", tensors=[()]),
            host("aten::_local_scalar_dense", parent=4, tensors=[()]),
            host("aten::add_", tensors=[(8, 2), (8, 2)], columns={"phase": Phase.OPTIMIZER}),
            host("aten::view", tensors=[(8, 2)]),
        ],
        device_type="cpu",
        world_size=2,
    )


def edges(graph: ExecutionGraph, kind: EdgeKind) -> set[tuple[str, str]]:
    rows = np.flatnonzero(graph.edges.kind == kind)
    name = graph.name_of
    return {(name(int(graph.edges.src[r])), name(int(graph.edges.dst[r]))) for r in rows}


def test_every_leaf_op_gets_one_device_node(step: ExecutionGraph) -> None:
    lowered = lower(step)
    lowered.check()
    nodes = lowered.device_nodes
    assert [lowered.name_of(int(n)) for n in nodes] == [
        "aten::addmm", "c10d::allreduce_", "aten::mul", TO_HOST_NAME, "aten::add_",
    ]  # fmt: skip
    kinds = [NodeKind.KERNEL, NodeKind.COLLECTIVE, NodeKind.KERNEL, NodeKind.COPY, NodeKind.KERNEL]
    assert lowered.nodes.kind[nodes].tolist() == kinds
    assert lowered.nodes.op[nodes].tolist() == [1, 2, 3, 5, 6]
    assert np.isnan(lowered.nodes.duration_us[nodes]).all()
    assert lowered.meta.device_type == "cuda"
    assert dict(lowered.meta.notes)["lowered"]
    assert step.num_nodes == 8


def test_edges_of_the_lowered_step(step: ExecutionGraph) -> None:
    lowered = lower(step)
    assert edges(lowered, EdgeKind.HOST_SYNC) == {(TO_HOST_NAME, "aten::_local_scalar_dense")}
    assert ("aten::addmm", "aten::addmm") in edges(lowered, EdgeKind.LAUNCH)
    assert edges(lowered, EdgeKind.EVENT_WAIT) == {
        ("aten::addmm", "c10d::allreduce_"),
        ("c10d::allreduce_", "aten::add_"),
    }
    streams = lowered.nodes.lane[lowered.device_nodes]
    assert len(set(streams.tolist())) == 2


def test_the_lowered_step_is_described_like_a_traced_one(step: ExecutionGraph) -> None:
    lowered = lower(step)
    found = describe(lowered)
    assert [family_names()[f] for f in found.batch.family] == [
        "gemm", "collective", "elementwise", "copy", "elementwise",
    ]  # fmt: skip
    assert found.batch.known.all()
    assert found.batch.dims[1, :4].tolist() == [0, 400, 400, 2]


def test_device_work_is_left_alone(graph_of: Build, host: Build, kernel: Build) -> None:
    graph = graph_of([host("aten::mm", tensors=[(2, 2), (2, 2)]), kernel("gemm", 0)])
    assert lower(graph) is graph
    empty = graph_of([])
    assert lower(empty) is empty


def test_an_unknown_world_is_not_a_world_of_one(graph_of: Build, host: Build) -> None:
    alone = graph_of([host("c10d::allreduce_", tensors=[(100,)])], device_type="cpu", world_size=1)
    graph = lower(alone)
    assert graph.collectives.group_size.tolist() == [-1]
    work = describe(graph).batch
    size = FAMILIES["collective"].dims.index("group_size")
    assert work.dims[:, size].tolist() == [0.0]  # a whole node, by docs/collectives.md
