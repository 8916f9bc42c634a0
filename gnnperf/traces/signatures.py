"""The arguments of ops as recorded (shapes, types, values) to tables, once per distinct list."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from gnnperf.graph import Tensors, dtype_index
from gnnperf.graph.model import NONE, ON_HOST, UNKNOWN_DIM, Arguments
from gnnperf.traces.table import Interner, Signatures


class SignatureBuilder:
    """Collects argument lists, one row each."""

    def __init__(self, strings: Interner, *, uses_device: bool = False) -> None:
        self.strings, self.uses_device = strings, uses_device
        self.ptr, self.tensor_ptr, self.dim_ptr = [0], [0], [0]
        self.type: list[int] = []
        self.value: list[int] = []
        self.dtype: list[int] = []
        self.dims: list[int] = []
        self.strides: list[int] = []
        self.tensor_id: list[int] = []
        self.storage_id: list[int] = []

    def argument(self, type_name: str, value: str | None) -> None:
        """Start the next argument of the row; its tensors follow."""
        self.type.append(self.strings[type_name])
        self.value.append(NONE if value is None else self.strings[value])
        self.tensor_ptr.append(self.tensor_ptr[-1])

    def tensor(
        self,
        dtype: int,
        dims: Sequence[Any],
        strides: Sequence[Any] | None,
        ids: Sequence[int] = (),
    ) -> None:
        """Add a tensor to the argument just started; `ids` are tensor and storage id."""
        self.dtype.append(dtype)
        self.dims += [d if type(d) is int and d >= 0 else UNKNOWN_DIM for d in dims]
        given = strides if strides is not None and len(strides) == len(dims) else [NONE] * len(dims)
        self.strides += [s if type(s) is int else NONE for s in given]
        self.dim_ptr.append(len(self.dims))
        self.tensor_id.append(ids[0] if ids else NONE)
        self.storage_id.append(ids[1] if ids else NONE)
        self.tensor_ptr[-1] += 1

    def end_row(self) -> None:
        """The row is complete."""
        self.ptr.append(len(self.type))

    def build(self) -> Signatures:
        """The tables."""
        return Signatures(
            Arguments(
                np.array(self.ptr, np.int64),
                np.array(self.type, np.int32),
                np.array(self.value, np.int32),
                np.array(self.tensor_ptr, np.int64),
            ),
            Tensors(
                np.array(self.dtype, np.int8),
                np.array(self.dim_ptr, np.int64),
                np.array(self.dims, np.int64),
                np.array(self.strides, np.int64),
                np.array(self.tensor_id, np.int64),
                np.array(self.storage_id, np.int64),
            ),
        )


_STORAGE_ENTRY = 2
"""A tensor of an execution trace names at least its own and its storage's id."""
_SCALARS = frozenset(
    {"", "Scalar", "ScalarList", "None", "Device", "Stream", "Generator", "String"}
)


def kineto_row(builder: SignatureBuilder, raw: tuple[bytes, bytes, bytes, bytes]) -> None:
    """Add the row of one op from Kineto's `Input Dims`, `Input type`, `Concrete Inputs`, strides.

    A list of tensors nests its shapes once more and has the type `TensorList`.
    """
    dims, types, values, strides = (_list(part) for part in raw)
    for index in range(max(len(dims), len(types))):
        shape = dims[index] if index < len(dims) else None
        kind = str(types[index]) if index < len(types) else ""
        value = values[index] if index < len(values) else None
        stride = strides[index] if index < len(strides) else None
        builder.argument(kind, value if isinstance(value, str) and value else None)
        if shape is None:
            continue
        if not isinstance(shape, list):
            shape = [shape]
        if shape and isinstance(shape[0], list):
            _tensor_list(builder, shape, stride)
        elif shape or _is_tensor(kind, value):
            builder.tensor(dtype_index(kind), shape, stride if isinstance(stride, list) else None)
    builder.end_row()


def _tensor_list(builder: SignatureBuilder, shapes: list[Any], strides: object) -> None:
    for position, shape in enumerate(shapes):
        own = strides[position] if isinstance(strides, list) and position < len(strides) else None
        if isinstance(shape, list):
            builder.tensor(0, shape, own if isinstance(own, list) else None)


def _is_tensor(kind: str, value: object) -> bool:
    """Whether an argument of no dimensions is a tensor of one element."""
    return kind not in _SCALARS and kind != "TensorList" and dtype_index(kind) != 0 and not value


def _list(raw: bytes) -> list[Any]:
    if not raw:
        return []
    found = msgspec.json.decode(raw)
    return found if isinstance(found, list) else []


def execution_trace_row(
    builder: SignatureBuilder,
    values: Sequence[Any],
    shapes: Sequence[Any],
    types: Sequence[Any],
    strides: Sequence[Any] = (),
) -> None:
    """Add the arguments of one node of an execution trace; the caller ends the row.

    A tensor is `[tensor id, storage id, offset, elements of storage, bytes each, device]`.
    """
    for index, kind in enumerate(map(str, types)):
        value = values[index] if index < len(values) else None
        shape = shapes[index] if index < len(shapes) else []
        stride = strides[index] if index < len(strides) else None
        if "Tensor(" not in kind:
            builder.argument(kind, _plain(value))
            continue
        name = kind if kind.startswith("Tensor(") else "TensorList"
        builder.argument(name + (ON_HOST if builder.uses_device and _on_host(value) else ""), None)
        if kind.startswith("Tensor("):
            _identified(builder, kind, value, shape, stride)
            continue
        inner = kind[kind.index("[") + 1 : -1].split(",")
        for place, one in enumerate(value if isinstance(value, list) else []):
            _identified(
                builder,
                inner[place] if place < len(inner) else "",
                one,
                shape[place] if isinstance(shape, list) and place < len(shape) else [],
                stride[place] if isinstance(stride, list) and place < len(stride) else None,
            )


def _on_host(value: object) -> bool:
    """Whether a tensor, or every tensor of a list, says that it lies in host memory."""
    if not isinstance(value, list) or not value:
        return False
    if isinstance(value[0], list):
        return all(_on_host(one) for one in value)
    return bool(value[-1] == "cpu")


def _identified(
    builder: SignatureBuilder, kind: str, value: object, shape: object, stride: object
) -> None:
    """Add one tensor of an execution trace, unless it is undefined."""
    if "nullptr" in kind or not isinstance(value, list) or len(value) < _STORAGE_ENTRY:
        return
    ids = [v if type(v) is int else NONE for v in value[:2]]
    dims = shape if isinstance(shape, list) else []
    builder.tensor(dtype_index(kind), dims, stride if isinstance(stride, list) else None, ids)


def _plain(value: object) -> str | None:
    if value is None or value == "<None>":
        return None
    return str(value)
