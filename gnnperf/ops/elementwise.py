"""One output element from one element of each input: arithmetic, activations, casts, fills."""

import math

import numpy as np

from gnnperf.graph import dtype_bytes
from gnnperf.ops.base import F64, I8, Cost, Family
from gnnperf.ops.call import (
    Call,
    Parser,
    Work,
    base_name,
    broadcast_shape,
    compute_dtype,
    words,
)


def _cost(dims: F64, dtype: I8) -> Cost:
    """Bytes as given: inputs before broadcasting, since a repeated element is read once."""
    numel, read, written, flops = dims[:, :4].T
    return Cost(
        flops=numel * flops,
        bytes_read=read,
        bytes_written=written,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=numel,
    )


FAMILY = Family(
    "elementwise",
    (
        "numel",
        "bytes_read",
        "bytes_written",
        "flops_per_element",
        "inputs",
        "strided",
        "special",
        "in_place",
    ),
    _cost,
    ("numel", "bytes_read", "bytes_written"),
)


def elementwise_work(call: Call, flops: float, special: bool, outputs: int = 1) -> Work:
    """One result per broadcast position, every input read once before broadcasting.

    Strided: some input does not lie as the output does (permuted, or broadcast over elements).
    In place: the result goes into a tensor that held values before.
    """
    tensors = call.tensors
    dtype = compute_dtype(tensors)
    numel = math.prod(broadcast_shape(tensors))
    written = sum(t.nbytes for t in call.outputs) if call.outputs else 0.0
    if not written:
        comparison = base_name(call.name) in _COMPARISONS
        written = outputs * numel * (1.0 if comparison else dtype_bytes(dtype) or 4.0)
    read = sum(t.nbytes for t in tensors)
    strided = any(not t.contiguous or 1 < t.numel < numel for t in tensors)
    in_place = call.name.endswith("_") and not call.name.endswith("__")
    dims = (numel, read, written, flops, len(tensors), strided, special, in_place)
    return Work("elementwise", tuple(map(float, dims)), dtype)


def _parser(flops: float, special: bool = False) -> Parser:
    return lambda call: elementwise_work(call, flops, special)


def _dropout(call: Call) -> Work:
    """The output and a mask of one byte."""
    x = call.tensor(0)
    dims = (x.numel, x.nbytes, x.nbytes + x.numel, 10, 1, 0, 1, 0)
    return Work("elementwise", tuple(map(float, dims)), compute_dtype([x]))


def _fill(call: Call) -> Work:
    """Writes its first tensor (or what it makes) and reads nothing."""
    x = call.outputs[0] if call.outputs else call.tensor(0)
    random = base_name(call.name) in _RANDOM
    dims = (x.numel, 0, x.nbytes, 10 if random else 0, 0, 0, random, 0)
    return Work("elementwise", tuple(map(float, dims)), x.dtype)


def _loss_backward(call: Call) -> Work:
    """Gradient of a loss: as large as the prediction, which is its second tensor."""
    x = call.tensor(1)
    dims = (x.numel, x.nbytes, x.nbytes, 2, 2, 0, 0, 0)
    return Work("elementwise", tuple(map(float, dims)), compute_dtype([x]))


def _nll_backward(call: Call) -> Work:
    """Zeros everywhere but one element of each row."""
    x = call.tensor(1)
    rows = x.numel / max(x.shape[-1], 1) if x.shape else 1
    dims = (x.numel, rows * 12, x.nbytes, 1, 2, 0, 0, 0)
    return Work("elementwise", tuple(map(float, dims)), compute_dtype([x]))


_COMPARISONS = frozenset(
    words("eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_not logical_xor")
)
_RANDOM = frozenset(words("uniform normal bernoulli random exponential randperm rand randn"))
_FILLS = "fill zero zeros ones full arange zeros_like ones_like full_like new_zeros linspace eye"
_CHEAP = (
    "add sub mul div rsub neg abs sign clamp clamp_min clamp_max relu threshold_backward where "
    "maximum minimum masked_fill bitwise_and bitwise_or bitwise_not bitwise_xor __and __or "
    "__and__ __or__ floor ceil round trunc floor_divide remainder fmod leaky_relu "
    "leaky_relu_backward hardtanh hardtanh_backward tril triu lerp addcmul addcdiv reciprocal "
    "square mse_loss_backward native_dropout_backward _masked_scale hardswish hardswish_backward "
    "hardsigmoid hardsigmoid_backward relu6 glu glu_backward nan_to_num real imag conj "
    "softshrink bucketize mse_loss _amp_update_scale"
)
_SPECIAL = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt pow tanh tanh_backward sigmoid "
    "sigmoid_backward gelu gelu_backward silu silu_backward erf erfinv sin cos tan softplus "
    "softplus_backward elu elu_backward mish mish_backward atan2 log_sigmoid_forward "
    "log_sigmoid_backward logaddexp polar celu selu xlogy"
)
PARSERS: dict[str, Parser] = {
    **dict.fromkeys(words(_CHEAP), _parser(1)),
    **dict.fromkeys(_COMPARISONS, _parser(1)),
    **dict.fromkeys(words(_SPECIAL), _parser(10, True)),
    **dict.fromkeys((*words(_FILLS), *_RANDOM), _fill),
    "native_dropout": _dropout,
    "_fused_dropout": _dropout,
    "nll_loss_backward": _nll_backward,
    "nll_loss2d_backward": _nll_backward,
    "binary_cross_entropy_backward": _loss_backward,
    "binary_cross_entropy_with_logits": _parser(10, True),
    "smooth_l1_loss_backward": _loss_backward,
}
