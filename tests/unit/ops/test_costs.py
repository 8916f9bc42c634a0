"""FLOPs and bytes of every family against values computed by hand."""

import numpy as np
import pytest

from gnnperf.graph import dtype_index
from gnnperf.ops import (
    FAMILIES,
    MAX_DIMS,
    Cost,
    OpBatch,
    batch_cost,
    dim_index,
    family_index,
    family_names,
)
from gnnperf.ops.base import distinct_rows_of

FP32, FP16, FP8 = (dtype_index(n) for n in ("float32", "float16", "float8"))


def cost_of(family: str, dtype: int = FP32, **dims: float) -> Cost:
    row = np.zeros((1, MAX_DIMS))
    for name, value in dims.items():
        row[0, dim_index(family, name)] = value
    return FAMILIES[family].cost(row, np.array([dtype], np.int8))


CONV = {
    "batch": 2, "in_channels": 4, "out_channels": 8, "in_h": 10, "in_w": 10, "kernel_h": 3,
    "kernel_w": 3, "stride_h": 1, "stride_w": 1, "pad_h": 1, "pad_w": 1, "dilation_h": 1,
    "dilation_w": 1, "groups": 1,
}  # fmt: skip
ATTENTION = {
    "batch": 2, "q_heads": 8, "kv_heads": 2, "q_len": 128, "kv_len": 128, "head_dim": 64,
    "v_head_dim": 64, "flash": 1, "kv_bytes": 2,
}  # fmt: skip
BY_HAND = [
    ("gemm", FP32, {"batch": 1, "m": 4, "n": 5, "k": 6, "bias": 1}, 240, 4 * (24 + 30 + 5), 80),
    ("gemm", FP8, {"batch": 2, "m": 4, "n": 5, "k": 6}, 480, 2 * (24 + 30), 2 * 2 * 20),
    ("conv", FP32, CONV, 2 * 2 * 8 * 100 * 36, 4 * (800 + 288), 4 * 1600),
    ("conv", FP32, {**CONV, "direction": 1}, 115200, 4 * (1600 + 288), 4 * 800),
    ("conv", FP32, {**CONV, "direction": 2}, 115200, 4 * (1600 + 800), 4 * 288),
    ("conv", FP32, {**CONV, "direction": 3}, 230400, 4 * (800 + 1600 + 288), 4 * (800 + 288)),
    ("conv", FP32, {**CONV, "groups": 4}, 28800, 4 * (800 + 72), 4 * 1600),
    (
        "attention", FP16, ATTENTION, 2 * 2 * 8 * 128 * 128 * 128,
        2 * (2 * 8 * 128 * 64) + 2 * (2 * 2 * 128 * 128), 2 * 2 * 8 * 128 * 64 + 4 * 2 * 8 * 128,
    ),
    ("norm", FP32, {"rows": 10, "cols": 100, "affine": 1}, 8000, 4 * 1200, 4 * 1000 + 80),
    ("softmax", FP16, {"rows": 10, "cols": 100}, 5000, 2000, 2000),
    ("softmax", FP16, {"rows": 10, "cols": 100, "direction": 1}, 4000, 4000, 2000),
    (
        "reduce", FP32, {"in_numel": 100, "out_numel": 10, "reduced": 10, "flops_per_element": 1},
        100, 400, 40,
    ),
    (
        "elementwise", FP32,
        {"numel": 10, "bytes_read": 80, "bytes_written": 40, "flops_per_element": 1},
        10, 80, 40,
    ),
    ("pool", FP32, {"out_numel": 25, "window": 4, "in_numel": 100}, 100, 400, 100),
    (
        "embedding", FP32,
        {"table_rows": 1000, "dim": 16, "lookups": 10, "bags": 2, "unique_fraction": 0.5},
        160, 8 * 10 + 4 * 5 * 16, 4 * 2 * 16,
    ),
    ("gather", FP32, {"out_numel": 10, "bytes_read": 120, "bytes_written": 40}, 0, 120, 40),
    ("sort", FP32, {"numel": 1024, "segments": 1, "key_bytes": 4}, 10240, 4096, 1024 * 12),
    ("sort", FP32, {"numel": 1024, "segments": 4, "key_bytes": 4, "top_k": 2}, 8192, 4096, 96),
    ("copy", FP32, {"bytes": 100, "dtype_bytes_in": 4, "dtype_bytes_out": 2}, 0, 200, 100),
    ("copy", FP32, {"bytes": 100, "route": 1}, 0, 0, 100),
    ("copy", FP32, {"bytes": 100, "route": 2}, 0, 100, 0),
    ("copy", FP32, {"bytes": 100, "route": 3}, 0, 0, 100),
    (
        "moe_gemm", FP16, {"tokens": 8, "top_k": 2, "experts": 1, "n": 4, "k": 6},
        2 * 16 * 24, 2 * (24 * -np.expm1(-16) + 96), 2 * 16 * 4,
    ),
    (
        "optimizer", FP32,
        {"numel": 100, "bytes_per_parameter": 28, "flops_per_element": 15}, 1500, 1600, 1200,
    ),
    ("triton", FP32, {"bytes_read": 8, "bytes_written": 4, "numel": 2, "inputs": 3}, 6, 8, 4),
    (
        "quantize", FP16, {"rows": 4, "cols": 8, "bytes_read": 64, "bytes_written": 32},
        64, 64, 32,
    ),
    ("collective", FP32, {"input_bytes": 64, "output_bytes": 128, "group_size": 2}, 0, 64, 128),
    ("other", FP32, {"bytes_read": 8, "bytes_written": 4, "numel": 2}, 2, 8, 4),
]  # fmt: skip


@pytest.mark.parametrize(("family", "dtype", "dims", "flops", "read", "written"), BY_HAND)
def test_cost_by_hand(
    family: str, dtype: int, dims: dict[str, float], flops: float, read: float, written: float
) -> None:
    cost = cost_of(family, dtype, **dims)
    assert cost.flops[0] == pytest.approx(flops)
    assert cost.bytes_read[0] == pytest.approx(read)
    assert cost.bytes_written[0] == pytest.approx(written)


def test_moe_counts_three_products_and_the_touched_experts() -> None:
    dims = {"tokens": 1, "hidden": 8, "inter": 4, "experts": 64, "top_k": 2, "gated": 1}
    cost = cost_of("moe", FP16, tensor_parallel=1, expert_parallel=1, **dims)
    assert cost.flops[0] == 2 * 2 * 8 * 4 * 3
    weights = 64 * -np.expm1(-2 / 64) * 8 * 4 * 3 * 2
    between = 2 * 2 * 4 * 3 * 2  # written and read: gate and up, their product
    assert cost.bytes_read[0] == pytest.approx(weights + 16 + between / 2)


def test_recurrent_scan_and_cell() -> None:
    scan = cost_of("recurrent", FP16, batch=2, length=3, heads=4, head_dim=5, state_dim=6, kind=1)
    assert scan.flops[0] == 6 * 2 * 3 * 4 * 5 * 6
    cell = cost_of("recurrent", FP32, batch=2, length=1, heads=1, head_dim=8, kind=0)
    assert cell.bytes_read[0] == 4 * 5 * 16


def test_causal_attention_computes_the_triangle() -> None:
    full = cost_of("attention", FP16, **ATTENTION).flops[0]
    causal = cost_of("attention", FP16, **ATTENTION, causal=1).flops[0]
    assert causal / full == pytest.approx((128 * 129 / 2) / 128**2)
    decode = {**ATTENTION, "q_len": 1}
    assert (
        cost_of("attention", FP16, **decode, causal=1).flops[0]
        == cost_of("attention", FP16, **decode).flops[0]
    )


def test_window_bounds_the_keys_of_a_query() -> None:
    from itertools import product

    from gnnperf.ops.attention import attended_pairs

    for q, kv, causal, window in product((1, 5, 8), (8, 11), (0, 1), (0, 1, 3, 20)):
        pairs = 0
        for i in range(q):
            last = i + kv - q if causal else kv - 1
            first = max(last - window + 1, 0) if window and causal else 0
            keys = last - first + 1
            pairs += min(keys, window) if window else keys
        arrays = (np.array([float(v)]) for v in (q, kv, causal, window))
        found = attended_pairs(*arrays)[0]
        ramped = window and causal and q < kv
        assert found == pytest.approx(pairs, rel=0.35 if ramped else 1e-12), (q, kv, causal, window)


def test_unfused_attention_moves_its_scores() -> None:
    math = cost_of("attention", FP16, **{**ATTENTION, "flash": 0})
    fused = cost_of("attention", FP16, **ATTENTION)
    extra = math.bytes_read + math.bytes_written - fused.bytes_read - fused.bytes_written
    assert extra[0] == 13 * 2 * 8 * 128 * 128


def test_batch_norm_reads_twice_and_so_does_a_backward_pass_with_weights() -> None:
    batch = cost_of("norm", FP32, rows=8, cols=100, kind=2)
    assert batch.bytes_read[0] == 2 * 4 * 800
    plain = cost_of("norm", FP32, rows=8, cols=100, direction=1)
    weighted = cost_of("norm", FP32, rows=8, cols=100, direction=1, affine=1)
    assert weighted.bytes_read[0] - plain.bytes_read[0] == 4 * (2 * 800 + 2 * 100)


def test_uniform_lookups_touch_no_more_rows_than_there_are() -> None:
    few = cost_of("embedding", table_rows=10, dim=4, lookups=100000)
    assert few.bytes_read[0] == pytest.approx(8 * 100000 + 4 * 10 * 4)


SAMPLE: dict[str, dict[str, float]] = {}
for _family, _, _dims, *_rest in BY_HAND:
    SAMPLE.setdefault(_family, dict(_dims))
SAMPLE["moe"] = {
    "tokens": 8, "hidden": 8, "inter": 4, "experts": 4, "top_k": 2, "tensor_parallel": 1,
    "expert_parallel": 1, "gated": 1,
}  # fmt: skip
SAMPLE["recurrent"] = {
    "batch": 2, "length": 3, "heads": 4, "head_dim": 5, "state_dim": 6, "kind": 1,
}  # fmt: skip


def test_every_family_has_an_example() -> None:
    assert set(SAMPLE) == set(family_names())


@pytest.mark.parametrize("family", family_names())
def test_cost_grows_with_size_and_divides_between_kernels(family: str) -> None:
    dims, extensive = SAMPLE[family], FAMILIES[family].extensive
    whole = cost_of(family, FP16, **dims)
    double = cost_of(family, FP16, **{k: v * (2 if k in extensive else 1) for k, v in dims.items()})
    half = cost_of(family, FP16, **{k: v / (2 if k in extensive else 1) for k, v in dims.items()})
    assert whole.parallel_items[0] > 0
    assert double.flops[0] >= whole.flops[0]
    assert (double.bytes_read + double.bytes_written)[0] > (whole.bytes_read + whole.bytes_written)[
        0
    ]
    assert 2 * half.flops[0] == pytest.approx(whole.flops[0], rel=0.01)


def test_batch_cost_mixes_families_in_any_order() -> None:
    dims = np.zeros((3, MAX_DIMS))
    dims[0, :3] = (8, 4, 2)
    dims[1, :4] = (1, 4, 5, 6)
    dims[2, :3] = (16, 8, 4)
    family = np.array([family_index(f) for f in ("other", "gemm", "other")], np.int16)
    batch = OpBatch(family, dims, np.full(3, FP32, np.int8), np.ones(3, np.bool_))
    assert batch_cost(batch).flops.tolist() == [2, 240, 4]
    assert batch_cost(batch).tensor_path.tolist() == [False, True, False]
    example, inverse = distinct_rows_of(batch.take(np.array([0, 1, 0, 2, 1])))
    assert len(example) == 3
    assert inverse[0] == inverse[2]
    assert inverse[1] == inverse[4]
