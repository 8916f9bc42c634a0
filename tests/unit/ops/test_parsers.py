"""What parsers read from calls as traces record them."""

import pytest

from gnnperf.graph import dtype_index
from gnnperf.ops import FAMILIES
from gnnperf.ops.call import Call, TensorSpec, base_name, broadcast_shape, parse_value
from gnnperf.ops.collective import KINDS, kind_of
from gnnperf.ops.distribute import cost_of, op_work
from gnnperf.ops.parsers import COMPOSITE, NO_WORK, has_no_work, known_ops, parser_of

FP32, FP16, TF32, INT64 = (dtype_index(n) for n in ("float32", "float16", "tf32", "int64"))


def tensor(*shape: int, dtype: int = FP32, strides: tuple[int, ...] | None = None) -> TensorSpec:
    return TensorSpec(shape, dtype, strides)


def call(
    name: str,
    *arguments: TensorSpec | list[TensorSpec] | str | None,
    outputs: tuple[TensorSpec, ...] = (),
) -> Call:
    args, values = [], []
    for argument in arguments:
        tensors = argument if isinstance(argument, list) else [argument]
        args.append(tuple(t for t in tensors if isinstance(t, TensorSpec)))
        values.append(argument if isinstance(argument, str) else None)
    return Call(name, tuple(args), tuple(values), outputs)


def dims(made: Call) -> dict[str, float]:
    work = op_work(made)
    assert work.known, work
    return dict(zip(FAMILIES[work.family].dims, work.dims, strict=True))


def test_values_as_traces_write_them() -> None:
    assert parse_value("[1, 1]") == [1, 1]
    assert parse_value("True") is parse_value("true") is True
    assert parse_value("1e-05") == 1e-5
    for absent in (None, "", "<None>", "None", "<Object>", "cuda:0"):
        assert parse_value(absent) is None


def test_names_lose_namespace_overload_and_in_place_mark() -> None:
    assert base_name("aten::_foreach_add_") == "_foreach_add"
    assert base_name("aten::add.Tensor") == "add"
    assert base_name("aten::__and__") == "__and__"


def test_no_op_is_both_known_as_work_and_as_no_work() -> None:
    assert not set(known_ops()) & NO_WORK
    assert set(known_ops()) >= COMPOSITE


def test_annotations_and_autograd_nodes_are_no_ops() -> None:
    for name in ("ProfilerStep#3", "autograd::engine::evaluate_function: MmBackward0", "sum"):
        assert parser_of(name) is None
        assert has_no_work(name)
    assert parser_of("aten::sum") is not None


def test_a_linear_layer_and_its_addmm_agree() -> None:
    linear = dims(call("aten::linear", tensor(2, 5, 16), tensor(8, 16), tensor(8)))
    x, w = tensor(10, 16), tensor(16, 8, strides=(1, 16))
    assert linear == dims(call("aten::addmm", tensor(8), x, w))
    assert (linear["m"], linear["n"], linear["k"], linear["bias"]) == (10, 8, 16, 1)
    assert linear["b_transposed"] == 1


def test_cudnn_orders_padding_before_stride_and_has_two_signatures() -> None:
    x, w = tensor(4, 3, 224, 224), tensor(64, 3, 7, 7)
    new = call("aten::cudnn_convolution", x, w, "[3, 3]", "[2, 2]", "[1, 1]", "1")
    old = call("aten::cudnn_convolution", x, w, tensor(64), "[3, 3]", "[2, 2]", "[1, 1]", "1")
    aten = call("aten::convolution", x, w, None, "[2, 2]", "[3, 3]", "[1, 1]", "False", "", "1")
    assert dims(new) == dims(old) == dims(aten)
    assert (dims(new)["stride_h"], dims(new)["pad_w"]) == (2, 3)
    assert op_work(new).dtype == TF32


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "out"),
    [(224, 7, 2, 3, 112), (56, 3, 1, 1, 56), (7, 1, 2, 0, 4)],
)
def test_stride_and_padding_come_out_of_the_gradients_size(
    size: int, kernel: int, stride: int, pad: int, out: int
) -> None:
    made = call(
        "aten::convolution_backward",
        tensor(2, 8, out, out), tensor(2, 4, size, size), tensor(8, 4, kernel, kernel),
    )  # fmt: skip
    found = dims(made)
    assert (found["stride_h"], found["direction"]) == (stride, 3)
    assert cost_of(op_work(made)).flops[0] == 2 * 2 * 2 * 8 * out * out * 4 * kernel**2
    assert pad == found["pad_h"]
    assert set(made.assumed) == {"both gradients of a convolution"}


def test_a_forward_convolution_without_values_is_assumed_and_said_so() -> None:
    made = call("aten::cudnn_convolution", tensor(2, 4, 14, 14), tensor(8, 4, 3, 3))
    assert (dims(made)["pad_h"], dims(made)["stride_h"]) == (1, 1)
    assert set(made.assumed) == {"convolution of stride 1 that keeps the size"}


def test_depthwise_convolution_has_as_many_groups_as_channels() -> None:
    made = call("aten::_conv_depthwise2d", tensor(2, 32, 14, 14), tensor(32, 1, 3, 3), "[3, 3]",
                None, "[1, 1]", "[1, 1]", "[1, 1]")  # fmt: skip
    assert dims(made)["groups"] == 32
    assert cost_of(op_work(made)).flops[0] == 2 * 2 * 32 * 14 * 14 * 9


def test_attention_layouts() -> None:
    q = tensor(2, 8, 128, 64, dtype=FP16)
    first = dims(call("aten::_scaled_dot_product_flash_attention", q, q, q, "0.0", "True"))
    q = tensor(2, 128, 8, 64, dtype=FP16)
    values = ["128", "128", "0.0", "True"]
    second = dims(call("aten::_flash_attention_forward", q, q, q, None, None, *values))
    assert first == second
    assert (first["q_heads"], first["q_len"], first["causal"]) == (8, 128, 1)


def test_packed_sequences_are_split_by_their_offsets() -> None:
    q, offsets = tensor(1000, 8, 64, dtype=FP16), tensor(5, dtype=INT64)
    made = call("aten::_flash_attention_forward", q, q, q, offsets, offsets, "300", "300",
                "0.0", "False")  # fmt: skip
    assert (dims(made)["batch"], dims(made)["q_len"]) == (4, 300)


def test_norms_by_value_or_by_weight() -> None:
    x, w = tensor(4, 16, 32), tensor(32)
    by_value = dims(call("aten::native_layer_norm", x, "[32]", w, w, "1e-05"))
    by_weight = dims(call("aten::native_layer_norm", x, None, w, w))
    assert by_value == by_weight
    assert (by_value["rows"], by_value["cols"], by_value["affine"]) == (64, 32, 1)
    batch = dims(call("aten::cudnn_batch_norm", tensor(8, 3, 5, 5), *[tensor(3)] * 4, "True"))
    assert (batch["rows"], batch["cols"], batch["kind"]) == (3, 200, 2)
    frozen = op_work(call("aten::cudnn_batch_norm", tensor(8, 3, 5, 5), *[tensor(3)] * 4, "False"))
    assert frozen.family == "elementwise"


def test_softmax_along_a_middle_dimension() -> None:
    found = dims(call("aten::_softmax", tensor(4, 16, 32), "1", "False"))
    assert (found["rows"], found["cols"]) == (128, 16)
    backward = call("aten::_log_softmax_backward_data", tensor(8, 10), tensor(8, 10), "1", "6")
    assert (dims(backward)["direction"], dims(backward)["log"]) == (1, 1)


def test_reductions_know_what_is_left() -> None:
    assert dims(call("aten::sum", tensor(4, 8), "[0]", "False"))["out_numel"] == 8
    assert dims(call("aten::mean", tensor(4, 8), "[-1]", "True"))["out_numel"] == 4
    assert dims(call("aten::sum", tensor(4, 8), "[]", "False"))["out_numel"] == 1
    assert dims(call("aten::sum", tensor(4, 8)))["out_numel"] == 1
    assert dims(call("aten::max", tensor(4, 8), tensor(8)))["numel"] == 32


def test_broadcast_reads_each_input_once() -> None:
    made = dims(call("aten::add", tensor(4, 8), tensor(8), "1"))
    assert (made["numel"], made["bytes_read"], made["bytes_written"]) == (32, 160, 128)
    assert made["strided"] == 1
    plain = dims(call("aten::mul", tensor(4, 8), tensor(4, 8)))
    assert plain["strided"] == 0
    assert dims(call("aten::gt", tensor(4, 8), tensor()))["bytes_written"] == 32
    assert broadcast_shape([tensor(4, 1), tensor(3)]) == (4, 3)


def test_shapes_that_do_not_broadcast_are_not_known() -> None:
    assert not op_work(call("aten::add", tensor(4, 8), tensor(5))).known


def test_dropout_writes_a_mask() -> None:
    assert dims(call("aten::native_dropout", tensor(10), "0.1", "True"))["bytes_written"] == 50


def test_embedding_bag_of_fused_tables() -> None:
    plain = dims(call("aten::_embedding_bag", tensor(100, 16), tensor(50, dtype=INT64),
                      tensor(5, dtype=INT64)))  # fmt: skip
    assert (plain["table_rows"], plain["lookups"], plain["bags"]) == (100, 50, 5)
    ints = [tensor(n, dtype=INT64) for n in (2, 2, 3)]
    made = call(
        "fbgemm::split_embedding_codegen_lookup_sgd_function",
        tensor(0), tensor(3200), tensor(0), tensor(0, 0), ints[0], ints[1], ints[2], "32", "16",
        tensor(3, dtype=INT64), "7", tensor(60, dtype=INT64), tensor(9, dtype=INT64),
    )  # fmt: skip
    found = dims(made)
    assert (found["dim"], found["table_rows"], found["tables"]) == (16, 200, 2)
    assert (found["lookups"], found["bags"]) == (60, 8)


def test_indexing_takes_rows() -> None:
    made = dims(call("aten::index_select", tensor(100, 16), "0", tensor(7, dtype=INT64)))
    assert (made["out_numel"], made["row_numel"]) == (112, 16)
    added = dims(call("aten::index_add_", tensor(100, 16), "0", tensor(7, dtype=INT64),
                      tensor(7, 16)))  # fmt: skip
    assert (added["atomic"], added["bytes_read"]) == (1, 2 * 7 * 16 * 4 + 7 * 8)
    assert dims(call("aten::cat", [tensor(2, 3), tensor(4, 3)], "0"))["out_numel"] == 18


def test_top_k_and_sort() -> None:
    assert dims(call("aten::topk", tensor(4, 100), "5", "-1"))["top_k"] == 5
    assert dims(call("aten::sort", tensor(4, 100), "0"))["segments"] == 100


def test_casts_and_copies() -> None:
    found = dims(call("aten::copy_", tensor(10, dtype=FP16), tensor(10), "False"))
    assert (found["bytes"], found["dtype_bytes_in"], found["dtype_bytes_out"]) == (20, 4, 2)


def test_optimizers_move_every_list() -> None:
    params = [tensor(10), tensor(20)]
    added = dims(call("aten::_foreach_add_", params, params, "1"))
    assert (added["numel"], added["tensors"], added["bytes_per_parameter"]) == (30, 2, 12)
    steps = [tensor(), tensor()]
    adam = dims(call("aten::_fused_adamw_", params, params, params, params, [], steps))
    assert (adam["bytes_per_parameter"], adam["fused"]) == (28, 1)


def test_lstm_cell_and_grouped_products() -> None:
    cell = dims(call("aten::_thnn_fused_lstm_cell", tensor(8, 64), tensor(8, 64), tensor(8, 16)))
    assert (cell["batch"], cell["head_dim"]) == (8, 16)
    grouped = dims(call("aten::_grouped_mm", tensor(100, 32), tensor(4, 32, 64),
                        tensor(4, dtype=INT64)))  # fmt: skip
    assert (grouped["experts"], grouped["n"], grouped["k"]) == (4, 64, 32)


def test_quantization_writes_one_byte() -> None:
    made = dims(call("_C::static_scaled_fp8_quant", tensor(4, 8, dtype=FP16)))
    assert (made["bytes_read"], made["bytes_written"]) == (64, 32)


def test_compiled_kernels_by_their_tensors() -> None:
    made = dims(call("triton_poi_fused_add_0", tensor(64), tensor(64), tensor(64), "64"))
    assert (made["bytes_read"], made["bytes_written"], made["inputs"]) == (512, 256, 2)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("c10d::allreduce_", "all_reduce"),
        ("nccl:all_to_all", "all_to_all"),
        ("c10d::_allgather_base_", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16", "reduce_scatter"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", "broadcast"),
        ("c10d::barrier", "barrier"),
        ("ncclDevKernel_SendRecv", "send_recv"),
    ],
)
def test_collectives_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind
    assert kind in KINDS


def test_an_op_of_no_table_moves_its_bytes_and_is_not_known() -> None:
    work = op_work(call("mylib::fancy", tensor(10), tensor(30)))
    assert (work.family, work.dims, work.known) == ("other", (160.0, 120.0, 30.0), False)


@pytest.mark.parametrize("name", sorted(known_ops()))
def test_no_parser_breaks_on_strange_arguments(name: str) -> None:
    for arguments in ((), (tensor(),), (tensor(-1, 4),), (tensor(0, 3), "x", [tensor(2)])):
        work = op_work(call(f"aten::{name}", *arguments))
        assert all(value == value for value in work.dims)
