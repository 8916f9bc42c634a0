"""Which op stands for the work under it, against a plain walk up the tree."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.graph import ExecutionGraph
from gnnperf.graph.model import NONE
from gnnperf.ops.leaf import ancestors_with, leaf_ops, work_ops

Build = Callable[..., Any]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=40))
def test_ancestors_as_a_walk_finds_them(rows: list[tuple[int, bool]]) -> None:
    parent = np.array([p % i if i and p % 3 else NONE for i, (p, _) in enumerate(rows)], np.int32)
    wanted = np.array([w for _, w in rows])
    for outermost in (False, True):
        (found,) = ancestors_with(parent, (wanted, outermost))
        for node in range(len(rows)):
            at, seen = node, []
            while at != NONE:
                seen += [at] * bool(wanted[at])
                at = int(parent[at])
            expected = (seen[-1] if outermost else seen[0]) if seen else NONE
            assert found[node] == expected


def test_a_hundred_thousand_nested_ops() -> None:
    n = 100_000
    parent = np.arange(-1, n - 1, dtype=np.int32)
    wanted = np.zeros(n, np.bool_)
    wanted[[10, 50_000]] = True
    outer, inner = ancestors_with(parent, (wanted, True), (wanted, False))
    assert (outer[-1], inner[-1]) == (10, 50_000)


def names(graph: ExecutionGraph, nodes: np.ndarray) -> list[str]:
    return [graph.name_of(int(n)) for n in nodes]


def test_leaves_of_nested_ops(graph_of: Build, host: Build) -> None:
    shapes = [(4, 8), (8, 2)]
    graph = graph_of(
        [
            host("autograd::engine::evaluate_function: MmBackward0"),
            host("aten::linear", tensors=shapes),
            host("aten::t", parent=1, tensors=[(8, 2)]),
            host("aten::matmul", parent=1, tensors=shapes),
            host("aten::mm", parent=3, tensors=shapes),
            host("aten::convolution_backward", tensors=shapes),
            host("aten::fill_", parent=5, tensors=[(4,)]),
            host("aten::matmul", tensors=shapes),
            host("mylib::outer", tensors=shapes),
            host("mylib::inner", parent=8, tensors=shapes),
            host("mylib::wrapper", tensors=shapes),
            host("aten::add", parent=10, tensors=shapes),
            host("aten::view", tensors=[(4, 8)]),
            host("mylib::nothing"),
        ]
    )
    assert names(graph, leaf_ops(graph)) == [
        "aten::mm", "aten::convolution_backward", "aten::matmul", "mylib::inner", "aten::add",
    ]  # fmt: skip
    work = work_ops(graph)
    assert work[4] == 4
    assert work[6] == 5
    assert work[2] == 1
    assert work[9] == 9
    assert work[0] == NONE
