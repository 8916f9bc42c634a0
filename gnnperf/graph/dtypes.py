"""Element types of tensors and the many names that traces give them."""

DTYPES: tuple[str, ...] = (
    "unknown",
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "float8",
    "float4",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
    "tf32",
)
"""The dtype columns hold indices into this tuple; index 0 is an unknown type.

`tf32` is float32 in memory whose products matrix units may compute in TF32 (where the device has
no TF32 it is plain float32); `float32` never is.
"""

_BYTES = (0.0, 4, 2, 2, 8, 1, 0.5, 8, 4, 2, 1, 1, 1, 8, 16, 4)

_ALIASES: dict[str, str] = {
    "float": "float32",
    "fp32": "float32",
    "double": "float64",
    "fp64": "float64",
    "half": "float16",
    "c10::half": "float16",
    "fp16": "float16",
    "c10::bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "long": "int64",
    "long int": "int64",
    "signed long": "int64",
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "char": "int8",
    "signed char": "int8",
    "byte": "uint8",
    "unsigned char": "uint8",
    "fp8": "float8",
    "fp8_block": "float8",
    "fp4": "float4",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}


def dtype_index(name: str) -> int:
    """Index into `DTYPES` of a type name as traces and tables write it; 0 where it is unknown.

    Accepts `float`, `c10::BFloat16`, `torch.float16`, `Tensor(float)`, `fp8_block` and the like.
    """
    text = name.strip().lower()
    if text.startswith("tensor(") and text.endswith(")"):
        text = text[7:-1]
    text = text.removeprefix("torch.")
    if "float8" in text:
        text = "float8"
    text = _ALIASES.get(text, text)
    return DTYPES.index(text) if text in DTYPES else 0


def dtype_bytes(index: int) -> float:
    """Bytes of one element of `DTYPES[index]`; 0 for an unknown type (half a byte for fp4)."""
    return _BYTES[index]
