import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.graph import ExecutionGraph, NodeKind, dtype_bytes, dtype_index
from gnnperf.ops import describe
from gnnperf.ops.describe import read_call
from gnnperf.ops.listed import ASSUMED, with_types
from gnnperf.traces import read_job

SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[3].parent / "shared"))
QWEN = SHARED / "data" / "traces" / "tracelens_mi300_qwen"
HALF, FLOAT = dtype_index("bfloat16"), dtype_index("float32")

GraphOf = Callable[..., ExecutionGraph]
Host = Callable[..., Any]


@pytest.fixture
def graph(graph_of: GraphOf, host: Host) -> ExecutionGraph:
    """Two products of 8 x 8 in bfloat16, one in float32, and a list of unknown types."""
    products = [host("aten::mm", tensors=[(8, 8), (8, 8)], dtype=d) for d in (HALF, HALF, FLOAT)]
    listed = host("aten::cat", tensors=[[(8, 8), (3, 3)], [()]], dtype=0)
    return graph_of([*products, listed])


def test_a_listed_tensor_has_the_type_of_most_tensors_of_its_shape(graph: ExecutionGraph) -> None:
    found, rows = with_types(graph)
    assert found.inputs.dtype[rows].tolist() == [HALF]
    assert found.inputs.dtype[-3:].tolist() == [HALF, 0, 0]  # 3 x 3 and the scalar stay unknown
    assert graph.inputs.dtype[-3:].tolist() == [0, 0, 0]
    assert describe(graph).assumed[ASSUMED] == 1


def test_known_types_are_left_alone(graph_of: GraphOf, host: Host) -> None:
    graph = graph_of([host("aten::mm", tensors=[(8, 8), (8, 8)], dtype=FLOAT)])
    found, rows = with_types(graph)
    assert found is graph
    assert not len(rows)
    assert ASSUMED not in describe(graph).assumed


@pytest.mark.skipif(not QWEN.is_dir(), reason="no shared traces beside the repository")
def test_types_of_lists_are_those_that_the_kernels_name() -> None:
    graph, rows = with_types(read_job([QWEN]).graphs[0])
    assert len(rows) > 50
    seen = 0
    for node in np.flatnonzero(graph.nodes.kind == NodeKind.KERNEL).tolist():
        size = re.search(r"CatArrayBatchedCopy<[^,]*OpaqueType<(\d+)u>", graph.name_of(node))
        if size is None or graph.nodes.op[node] < 0:
            continue
        types = {t.dtype for t in read_call(graph, int(graph.nodes.op[node])).args[0]} - {0}
        if types:
            seen += 1
            assert {dtype_bytes(t) for t in types} == {float(size[1])}
    assert seen >= 48
