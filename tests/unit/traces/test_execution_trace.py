import json
from typing import Any

import numpy as np
import pytest

from gnnperf.errors import InputError
from gnnperf.graph import DTYPES, EdgeKind, Job, NodeKind, Phase
from gnnperf.traces import read_job, read_trace

Tiny = Any
"""The builder of `conftest.py`, which importlib mode does not let us import."""
Side = tuple[Any, Any, Any]

T1, T2, T3 = [11, 1, 0, 32, 4, "cuda:0"], [12, 2, 0, 8, 4, "cuda:0"], [13, 3, 0, 4, 4, "cuda:0"]


def flat(
    number: int,
    name: str,
    parent: int,
    inputs: Side = ((), (), ()),
    outputs: Side = ((), (), ()),
    **more: object,
) -> dict[str, Any]:
    return {
        "id": number, "name": name, "parent": parent, "rf_id": number, "tid": more.pop("tid", 1),
        "op_schema": more.pop("op_schema", ""), "fw_parent": 0, "seq_id": -1, "scope": 0,
        "inputs": list(inputs[0]), "input_shapes": list(inputs[1]), "input_types": list(inputs[2]),
        "outputs": list(outputs[0]), "output_shapes": list(outputs[1]),
        "output_types": list(outputs[2]), **more,
    }  # fmt: skip


def with_attrs(node: dict[str, Any]) -> dict[str, Any]:
    """The layout of the schemas from 1.0.2 on."""
    attributes = [
        {"name": name, "type": "", "value": node[name]} for name in ("rf_id", "tid", "op_schema")
    ]
    return {
        "id": node["id"], "name": node["name"], "ctrl_deps": node["parent"], "attrs": attributes,
        **{
            f"{side}s": {
                "values": node[f"{side}s"],
                "shapes": node[f"{side}_shapes"],
                "types": node[f"{side}_types"],
                "strides": [[2, 1]] * len(node[f"{side}s"]),
            }
            for side in ("input", "output")
        },
    }  # fmt: skip


def nodes() -> list[dict[str, Any]]:
    tensor = "Tensor(float)"
    return [
        flat(6, "aten::mm", 5, ([T1, T2], [[4, 8], [8, 1]], [tensor, tensor]),
             ([T3], [[4, 1]], [tensor])),
        flat(2, "[pytorch|profiler|execution_trace|thread]", 1),
        flat(5, "aten::linear", 2, ([T1, T2, "<None>"], [[4, 8], [8, 1], []],
                                    [tensor, tensor, "None"])),
        flat(7, "aten::_foreach_add_", 2,
             ([[T3, T2], 1], [[[4, 1], [8, 1]], []],
              ["GenericList[Tensor(float),Tensor(half)]", "Int"]),
             op_schema="aten::_foreach_add_.Scalar(Tensor(a!)[] self, Scalar scalar) -> ()"),
        flat(8, "MulBackward0", 2, ([T3, True, [1, 2]], [[4, 1], [], [[], []]],
                                    [tensor, "Bool", "GenericList[Int,Int]"]), tid=2),
        flat(1, "[pytorch|profiler|execution_trace|process]", 1),
    ]  # fmt: skip


def document(rows: list[dict[str, Any]], schema: str = "1.0.1") -> str:
    return json.dumps({"schema": schema, "pid": 3, "nodes": rows})


@pytest.mark.parametrize("schema", ["1.0.1", "1.1.1-chakra.0.0.4"])
def test_both_layouts(tiny: Tiny, schema: str) -> None:
    rows = nodes() if schema == "1.0.1" else [with_attrs(n) for n in nodes()]
    graph = read_trace(tiny.text(document(rows, schema), "anything.pt.trace.json"))
    graph.check()
    assert (graph.meta.format, graph.meta.schema) == ("pytorch-et", schema)
    assert graph.meta.device_type == "cuda"
    names = [graph.name_of(i) for i in range(graph.num_nodes)]
    assert names == ["aten::linear", "aten::mm", "aten::_foreach_add_", "MulBackward0"]
    assert graph.nodes.parent.tolist() == [-1, 0, -1, -1]
    assert np.isnan(graph.nodes.start_us).all()
    assert graph.nodes.phase[3] == Phase.BACKWARD
    data = graph.edges.kind == EdgeKind.DATA
    pairs = set(zip(graph.edges.src[data].tolist(), graph.edges.dst[data].tolist(), strict=True))
    assert pairs == {(1, 2), (2, 3)}, "mm writes, foreach changes in place, backward reads"
    assert [DTYPES[d] for d in graph.inputs.dtype[4:6]] == ["float32", "float16"]
    assert graph.inputs.tensor_id.tolist() == [11, 12, 11, 12, 13, 12, 13]
    last = slice(*graph.arguments.ptr[3:5])
    values = [graph.strings[v] if v >= 0 else None for v in graph.arguments.value[last]]
    assert values == [None, "True", "[1, 2]"]
    strides = graph.inputs.strides.tolist()
    assert strides[:2] == ([2, 1] if schema != "1.0.1" else [-1, -1])


def test_broken_and_empty(tiny: Tiny) -> None:
    with pytest.raises(InputError, match="broken execution trace"):
        read_job(tiny.text(document(nodes())[:-40]))
    with pytest.raises(InputError, match="no op"):
        read_job(tiny.text(document([])))


def test_device_nodes_and_times_of_et_plus(tiny: Tiny) -> None:
    rows = [dict(n, ts=1000 + n["id"], dur=1) for n in nodes()]
    device = {
        "id": 9, "name": "sgemm", "parent": 6, "cat": "kernel", "ph": "X", "pid": 0, "tid": 7,
        "ts": 1100, "dur": 5, "inputs": [], "input_shapes": [], "input_types": [],
        "outputs": [], "output_shapes": [], "output_types": [], "args": {"grid": [2, 2, 1]},
    }  # fmt: skip
    graph = read_trace(tiny.text(document([*rows, device])))
    (kernel,) = graph.device_nodes.tolist()
    assert graph.nodes.kind[kernel] == NodeKind.KERNEL
    assert graph.name_of(int(graph.nodes.op[kernel])) == "aten::mm"
    assert graph.nodes.grid_blocks[kernel] == 4
    assert graph.nodes.duration_us[kernel] == 5


def pair(tiny: Tiny, repeats: int, *, kineto_ids: bool) -> Job:
    rows = nodes()
    tiny.text(document(rows), "et.json")
    events = []
    for i in range(repeats):
        base = 1000 * i
        events += [
            tiny.op("aten::noise", base, 5),
            tiny.op("aten::linear", base + 10, 20, External_id=5 if kineto_ids else 100 + 9 * i),
            tiny.op("aten::mm", base + 12, 9, External_id=6 if kineto_ids else 101 + 9 * i),
            tiny.op(
                "aten::_foreach_add_", base + 40, 5, External_id=7 if kineto_ids else 102 + 9 * i
            ),
            tiny.op(
                "MulBackward0", base + 50, 5, tid=2, External_id=8 if kineto_ids else 103 + 9 * i
            ),
            tiny.call("cudaLaunchKernel", base + 14, 2, i + 1),
            tiny.kernel("sgemm", base + 60, 2, i + 1),
        ]
        if repeats > 1:
            events.append(tiny.step(i, base, 900))
    tiny.write(events, "kineto.json")
    return read_job(tiny.folder)


@pytest.mark.parametrize("ids", [True, False])
def test_pair_gives_shapes_to_every_step(tiny: Tiny, ids: bool) -> None:
    job = pair(tiny, 1 if ids else 3, kineto_ids=ids)
    assert len(job.graphs) == (1 if ids else 3)
    for graph in job.graphs:
        graph.check()
        assert graph.meta.format == "et+kineto"
        (kernel,) = graph.device_nodes.tolist()
        mm = int(graph.nodes.op[kernel])
        rows = slice(*graph.arguments.tensor_ptr[graph.arguments.ptr[mm : mm + 2]])
        assert graph.inputs.tensor_id[rows].tolist() == [11, 12]
        assert (graph.edges.kind == EdgeKind.DATA).sum() == 2
    how = dict(job.graphs[0].meta.notes)["execution_trace_link"]
    assert how == f"4 of 4 nodes by {'external id' if ids else 'names'}"


def test_pair_that_does_not_match_is_told(tiny: Tiny) -> None:
    tiny.text(document(nodes()), "et.json")
    tiny.write(tiny.one_op()[1:], "kineto.json")
    (graph,) = read_job(tiny.folder).graphs
    assert graph.meta.format == "kineto"
    assert any("no op of" in w for w in graph.meta.warnings)


def test_views_depend_through_their_storage(tiny: Tiny) -> None:
    view = [99, 3, 0, 4, 4, "cuda:0"]
    tensor = "Tensor(float)"
    rows = [
        flat(2, "aten::mm", 1, outputs=([T3], [[4, 1]], [tensor])),
        flat(3, "aten::sum", 1, inputs=([view], [[4]], [tensor])),
    ]
    graph = read_trace(tiny.text(document(rows)))
    data = graph.edges.kind == EdgeKind.DATA
    assert (graph.edges.src[data].tolist(), graph.edges.dst[data].tolist()) == ([0], [1])
