"""Which op is of which family: the tables of all family files joined."""

from functools import lru_cache

from gnnperf.ops import (
    attention,
    collective,
    conv,
    copy,
    elementwise,
    embedding,
    gather,
    gemm,
    moe_gemm,
    norm,
    optimizer,
    pool,
    quantize,
    recurrent,
    reduce,
    softmax,
    sort,
    triton,
)
from gnnperf.ops.call import Parser, base_name, words

_MODULES = (
    gemm,
    conv,
    attention,
    norm,
    softmax,
    reduce,
    elementwise,
    pool,
    embedding,
    gather,
    sort,
    copy,
    moe_gemm,
    recurrent,
    optimizer,
    quantize,
)
_TABLE: dict[str, tuple[str, Parser]] = {
    name: (module.FAMILY.name, parser)
    for module in _MODULES
    for name, parser in module.PARSERS.items()
}

COMPOSITE = frozenset(
    words(
        """linear matmul conv1d conv2d conv3d convolution _convolution batch_norm rms_norm softmax
        log_softmax embedding_bag embedding_backward scaled_dot_product_attention max_pool2d
        adaptive_avg_pool2d zeros ones full arange zeros_like ones_like full_like new_zeros
        linspace eye rand randn stack argsort clone repeat constant_pad_nd
        convolution_overrideable binary_cross_entropy_with_logits"""
    )
)
"""Ops whose work is done by other ops inside them; parsed only where the trace shows no such op."""

NO_WORK = frozenset(
    words(
        """view _indices _values indices values is_coalesced _nnz sparse_dim dense_dim
        sparse_coo_tensor _sparse_coo_tensor_unsafe _sparse_coo_tensor_with_dims_and_tensors
        _coalesced _dimI _dimV
        reshape _unsafe_view _reshape_alias reshape_as view_as t numpy_T transpose swapaxes
        permute expand expand_as as_strided slice select narrow split split_with_sizes chunk
        unbind unsafe_split unsafe_chunk tensor_split squeeze unsqueeze detach alias empty
        empty_like empty_strided new_empty new_empty_strided resize set to _to_copy _to_cpu
        contiguous result_type is_nonzero item lift_fresh lift flatten unflatten size stride
        numel record_stream _version requires_grad retain_grad is_pinned pin_memory movedim
        moveaxis diagonal unfold view_as_real view_as_complex broadcast_tensors broadcast_to
        meshgrid positive dropout feature_dropout layer_norm group_norm instance_norm einsum
        cross_entropy_loss nll_loss nll_loss_nd _batch_norm_impl_index
        _batch_norm_impl_index_backward lstm gru rnn_tanh rnn_relu flatten_dense_tensors
        unflatten_dense_tensors type_as cpu cuda float half double long int bool
        _has_compatible_shallow_copy_type is_same_size sum_to_size _sum_to_size to_dense
        zero_grad output_nr data _nested_tensor_from_mask bce_loss tensordot outer hstack vstack
        column_stack block_diag pad layer_norm_forward adaptive_avg_pool1d max_pool1d
        multi_head_attention_forward _assert_async _shape_as_tensor is_floating_point concat
        concatenate square_ addr is_complex _conj resolve_conj resolve_neg index_put_list
        one_hot new_full new_ones mkldnn_reorder_view local_scalar _fused_sdp_choice _cast_Float
        _cast_Half cumsum_ data_ptr storage_offset sym_size sym_numel sym_stride"""
    )
)
"""Views, allocation and wrappers: they launch nothing themselves."""

_COLLECTIVE_PREFIXES = ("c10d::", "nccl:", "gloo:", "_c10d_functional::", "mpi:")
_WRAPPER_PREFIXES = ("autograd::", "torch::", "torch.", "torchrec::", "profiler::")


@lru_cache(maxsize=65536)
def parser_of(name: str) -> tuple[str, Parser] | None:
    """Family and parser of an op by its full name; None where no family knows it."""
    if name.startswith(_COLLECTIVE_PREFIXES):
        return (collective.FAMILY.name, collective.parse) if collective.kind_of(name) else None
    if name.startswith("triton_"):
        return triton.FAMILY.name, triton.compiled
    if "::" not in name or name.startswith(_WRAPPER_PREFIXES):
        return None
    return _TABLE.get(base_name(name))


def is_composite(name: str) -> bool:
    """Whether the op's work shows as other ops where the trace is complete."""
    return base_name(name) in COMPOSITE


def has_no_work(name: str) -> bool:
    """Whether the op is a view, an allocation, a wrapper or no op at all (an annotation)."""
    if name.startswith(_WRAPPER_PREFIXES) or ("::" not in name and parser_of(name) is None):
        return True
    return base_name(name) in NO_WORK


def known_ops() -> dict[str, str]:
    """Base name of every op in the tables and its family."""
    return {name: family for name, (family, _) in _TABLE.items()}
