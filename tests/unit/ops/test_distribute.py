"""How an op's work is shared by the kernels that it launched, and what their names tell."""

import numpy as np
import pytest

from gnnperf.graph import NodeKind, dtype_index
from gnnperf.ops.call import Call, TensorSpec, Work
from gnnperf.ops.distribute import FROM_GRID, HELPER, cost_of, distribute, op_work
from gnnperf.ops.kernels import (
    Kernel,
    dtype_of_kernel,
    family_of_kernel,
    gradient_of_kernel,
    refine_dtype,
)

FP32, FP16, BF16, TF32 = (dtype_index(n) for n in ("float32", "float16", "bfloat16", "tf32"))


def kernel(name: str, blocks: int = -1, threads: int = -1) -> Kernel:
    return Kernel(name, NodeKind.KERNEL, -1, blocks, threads)


def copy(name: str, size: int) -> Kernel:
    return Kernel(name, NodeKind.COPY, size)


def tensor(*shape: int, dtype: int = FP32) -> tuple[TensorSpec, ...]:
    return (TensorSpec(shape, dtype),)


BACKWARD = Call(
    "aten::convolution_backward",
    (tensor(2, 8, 14, 14), tensor(2, 4, 14, 14), tensor(8, 4, 3, 3)) + ((),) * 8,
    (None, None, None, "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1",
     "[True, True, False]"),
)  # fmt: skip
MM = Call("aten::mm", (tensor(64, 32, dtype=FP16), tensor(32, 16, dtype=FP16)))


def flops(rows: list[Work]) -> float:
    return sum(float(cost_of(row).flops[0]) for row in rows)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ampere_sgemm_128x64_tn", "gemm"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64", "gemm"),
        ("nvjet_sm100_tst_8x64_64x16_1x4_h_bz_TNN", "gemm"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw", "conv"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float>", "copy"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>", "attention"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>", "norm"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128>", "norm"),
        ("void (anonymous namespace)::cunn_SoftMaxForward<4, float>", "softmax"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "reduce"),
        ("void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>", "elementwise"),
        ("void at::native::indexSelectLargeIndex<float, long, unsigned int>", "gather"),
        ("void split_embedding_codegen_forward_unweighted_kernel<float>", "embedding"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<>", "optimizer"),
        ("triton_poi_fused_add_3", "triton"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float>", "copy"),
        ("void splitKreduce_kernel<32, 16, int, float>", "reduce"),
        ("void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<>", "sort"),
        (
            "void at::native::elementwise_kernel<128, 4, f(int, bool)::{lambda(int)#1}>",
            "elementwise",
        ),
        ("something_new", "other"),
    ],
)
def test_families_by_kernel_name(name: str, family: str) -> None:
    assert family_of_kernel(name) == family


def test_types_by_kernel_name() -> None:
    assert dtype_of_kernel("void f<c10::BFloat16>") == BF16
    assert dtype_of_kernel("ampere_sgemm_32x32") == FP32
    assert dtype_of_kernel("cutlass_80_tensorop_s1688gemm_256x64") == TF32
    assert dtype_of_kernel("mystery") == 0


def test_tf32_only_where_the_kernel_or_the_default_says_so() -> None:
    assert refine_dtype(FP32, "cutlass_80_tensorop_s1688gemm_64x64_tn_align4") == TF32
    assert refine_dtype(TF32, "ampere_scudnn_128x64_relu_xregs_large_nn_v1") == FP32
    assert refine_dtype(TF32, "volta_scudnn_128x64_relu_interior_nn_v1") == TF32
    assert refine_dtype(FP16, "s1688gemm") == FP16


def test_gradients_by_kernel_name() -> None:
    assert gradient_of_kernel("sm80_xmma_dgrad_implicit_gemm") == 1
    assert gradient_of_kernel("cudnn::cnn::wgrad_alg0_engine") == 2
    assert gradient_of_kernel("igemm_wrw_gtcx2_nhwc_bf16") == 2
    assert gradient_of_kernel("cutlass_80_tensorop_s1688gemm") == 0


def test_gradients_of_a_convolution_go_to_their_kernels() -> None:
    names = ["sm80_xmma_wgrad_implicit_gemm", "sm80_xmma_dgrad_implicit_gemm"]
    rows = distribute(BACKWARD, [kernel(n) for n in names], [])
    assert [row.dims[14] for row in rows] == [2, 1]
    rows = distribute(BACKWARD, [kernel("s1688gemm_nt"), kernel("s1688gemm_tn")], [])
    assert [row.dims[14] for row in rows] == [1, 2]
    assert flops(rows) == flops([op_work(BACKWARD)])


def test_several_kernels_of_one_gradient_share_it() -> None:
    names = ["dgrad_a", "dgrad_b", "wgrad"]
    rows = distribute(BACKWARD, [kernel(n) for n in names], [])
    assert [row.dims[14] for row in rows] == [1, 1, 2]
    assert flops(rows) == pytest.approx(flops([op_work(BACKWARD)]))


def test_one_kernel_gets_both_gradients() -> None:
    (row,) = distribute(BACKWARD, [kernel("naive_conv_bwd")], [])
    assert row.dims[14] == 3


def test_helpers_move_the_tensors_of_their_op_and_no_more() -> None:
    notes: list[str] = []
    kernels = [
        kernel("cudnn::ops::nchwToNhwcKernel"),
        kernel("cudnn::ops::nchwToNhwcKernel", blocks=1, threads=32),
        kernel("s1688gemm"),
        kernel("cask_cudnn::computeOffsetsKernel", blocks=50, threads=256),
    ]
    rows = distribute(BACKWARD, kernels, notes)
    assert notes == [HELPER]
    assert [row.family for row in rows] == ["copy", "copy", "conv", "elementwise"]
    cost = cost_of(op_work(BACKWARD))
    assert rows[0].dims[0] == (cost.bytes_read + cost.bytes_written)[0] / 2
    assert rows[1].dims[0] == 32 * 16 * 4
    assert rows[3].dims[0] == 1


def test_split_k_reduction_is_not_a_product() -> None:
    rows = distribute(MM, [kernel("s16816gemm_splitK"), kernel("splitKreduce_kernel")], [])
    assert [row.family for row in rows] == ["gemm", "reduce"]
    assert rows[0] == op_work(MM)


def test_chunks_of_one_kernel_share_by_their_blocks() -> None:
    params = tuple(TensorSpec((100,), FP32) for _ in range(2))
    adam = Call("aten::_fused_adamw_", (params,) * 4)
    name = "multi_tensor_apply_kernel"
    rows = distribute(adam, [kernel(name, 30, 512), kernel(name, 10, 512)], [])
    assert [row.dims[0] for row in rows] == [150, 50]


def test_copies_go_by_their_own_bytes_whatever_the_op() -> None:
    rows = distribute(MM, [copy("Memset (Device)", 64), kernel("gemm")], [])
    assert (rows[0].family, rows[0].dims[0], rows[0].dims[1]) == ("copy", 64, 3)
    assert rows[1] == op_work(MM)
    (pageable,) = distribute(None, [copy("Memcpy HtoD (Pageable -> Device)", 10)], [])
    assert pageable.dims[1:3] == (1, 0)
    (rocm,) = distribute(None, [copy("CopyDeviceToHost", 10)], [])
    assert rocm.dims[1:3] == (2, 1)
    assert not distribute(None, [copy("Memcpy DtoD (Device -> Device)", -1)], [])[0].known


def test_without_shapes_the_grid_tells_the_size() -> None:
    notes: list[str] = []
    name = "void at::native::vectorized_elementwise_kernel<4, c10::Half>"
    rows = distribute(
        Call("aten::add_", ((), (), ())), [kernel(name, 100, 128)], notes
    ) + distribute(None, [kernel(name, 100, 128)], notes)
    assert notes == [FROM_GRID] * 2
    for row in rows:
        assert (row.family, row.known, row.dtype) == ("elementwise", False, FP16)
        assert row.dims[0] == 100 * 128 * 4


def test_without_shapes_a_product_stays_unknown_and_keeps_its_family() -> None:
    (row,) = distribute(Call("aten::mm", ((), ())), [kernel("ampere_sgemm_64x32", 10, 64)], [])
    assert (row.family, row.dims, row.known) == ("gemm", (), False)
    (row,) = distribute(Call("aten::bmm", ((), ())), [kernel("aten::bmm")], [])
    assert (row.family, row.known) == ("gemm", False)


def test_flash_backward_is_its_main_kernel() -> None:
    q = (TensorSpec((2, 128, 8, 64), FP16),)
    call = Call("aten::_flash_attention_backward", (q,) * 5 + ((),) * 9, (None,) * 11 + ("True",))
    names = [
        "void pytorch_flash::flash_bwd_dot_do_o_kernel<>",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<>",
        "void pytorch_flash::flash_bwd_convert_dq_kernel<>",
    ]
    rows = distribute(call, [kernel(n) for n in names], [])
    assert [row.family for row in rows] == ["elementwise", "attention", "elementwise"]
    assert flops([rows[1]]) == flops([op_work(call)])
    assert np.isfinite([v for row in rows for v in row.dims]).all()
