"""One call of a host op as parsers see it, and the work that they read from it."""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from gnnperf.errors import GnnperfError
from gnnperf.graph import dtype_bytes, dtype_index

INTEGER_TYPES = frozenset(
    dtype_index(name) for name in ("int64", "int32", "int16", "int8", "uint8", "bool")
)
FLOAT32, TF32 = dtype_index("float32"), dtype_index("tf32")


class MissingShapeError(GnnperfError):
    """The trace does not hold what the op's work depends on."""


@dataclass(frozen=True)
class TensorSpec:
    """Shape, type and (where recorded) strides of a tensor."""

    shape: tuple[int, ...]
    dtype: int
    """index into DTYPES"""
    strides: tuple[int, ...] | None = None
    """in elements; None if not recorded"""

    @property
    def numel(self) -> int:
        """Number of elements; raises MissingShapeError for a size that is no number."""
        if any(size < 0 for size in self.shape):
            raise MissingShapeError("a size of the tensor is not known")
        return math.prod(self.shape)

    @property
    def nbytes(self) -> float:
        """Bytes of all elements; 4 each where the type is unknown."""
        return self.numel * (dtype_bytes(self.dtype) or 4.0)

    @property
    def contiguous(self) -> bool:
        """Whether elements lie densely in the order of the dimensions (or strides are unknown)."""
        if self.strides is None:
            return True
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= max(size, 1)
        return True

    @property
    def transposed(self) -> bool:
        """Whether the last two dimensions are swapped in memory."""
        if self.strides is None or len(self.shape) < 2:
            return False
        return self.strides[-1] != 1 and self.strides[-2] == 1


@dataclass(frozen=True)
class Call:
    """A host op: its arguments in order, each with the tensors in it and its concrete value."""

    name: str
    args: tuple[tuple[TensorSpec, ...], ...]
    values: tuple[str | None, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    assumed: list[str] = field(default_factory=list)
    """filled by the parser: what it had to assume"""

    @property
    def tensors(self) -> list[TensorSpec]:
        """Every input tensor."""
        return [t for arg in self.args for t in arg]

    def tensor(self, index: int) -> TensorSpec:
        """The tensor that argument `index` is; raises MissingShapeError."""
        if index >= len(self.args) or not self.args[index]:
            raise MissingShapeError(f"{self.name}: argument {index} is no tensor with a shape")
        found = self.args[index][0]
        if any(size < 0 for size in found.shape):
            raise MissingShapeError(f"{self.name}: argument {index} has a size that is not known")
        return found

    def has_tensor(self, index: int) -> bool:
        """Whether argument `index` holds a tensor."""
        return index < len(self.args) and bool(self.args[index])

    def value(self, index: int) -> object:
        """Concrete value of argument `index` (number, bool, list, None); None if not recorded."""
        text = self.values[index] if index < len(self.values) else None
        return parse_value(text)

    def ints(self, index: int, length: int) -> list[int] | None:
        """Argument `index` as `length` integers, a single one repeated; None if not recorded."""
        value = self.value(index)
        if isinstance(value, int) and not isinstance(value, bool):
            return [value] * length
        if isinstance(value, list | tuple) and value and all(isinstance(v, int) for v in value):
            return list(value) if len(value) == length else [value[0]] * length
        return None

    def flag(self, index: int, what: str, otherwise: bool = False) -> bool:
        """Argument `index` as a truth value; an unrecorded one is assumed, and noted."""
        value = self.value(index)
        if isinstance(value, bool | int):
            return bool(value)
        self.assume(f"{what} {otherwise}".lower())
        return otherwise

    def assume(self, what: str) -> None:
        """Note an assumption about this call."""
        self.assumed.append(what)


@dataclass(frozen=True)
class Work:
    """What one op, or one of its kernels, asks of a device: a row of an `OpBatch`."""

    family: str
    dims: tuple[float, ...]
    dtype: int
    known: bool = True


Parser = Callable[[Call], Work]


def parse_value(text: str | None) -> object:
    """A value as traces write it (`[1, 1]`, `True`, `true`, `<None>`); None if unreadable."""
    if not text or text in ("<None>", "None", "null"):
        return None
    lowered = text.replace("true", "True").replace("false", "False").replace("null", "None")
    try:
        return ast.literal_eval(lowered)
    except (ValueError, SyntaxError):
        return None


def base_name(name: str) -> str:
    """`aten::_foreach_add_` -> `_foreach_add`: no namespace, overload or in-place mark."""
    bare = name.rsplit("::", 1)[-1].split(".", 1)[0]
    return bare if bare.startswith("__") else bare.rstrip("_") or bare


def broadcast_shape(tensors: list[TensorSpec]) -> tuple[int, ...]:
    """Shape of the result of an elementwise op; raises MissingShapeError if shapes do not fit."""
    rank = max((len(t.shape) for t in tensors), default=0)
    result = [1] * rank
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape, start=rank - len(tensor.shape)):
            if size < 0 or (size != 1 and result[axis] not in (1, size)):
                raise MissingShapeError("shapes do not broadcast")
            result[axis] = size if size != 1 else result[axis]
    return tuple(result)


def compute_dtype(tensors: list[TensorSpec]) -> int:
    """Type of the first floating tensor, else of the first; raises MissingShapeError for none."""
    if not tensors:
        raise MissingShapeError("no tensor with a shape")
    floating = [t.dtype for t in tensors if t.dtype and t.dtype not in INTEGER_TYPES]
    return floating[0] if floating else tensors[0].dtype


def words(text: str) -> tuple[str, ...]:
    """The words of a table of names."""
    return tuple(text.split())
