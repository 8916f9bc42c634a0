from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

from gnnperf.errors import InputError
from gnnperf.graph import EdgeKind, NodeKind
from gnnperf.traces import read_job, read_trace
from gnnperf.traces.chakra import messages

Tiny = Any
"""The builder of `conftest.py`, which importlib mode does not let us import."""
Columns = Any


def delimited(*parts: Message) -> bytes:
    out = b""
    for part in parts:
        raw = part.SerializeToString()
        size = len(raw)
        while size > 127:
            out += bytes([size & 127 | 128])
            size >>= 7
        out += bytes([size]) + raw
    return out


def node(number: int, name: str, kind: int, **columns: Columns) -> Message:
    attributes = columns.pop("attr", {})
    made = messages()["Node"](id=number, name=name, type=kind, **columns)
    for key, (field, value) in attributes.items():
        made.attr.add(name=key, **{field: value})
    return made


def trace() -> tuple[Message, ...]:
    return (
        messages()["GlobalMetadata"](version="0.0.4"),
        node(0, "layer forward", 4, duration_micros=300),
        node(1, "reduce", 7, data_deps=[0], attr={
            "comm_type": ("int64_val", 0), "comm_size": ("int64_val", 4096),
        }),
        node(2, "send", 5, data_deps=[0, 1], ctrl_deps=[0], attr={"comm_size": ("int64_val", 8)}),
        node(3, "aten::mm", 4, attr={"is_cpu_op": ("bool_val", True), "tid": ("int64_val", 1)},
             inputs=messages()["IOInfo"](
                 values="[[4, 5, 0, 64, 4, 'cuda:0']]",
                 shapes="[[8, 8]]",
                 types="['Tensor(float)']",
             )),
        node(4, "gemm", 4, ctrl_deps=[3], duration_micros=7,
             attr={"is_cpu_op": ("bool_val", False), "stream": ("int64_val", 7)}),
    )  # fmt: skip


def test_nodes_dependencies_and_collectives(tiny: Tiny) -> None:
    graph = read_trace(tiny.text(delimited(*trace()), "job.3.et"))
    graph.check()
    assert (graph.meta.format, graph.meta.schema) == ("chakra", "0.0.4")
    by_name = {graph.name_of(i): i for i in range(graph.num_nodes)}
    kind = {name: NodeKind(int(graph.nodes.kind[i])) for name, i in by_name.items()}
    assert kind == {
        "layer forward": NodeKind.KERNEL,
        "reduce": NodeKind.COLLECTIVE,
        "send": NodeKind.COLLECTIVE,
        "aten::mm": NodeKind.HOST_OP,
        "gemm": NodeKind.KERNEL,
    }
    table = graph.collectives
    assert [graph.strings[k] for k in table.kind] == ["all_reduce", "send_recv"]
    assert table.input_bytes.tolist() == [4096, 8]
    assert graph.nodes.duration_us[by_name["layer forward"]] == 300
    # Communication that the file gives no time has not been timed: it is no free work.
    assert np.isnan(graph.nodes.duration_us[[by_name["reduce"], by_name["send"]]]).all()
    assert np.isnan(graph.nodes.start_us).all()
    edges = {
        (graph.name_of(s), graph.name_of(d), EdgeKind(k))
        for s, d, k in zip(
            graph.edges.src.tolist(), graph.edges.dst.tolist(), graph.edges.kind.tolist(),
            strict=True,
        )
    }  # fmt: skip
    assert edges == {
        ("layer forward", "reduce", EdgeKind.DATA),
        ("layer forward", "send", EdgeKind.DATA),
        ("reduce", "send", EdgeKind.DATA),
        ("layer forward", "send", EdgeKind.PROGRAM),
        ("aten::mm", "gemm", EdgeKind.PROGRAM),
    }
    assert graph.nodes.op[by_name["gemm"]] == by_name["aten::mm"]
    assert graph.inputs.dims.tolist() == [8, 8]


def test_old_dump_without_metadata(tiny: Tiny) -> None:
    graph = read_trace(tiny.text(delimited(*trace()[1:]), "old.et"))
    assert graph.num_nodes == 5


def test_ranks_come_from_the_names(tiny: Tiny) -> None:
    for rank in range(3):
        tiny.text(delimited(*trace()), f"job.{rank}.et")
    job = read_job(tiny.folder)
    assert job.ranks == [0, 1, 2]
    assert np.diff(job.rendezvous.ptr).tolist() == [3, 3]


def test_cut_file_is_refused(tiny: Tiny) -> None:
    data = delimited(*trace())
    with pytest.raises(InputError, match="truncated or damaged Chakra trace after 4 nodes"):
        read_job(tiny.text(data[:-3], "cut.et"))
