import csv
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.analytic.collectives import collective_time_us
from gnnperf.analytic.plan import constant_flops_us, interval, predict_iterations
from gnnperf.analytic.plan_layers import LayerTime, Prices, head_us, layer_time
from gnnperf.analytic.plan_model import Plan, Transformer, published_models, shape_of_size
from gnnperf.analytic.plan_report import errors_by_source, intervals
from gnnperf.analytic.plan_rows import not_scored, read_plan_row, source_of
from gnnperf.analytic.plan_time import bubble_share, step_time
from gnnperf.errors import InputError
from gnnperf.hardware import get_platform

SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[4] / "shared"))
MULTIGPU = SHARED / "data" / "multigpu"
NODE = get_platform("dgx-a100")
TINY = Transformer(hidden=1024, layers=2, heads=16, vocab=1024)
ONE = Plan(1, 4, 4, 512, dtype="float16", flash=False, overlap=False)


class Flat(Prices):
    """Products at 100 TFLOP/s, streams at 1 TB/s."""

    def __init__(self) -> None:
        self.rate = 1e6

    def times_us(self, family: str, rows: Sequence[tuple[float, ...]], dtype: str) -> np.ndarray:
        assert family == "gemm"
        return np.array([2 * b * m * n * k / 1e8 for b, m, n, k in rows])


def test_tiny_transformer_by_hand() -> None:
    tokens, h = 4 * 512, 1024
    forward = 24 * tokens * h**2 / 1e8 + 4 * 4 * 512**2 * h / 1e8  # 12 h^2 weights, two products
    attention = 4 * 4 * 512**2 * h / 1e8 + 13 * 4 * 16 * 512**2 / 1e6
    layer = layer_time(TINY, ONE, Flat())
    assert layer.attention_us == pytest.approx(attention)
    assert layer.forward_us == pytest.approx(
        forward + 13 * 4 * 16 * 512**2 / 1e6 + tokens * (22 + 4 * 4 + 6 * 3) * h / 1e6
    )
    assert layer.backward_us == pytest.approx(
        2 * forward + 17 * 4 * 16 * 512**2 / 1e6 + tokens * (28 + 6 * 4 + 8 * 3) * h / 1e6
    )
    head = head_us(TINY, ONE, Flat())
    assert head == pytest.approx(6 * tokens * h * 1024 / 1e8 + tokens * (24 * 1024 + 12 * h) / 1e6)
    step = step_time(TINY, ONE, Flat(), NODE)
    adam = (2 * 12 * h**2 + 1024 * h) * 38 / 1e6
    layers = 2 * (layer.forward_us + layer.backward_us)
    assert step.total_us == pytest.approx(layers + head + adam)
    assert step.bubble_us == step.tensor_us == step.data_us == 0


def test_recomputation() -> None:
    layer = LayerTime(1000.0, 2000.0, 100.0)
    assert layer.total_us("none") == 3000
    assert layer.total_us("full") == 4000
    assert layer.total_us("selective") == 3100
    assert LayerTime(1.0, 2.0, 0.5).total_us("none") == (30 + 45) * 25  # the host is slower


@pytest.mark.parametrize(("stages", "virtual"), [(2, 1), (4, 1), (4, 3)])
def test_bubble_of_1f1b(stages: int, virtual: int) -> None:
    model = replace(TINY, layers=12, vocab=1)  # no head to speak of: balanced stages
    plan = replace(
        ONE, gpus=stages, pipeline=stages, virtual=virtual, micro_batch=1, global_batch=32,
        optimizer=False,
    )  # fmt: skip
    free = replace(NODE, intra_node=replace(NODE.intra_node, latency_us=0, bandwidth_gb_per_s=1e9))
    step = step_time(model, plan, Flat(), free)
    assert step.bubble_us / step.total_us == pytest.approx(
        bubble_share(stages, 32, virtual), rel=2e-3
    )
    assert bubble_share(4, 32) == pytest.approx(3 / 35)  # (p-1)/(m+p-1)


def test_tensor_parallel_reductions() -> None:
    plan = replace(ONE, gpus=8, tensor=8)
    one = float(collective_time_us("all_reduce", 4 * 512 * 1024 * 2, 0, 8, 1, NODE))
    step = step_time(TINY, plan, Flat(), NODE)
    assert step.tensor_us == pytest.approx(2 * 4 * one)
    again = step_time(TINY, replace(plan, recompute="full"), Flat(), NODE)
    assert again.tensor_us == pytest.approx(2 * 6 * one)


def test_gradients_are_reduced_once_and_hidden_only_where_stated() -> None:
    plan = replace(ONE, gpus=8, data=8, global_batch=32)
    params = 2 * 12 * 1024**2 + 1024 * 1024
    expected = float(collective_time_us("all_reduce", params * 2, 0, 8, 1, NODE))
    assert step_time(TINY, plan, Flat(), NODE).data_us == pytest.approx(expected)
    hidden = step_time(TINY, replace(plan, overlap=True), Flat(), NODE).data_us
    assert 0 < hidden < expected
    more = step_time(TINY, replace(plan, global_batch=320), Flat(), NODE)
    assert more.data_us == pytest.approx(expected)


def test_slower_across_nodes_and_never_faster_than_the_nics() -> None:
    plan = replace(ONE, gpus=16, tensor=16)
    size = 4 * 512 * 1024 * 2
    step = step_time(TINY, plan, Flat(), NODE)
    one = step.tensor_us / 8
    assert one >= 2 * 15 / 16 * size / 8 / (25e3 * 0.8)
    assert step.tensor_us > step_time(TINY, replace(plan, gpus=8, tensor=8), Flat(), NODE).tensor_us


def test_degrees_that_do_not_make_up_the_gpus() -> None:
    with pytest.raises(InputError, match="make 2 GPUs, not 8"):
        step_time(TINY, replace(ONE, gpus=8, tensor=2), Flat(), NODE)


def test_published_sizes() -> None:
    models = published_models()
    for name, billions in (
        ("llama370b", 69.5), ("llama27b", 6.6), ("gpt3175b", 174.6), ("mpt13b", 12.85),
        ("qwen330ba3b", 30.2), ("gptoss120b", 116.5), ("llama31405b", 403.7),
    ):  # fmt: skip
        assert models[name].params / 1e9 == pytest.approx(billions, rel=0.01), name
    assert models["qwen330ba3b"].active_params / 1e9 == pytest.approx(3.1, rel=0.05)


def test_usual_shape_has_the_stated_size() -> None:
    for size in (1e9, 13e9, 175e9):
        shape = shape_of_size(size, 8)
        assert 12 * shape.layers * shape.hidden**2 == pytest.approx(size, rel=0.06)
        assert shape.layers % 8 == 0


ROW = {
    "row_id": "x-1", "gpu": "A100-SXM4-80GB", "framework": "Megatron-LM", "model": "GPT 39.1B",
    "params_b": "39.1", "n_gpus": "512", "nodes": "64", "tp": "8", "dp": "16", "pp": "4",
    "global_batch": "1536", "micro_batch": "2", "seq": "2048", "hidden": "8192", "heads": "64",
    "layers": "48", "precision": "fp16", "activation_recompute": "full",
    "iteration_ms": "14713.4", "iteration_ms_how": "measured", "source": "somewhere",
}  # fmt: skip


def test_row_is_understood() -> None:
    row = read_plan_row(ROW)
    assert row.hardware.name == "a100-sxm-80gb"
    assert (row.plan.tensor, row.plan.data, row.plan.pipeline) == (8, 16, 4)
    assert row.plan.micro_batches == 48
    assert (row.plan.recompute, row.plan.dtype, row.plan.flash) == ("full", "float16", False)
    assert row.model.params == pytest.approx(39.1e9, rel=0.002)  # the vocabulary follows
    assert source_of(ROW) == "x"


def test_other_layout_and_missing_figures() -> None:
    other = {k: v for k, v in ROW.items() if not k.startswith("iteration") and k != "params_b"}
    other |= {"iter_s": "14.7134", "measured": "sec/it", "status": "ok", "recompute": "full"}
    one, two = predict_iterations([ROW, other])
    assert two.measured_us == pytest.approx(one.measured_us) == pytest.approx(14713400)
    assert two.predicted_us == pytest.approx(one.predicted_us, rel=0.02)
    assert one.low_us <= one.predicted_us <= one.high_us
    bare = predict_iterations([{**ROW, "hidden": "", "layers": "", "heads": ""}])[0]
    assert bare.how == "plan, shape from size"
    assert bare.predicted_us == pytest.approx(one.predicted_us, rel=0.25)


def test_rows_that_cannot_be_described_say_why() -> None:
    rows = [
        {**ROW, "gpu": "Frobnicator"},
        {**ROW, "model": "ResNet50 v1.5"},
        {**ROW, "seq": ""},
        {**ROW, "model": "secret", "params_b": "", "hidden": ""},
        {**ROW, "hidden": "wide"},
    ]
    done = predict_iterations(rows)
    for item, reason in zip(
        done, ("unknown gpu", "no transformer", "no seq", "not known", "no number"), strict=True
    ):
        assert reason in item.why_not
        assert math.isnan(item.predicted_us)


def test_plan_that_does_not_add_up_falls_back_to_flops() -> None:
    row = {**ROW, "n_gpus": "500", "nodes": "63"}
    done = predict_iterations([row])[0]
    assert done.how == "flops"
    known = read_plan_row(row)
    by_hand = 8 * known.model.params * 1536 * 2048 / (500 * 312e12 * 0.35) * 1e6
    assert constant_flops_us(known) == done.predicted_us == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iteration_ms_how": "derived = GBS*seq/(tok/s)"}, "derived"),
        ({"source": "vTrain:data/ground_truth_single.csv"}, "composed"),
        ({"iteration_ms": ""}, "no iteration time"),
        ({"status": "oom"}, "status oom"),
        ({"duplicate_of_earlier": "True"}, "earlier row"),
        ({}, ""),
    ],
)
def test_only_measured_rows_count(change: dict[str, str], reason: str) -> None:
    assert (reason in not_scored({**ROW, **change})) if reason else not not_scored(ROW)


def test_report_of_two_sources() -> None:
    rows = [ROW, {**ROW, "row_id": "y-2"}]
    done = predict_iterations(rows)
    lines = errors_by_source(rows, done)
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| x", "| y"]
    low, high = intervals(rows, done)["plan"]
    assert low <= 1 <= high


@pytest.mark.skipif(not MULTIGPU.exists(), reason=f"no measured iterations at {MULTIGPU}")
@pytest.mark.parametrize(
    ("table", "source", "rows", "limit"),
    [
        ("train_iter.csv", "vtrain", 73, 10.0),
        ("train_iter.csv", "seqsel", 4, 10.0),
        ("train_iter.csv", "neusight", 3, 15.0),
        ("train_iter_extra.csv", "bigscience-v100", 19, 20.0),
    ],
)
def test_measured_iterations(table: str, source: str, rows: int, limit: float) -> None:
    with (MULTIGPU / table).open() as file:
        found = [
            row for row in csv.DictReader(file) if source_of(row) == source and not not_scored(row)
        ]
    scored = predict_iterations(found)
    assert len(scored) == rows
    error = [100 * abs(s.predicted_us / s.measured_us - 1) for s in scored]
    assert np.mean(error) < limit


@pytest.mark.parametrize("kind", ["plan", "plan, small model", "flops"])
def test_an_interval_holds_its_prediction(kind: str) -> None:
    low, high = interval(kind)
    assert low <= 1.0 <= high
