"""What the name of a device kernel tells: its family, its precision, whether it only helps."""

import re
from dataclasses import dataclass
from functools import lru_cache

from gnnperf.graph import NodeKind, dtype_index
from gnnperf.ops.call import FLOAT32, TF32


@dataclass(frozen=True)
class Kernel:
    """A device node as the distribution of an op's work sees it."""

    name: str
    kind: NodeKind
    bytes: int = -1
    """of a copy; -1 if unknown"""
    blocks: int = -1
    threads: int = -1
    """of a block"""


_TINY = r"compute\w*offsets|precompute_indices|prepare_grouped"
_FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (family, re.compile(pattern, re.IGNORECASE))
    for family, pattern in (
        ("triton", r"^triton_"),
        (
            "elementwise",
            r"^void at::native::(\(anonymous namespace\)::)?\w*elementwise_kernel"
            r"(?!.*(direct_copy|bfloat16_copy|gpu_index_kernel|index_copy))",
        ),
        ("reduce", r"split_?k_?reduce|reduce_?split_?k|batched_reduce"),
        (
            "copy",
            r"nchwtonhwc|nhwctonchw|im2col|fft2d|winograd(forward|wgrad|dgrad|backward)?\w*"
            r"(tiles|data|filter|output|delta)|transpose|subtensorop|tensortransform|convert_?tensor"
            r"|castcopy|cast_kernel|packing|direct_copy|bfloat16_copy",
        ),
        ("elementwise", r"dot_do_o|convert_dq|convert_dkv|epilogue::impl|" + _TINY),
        ("attention", r"flash|fmha|attn_|attention|\bmha"),
        ("moe", r"fused_moe|moe_kernel"),
        (
            "conv",
            r"wgrad|dgrad|fprop|conv(?!ert)|winograd|igemm|implicit|gcgemm|scudnn"
            r"|cf3d|sp3asm",
        ),
        ("gemm", r"gemm|cijk_|nvjet|cutlass|xmma|gemv|\bdot_kernel|matmul|splitkreduce"),
        (
            "norm",
            r"batch_?norm|bn_(fw|bw)|layer_?norm|rms_?norm|rowwisemoments|gammabeta|group_?norm"
            r"|computeinternalgradients|computegradientfusedparams",
        ),
        ("softmax", r"softmax"),
        ("optimizer", r"multi_tensor_apply|fused_adam|_adam|adagrad|sgd_kernel|lamb_|fusedlamb"),
        ("embedding", r"embedding|compute_grad_weight|sum_and_scatter|krn_partial"),
        ("sort", r"radix|sort|topk|device_?scan|bitonic|unique|histogram|scan_"),
        ("gather", r"index|gather|scatter|catarray|take_|nll_loss"),
        ("pool", r"pool|upsample|interp"),
        ("recurrent", r"rnn|lstm|gru_|mamba|selective_scan|ssd_"),
        ("quantize", r"quant"),
        ("reduce", r"reduce"),
        (
            "elementwise",
            r"elementwise|copy|fill|dropout|distribution|arange|pointwise|act_and_mul|activation"
            r"|where|loss|adaptive|triu|tril|clamp|silu|gelu|rotary",
        ),
    )
)
_TF32 = re.compile(r"tf32|s1688|_s884|xf32", re.IGNORECASE)
_PLAIN_FLOAT32 = re.compile(
    r"(ampere|sm8\d|sm90|cutlass_80|cutlass_90).*(sgemm|scudnn|f32f32_f32f32|simt)"
    r"|cutlass.*simt_sgemm|gcgemm|fft2d|winograd",
    re.IGNORECASE,
)
_TINY_KERNEL = re.compile(_TINY, re.IGNORECASE)
_TYPES = (
    (re.compile(r"bfloat16|bf16", re.IGNORECASE), "bfloat16"),
    (re.compile(r"half|f16|fp16|hgemm", re.IGNORECASE), "float16"),
    (re.compile(r"double|dgemm|f64", re.IGNORECASE), "float64"),
    (re.compile(r"float|sgemm|f32", re.IGNORECASE), "float32"),
    (re.compile(r"\blong\b|int64"), "int64"),
    (re.compile(r"\bint\b|int32"), "int32"),
)


@lru_cache(maxsize=65536)
def family_of_kernel(name: str) -> str:
    """Family that a kernel's name points to; `other` where it points to none."""
    for family, pattern in _FAMILIES:
        if pattern.search(name):
            return family
    return "other"


@lru_cache(maxsize=65536)
def dtype_of_kernel(name: str) -> int:
    """Element type that a kernel's name points to; 0 where it points to none."""
    if _TF32.search(name):
        return TF32
    return next((dtype_index(kind) for pattern, kind in _TYPES if pattern.search(name)), 0)


def refine_dtype(dtype: int, name: str) -> int:
    """float32 or tf32 of a product, as the kernel that was run tells; else as it was.

    Only kernels of devices that have TF32 can tell: on an older one a product that would be
    allowed to use it cannot.
    """
    if dtype not in (FLOAT32, TF32):
        return dtype
    if _TF32.search(name):
        return TF32
    return FLOAT32 if _PLAIN_FLOAT32.search(name) else dtype


def gradient_of_kernel(name: str) -> int:
    """Direction of a convolution's backward kernel: 1 of input, 2 of weight, 0 not told."""
    text = name.lower()
    if "dgrad" in text or "bwd_data" in text or "igemm_bwd" in text or "bwddata" in text:
        return 1
    if "wgrad" in text or "igemm_wrw" in text or "bwdwrw" in text or "bwd_weight" in text:
        return 2
    return 0


def computes_addresses(name: str) -> bool:
    """Whether a helper kernel only prepares indices or pointers and moves next to nothing."""
    return _TINY_KERNEL.search(name) is not None
