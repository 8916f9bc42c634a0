"""Labelled models: op graphs joined with their times, the repeated layer, forward and backward."""

import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from gnnperf.data.importers import ImportReport
from gnnperf.data.importers.neusight_models import read_models, read_plans
from gnnperf.data.model_graphs import (
    ModelGraph,
    Pass,
    Span,
    load_graphs,
    piece_edges,
    save_graphs,
    unrolled,
)
from gnnperf.errors import InputError
from gnnperf.ops import batch_cost

ROOT = Path(__file__).parents[3]
SHARED = Path(os.environ.get("GNNPERF_SHARED", ROOT.parent / "shared")) / "data"
HEAD = "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape"
TRAIN = [
    'input_ids,misc,[],[],[],set(),,[],"(2, 4)"',
    "wte,EMBEDDING,\"[['MEM', ((2, 4), (2, 4, 8))]]\",[],\"[['VECadd', [1, 80]]]\",{'input_ids'},,"
    '"[(2, 4)]","(2, 4, 8)"',
    "model_h_0_ln,VECln,\"[['VECln', (8, 8)]]\",[],\"[['VECadd', [1, 8]]]\",{'wte'},,"
    '"[(2, 4, 8)]","(2, 4, 8)"',
    'size,misc,[],[],[],{\'model_h_0_ln\'},,"[(2, 4, 8)]","(1,)"',
    'view,misc,[],[],[],"{\'model_h_0_ln\', \'size\'}",,"[(2, 4, 8), (1,)]","(8, 8)"',
    "model_h_0_fc,Linear,\"[['Linear', (8, 8, 8)]]\",[],\"[['VECadd', [1, 64]]]\",{'view'},,"
    '"[(8, 8)]","(2, 4, 8)"',
    "add,VECadd,\"[['VECadd', (8, 8)]]\",[],[],\"{'model_h_0_fc', 'wte'}\",,"
    '"[(2, 4, 8), (2, 4, 8)]","(2, 4, 8)"',
    'lm_head,Linear,"[[\'Linear\', (8, 8, 10)]]",[],[],{\'add\'},,"[(2, 4, 8)]","(2, 4, 10)"',
    'output,output,[],[],[],{\'lm_head\'},,"[(2, 4, 10)]","(2, 4, 10)"',
]


def folder(root: Path, graph: list[str], name: str = "tiny-train-4-2") -> Path:
    base = root / "scripts" / "asplos"
    for sub in ("label/NVIDIA_L4", "results/opgraph", "summary", "data/DLmodel_configs"):
        (base / sub).mkdir(parents=True, exist_ok=True)
    times = {"num_layer": 3, "e2e_latency": 5.0, "fw_latency": 2.0, "bwall_latency": 3.0}
    (base / "label/NVIDIA_L4" / f"{name}.json").write_text(json.dumps(times))
    (base / "label/NVIDIA_L4" / f"{name}.csv").write_text(
        "Name,fw_latency,bw_latency,acc_latency\n"
        "model_h_0_fc,0.1,0.2,0.3\nmodel_h_0_ln,0.01,0,0\nlm_head,1,2,0\nview,9,9,9\n"
    )
    (base / "results/opgraph" / f"{name}.csv").write_text("\n".join([HEAD, *graph]) + "\n")
    (base / "data/DLmodel_configs/tiny.json").write_text('{"vocab_size": 10}')
    return base


def only(path: Path) -> ModelGraph:
    return next(read_models(path, ImportReport("neusight")))


def node(graph: ModelGraph, name: str, kind: Pass) -> int:
    return next(i for i in range(len(graph)) if graph.names[i] == name and graph.kind[i] == kind)


def test_nodes_have_the_measured_time_of_their_pass(tmp_path: Path) -> None:
    graph = only(folder(tmp_path, TRAIN))
    assert (graph.meta.device, graph.meta.step_us, graph.meta.layers) == ("l4", 5000, 3)
    for kind, us in ((Pass.FORWARD, 100), (Pass.BACKWARD, 200), (Pass.ACCUMULATION, 300)):
        assert graph.duration_us[node(graph, "model_h_0_fc", kind)] == pytest.approx(us)
    assert np.isnan(graph.duration_us[node(graph, "model_h_0_ln", Pass.BACKWARD)])
    assert "view" not in graph.names  # no device work
    assert graph.labels[node(graph, "model_h_0_fc", Pass.FORWARD)] == "linear"
    # three layers of 0.11 ms and the head, forward
    forward = graph.step_sum(np.nan_to_num(graph.duration_us), Pass.FORWARD)
    assert forward == pytest.approx(3 * 110 + 1000)


def test_backward_of_a_linear_layer_is_two_products_and_a_sum(tmp_path: Path) -> None:
    graph = only(folder(tmp_path, TRAIN))
    flops = graph.sum_by_node(batch_cost(graph.batch).flops)
    fc = node(graph, "model_h_0_fc", Pass.FORWARD)
    assert flops[fc] == 2 * 8 * 8 * 8
    assert flops[node(graph, "model_h_0_fc", Pass.BACKWARD)] == pytest.approx(2 * flops[fc] + 64)
    # the residual is read by the norm and by the addition of each layer: one sum of gradients
    assert [n for n in graph.names if n.endswith("/sum of gradients")] == [
        "add/sum of gradients",
        "wte/sum of gradients",
    ]


def edges(graph: ModelGraph) -> set[tuple[str, str, int, int, int]]:
    names, kind = graph.names, graph.kind
    return {
        (names[a], names[b], int(kind[a]), int(kind[b]), int(s))
        for a, b, s in zip(graph.src, graph.dst, graph.span, strict=True)
    }


def test_edges_follow_the_tensors_through_views_and_into_the_next_layer(tmp_path: Path) -> None:
    found = edges(only(folder(tmp_path, TRAIN)))
    fw, bw = Pass.FORWARD, Pass.BACKWARD
    assert ("model_h_0_ln", "model_h_0_fc", fw, fw, Span.SAME) in found
    assert ("wte", "model_h_0_ln", fw, fw, Span.FIRST) in found
    assert ("add", "model_h_0_ln", fw, fw, Span.NEXT) in found
    assert ("add", "lm_head", fw, fw, Span.LAST) in found
    assert ("lm_head", "add/sum of gradients", bw, bw, Span.LAST) in found
    assert ("model_h_0_ln", "add/sum of gradients", bw, bw, Span.PREVIOUS) in found
    assert ("model_h_0_fc", "model_h_0_ln", bw, bw, Span.SAME) in found
    assert ("add/sum of gradients", "model_h_0_fc", bw, bw, Span.SAME) in found
    assert ("model_h_0_fc", "model_h_0_fc", fw, bw, Span.SAME) in found
    assert ("model_h_0_fc", "model_h_0_fc", bw, Pass.ACCUMULATION, Span.SAME) in found


def test_the_unrolled_step_has_every_layer_in_a_row(tmp_path: Path) -> None:
    graph = only(folder(tmp_path, TRAIN))
    template, src, dst = unrolled(graph)
    assert len(template) == graph.repeat.sum()
    copy = np.concatenate([np.arange(r) for r in graph.repeat])
    adds, norm = (node(graph, n, Pass.FORWARD) for n in ("add", "model_h_0_ln"))
    chain = [
        (int(copy[a]), int(copy[b]))
        for a, b in zip(src, dst, strict=True)
        if template[a] == adds and template[b] == norm
    ]
    assert sorted(chain) == [(0, 1), (1, 2)]
    total = node(graph, "add/sum of gradients", Pass.BACKWARD)
    back = node(graph, "model_h_0_ln", Pass.BACKWARD)
    returns = [
        (int(copy[a]), int(copy[b]))
        for a, b in zip(src, dst, strict=True)
        if template[a] == back and template[b] == total
    ]
    assert sorted(returns) == [(1, 0), (2, 1)]
    order = np.argsort(np.concatenate([src, dst]))  # no cycle: levels can be found
    assert len(order) == 2 * len(src)
    level = np.zeros(len(template), int)
    for _ in range(len(template)):
        level[dst] = np.maximum(level[dst], level[src] + 1)
    assert level.max() < len(template)


def test_pieces_are_joined_by_tensors_and_by_order(tmp_path: Path) -> None:
    graph = only(folder(tmp_path, TRAIN))
    joined = piece_edges([graph, graph])
    pieces = len(graph.batch)
    assert joined.data.sum() == 2 * len(graph.src)
    assert (~joined.data).sum() == 2 * (pieces - 1)
    first = joined.source < pieces
    assert (first == (joined.destination < pieces)).all()  # none from model to model
    assert np.array_equal(joined.source[first] + pieces, joined.source[~first])
    owners = graph.owner[joined.destination[first & joined.data]]
    assert sorted(owners.tolist()) == sorted(graph.dst.tolist())


def test_graphs_come_back_from_a_file(tmp_path: Path) -> None:
    graph = only(folder(tmp_path, TRAIN))
    again = load_graphs(save_graphs([graph], tmp_path / "m.npz"))[0]
    assert again.names == graph.names
    assert again.labels == graph.labels
    assert again.meta.id == graph.meta.id == "NVIDIA_L4/tiny-train-4-2"
    for name in ("owner", "kind", "duration_us", "repeat", "src", "dst", "span"):
        assert np.array_equal(
            getattr(again, name), getattr(graph, name), equal_nan=name == "duration_us"
        )
    (tmp_path / "junk.npz").write_bytes(b"junk")
    with pytest.raises(InputError, match="no model graphs"):
        load_graphs(tmp_path / "junk.npz")


def test_inference_has_no_backward_and_dropout_does_nothing(tmp_path: Path) -> None:
    graph = only(folder(tmp_path, TRAIN, "tiny-inf-4-2"))
    assert set(graph.kind.tolist()) == {Pass.FORWARD}


def test_labels_without_a_graph_are_counted_and_several_gpus_are_plans(tmp_path: Path) -> None:
    base = folder(tmp_path, TRAIN)
    label = base / "label/NVIDIA_L4/tiny-train-4-2.json"
    (label.parent / "other-inf-4-2.json").write_text(label.read_text())
    (label.parent / "tiny-train-4-2-tp4.json").write_text(label.read_text())
    report = ImportReport("neusight")
    assert len(list(read_models(tmp_path, report))) == 1
    assert {r: f.count for r, f in report.faults.items()} == {"no op graph in results/opgraph": 1}
    ((meta, row),) = read_plans(tmp_path)
    assert meta.id == row["row_id"] == "NVIDIA_L4/tiny-train-4-2-tp4"
    assert (row["tp"], row["dp"], row["n_gpus"], row["iteration_ms"]) == ("4", "1", "4", "5.0")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("add,VECadd,[[[,[],[],set(),,[],(1)", "row 0: cannot be parsed"),
        ("a,misc,[],[],[],{'b'},,[],\"(1,)\"\nb,misc,[],[],[],{'a'},,[],\"(1,)\"", "cycle"),
    ],
)
def test_a_broken_op_graph_is_one_clear_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        only(folder(tmp_path, [line]))


def test_a_changed_column_is_named(tmp_path: Path) -> None:
    base = folder(tmp_path, TRAIN)
    csv = base / "results/opgraph/tiny-train-4-2.csv"
    csv.write_text(csv.read_text().replace("InputShapes", "Inputs"))
    with pytest.raises(InputError, match="InputShapes: no such column"):
        only(base)
    label = base / "label/NVIDIA_L4/tiny-train-4-2.json"
    label.write_text('{"num_layer": 3}')
    with pytest.raises(InputError, match="e2e_latency"):
        only(base)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public data are not here")
def test_class_sums_of_the_public_labels_agree_with_the_published_summary(tmp_path: Path) -> None:
    """BMM, Linear, Softmax and LN of a model, layers repeated, to the last digit."""
    from gnnperf.data.importers.base import numbers, read_columns, texts

    with tarfile.open(SHARED / "neusight.tar.gz") as tar:
        wanted = ("/opgraph/bert", "/opgraph/opt", "/summary/", "/DLmodel_configs/", "/label/")
        keep = [m for m in tar if any(w in m.name for w in wanted) and "switch" not in m.name]
        tar.extractall(tmp_path, keep, filter="data")
    base = tmp_path / "neusight/scripts/asplos"
    columns = {
        "bmm": "label_BMM_fw_latency",
        "linear backward": "label_Linear_bw_latency",
        "softmax": "label_VECsoftmax_fw_latency",
        "layer_norm backward": "label_VECln_bw_latency",
    }
    key = ("device", "model_name", "mode", "seqlen", "batch", "option")
    table = read_columns(base / "summary/summary.csv", (*key, *columns.values()))
    keys = [texts(table, k) for k in key]
    rows = {tuple(k[i] for k in keys): i for i in range(len(table))}
    checked = 0
    for graph in read_models(base, ImportReport("neusight")):
        m = graph.meta
        row = rows.get((m.raw_device, m.model, m.mode, str(m.sequence), str(m.batch), m.option))
        if row is None or np.isnan(graph.duration_us).all():
            continue
        times = np.nan_to_num(graph.duration_us)
        for label, column in columns.items():
            published = numbers(table, column)[row] * 1e3
            mine = graph.step_sum(np.where(np.array(graph.labels) == label, times, 0))
            if np.isfinite(published) and published > 0:
                assert mine == pytest.approx(published, rel=1e-9), (m.id, label)
                checked += 1
    assert checked > 40


def test_compiled_chains_are_one_kernel_that_reads_from_outside(tmp_path: Path) -> None:
    shape = '"(8, 512, 512)"'
    graph = [
        f"x,misc,[],[],[],set(),,[],{shape}",
        f"mask,misc,[],[],[],set(),,[],{shape}",
        "scale,VECdivu,\"[['VECdivu', (4096, 512)]]\",[],[],{'x'},,\"[(8, 512, 512)]\"," + shape,
        "add,VECadd,\"[['VECadd', (4096, 512)]]\",[],[],\"{'scale', 'mask'}\",,"
        '"[(8, 512, 512), (8, 512, 512)]",' + shape,
        "softmax,VECsoftmax,\"[['VECsoftmax', (4096, 512)]]\",[],[],{'add'},,"
        '"[(8, 512, 512)]",' + shape,
    ]
    graphs = {
        g.meta.option: g
        for name in ("tiny-inf-4-2", "tiny-inf-4-2-fusion")
        for g in read_models(folder(tmp_path, graph, name), ImportReport("neusight"))
    }
    assert graphs[""].names == ("scale", "add", "softmax")
    assert graphs["fusion"].names == ("softmax",)
    cost = batch_cost(graphs["fusion"].batch)
    numbers = 8 * 512 * 512
    assert cost.bytes_read.tolist() == [4 * 2 * numbers]  # x and the mask
    assert cost.bytes_written.tolist() == [4 * numbers]
