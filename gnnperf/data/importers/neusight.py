"""NeuSight's public layout: kernel tables (`data/dataset*/**.csv`, fp32, forward, milliseconds).

Its batched product is (B, M, N) x (B, N, K): N is the reduction dimension. Times are CUDA events
around an eager call, so that the launch gap lies inside. Labelled models: see neusight_models.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.data.importers.base import (
    IMPORTERS,
    MISSING,
    ImportReport,
    bad_numbers,
    catalogue_names,
    groups,
    numbers,
    read_columns,
    texts,
)
from gnnperf.data.tables import F64, I64, KERNEL_TABLE, KernelTable, Names, family_dims, make_table
from gnnperf.errors import InputError

ELEMENT_BYTES = 4.0
LABELS = ("linear", "bmm", "conv", "elementwise", "softmax", "layer_norm")
UNARY = frozenset(("addu", "mulu", "divu", "powu", "gelu", "relu", "tanh"))
BINARY = frozenset(("add", "mul", "div", "pow"))
SPECIAL = frozenset(("pow", "gelu", "tanh"))
"""ops whose kernel computes a transcendental function"""


def find_root(path: Path) -> Path:
    """The folder that holds `data` and `label`: the one given or one below it.

    Raises:
        InputError: There is none.
    """
    for root in (path, path / "scripts" / "asplos", *sorted(path.glob("*/scripts/asplos"))):
        if kernel_files(root) or (root / "label").is_dir():
            return root
    raise InputError(
        "no data/dataset*/ with tables and no label/ in this folder",
        path=path,
        remedy="give the folder that holds NeuSight's scripts/asplos",
    )


def kernel_files(root: Path) -> list[Path]:
    """The CSV files of the kernel tables."""
    return sorted(root.glob("data/dataset*/**/*.csv"))


@IMPORTERS.register("neusight")
def read_kernels(path: Path, report: ImportReport) -> Iterator[KernelTable]:
    """The kernel tables, a part for each file and op; rows that stand in two files are read once.

    Raises:
        InputError: No such folder or file, or a column is missing.
    """
    root = find_root(path)
    seen: dict[str, set[bytes]] = {}
    configs = {p.stem for p in root.glob("data/**/device_configs/*.json")}
    lacking: set[str] = set()
    for file in kernel_files(root):
        report.files += 1
        for op, part in _read_file(root, file, report):
            fresh = _first_seen(op, part, seen, report)
            lacking |= {d for d in fresh.raw_device.present() if d.replace(" ", "_") not in configs}
            if len(fresh):
                report.rows += len(fresh)
                yield fresh
    if lacking and configs:
        report.notes.append(
            f"no device config in data/device_configs: {', '.join(sorted(lacking))}"
        )


def _read_file(root: Path, file: Path, report: ImportReport) -> Iterator[tuple[str, KernelTable]]:
    sizes = ("B", "M", "N", "K", "H", "Input_Channel", "Output_Channel", "Kernel_Szie")
    table = read_columns(
        file,
        ("OPName", "Latency", "Device"),
        ("Torch Version", *sizes, "Kernel_Size", "Input_Size", "Stride", "Padding"),
    )
    name = file.relative_to(root).as_posix()
    op, device, version = (texts(table, n) for n in ("OPName", "Device", "Torch Version"))
    latency_us = numbers(table, "Latency") * 1e3
    found = re.search(r"/p(\d[^/]*)/", f"/{name}")
    for label in op.present():
        rows = np.flatnonzero(op.mask(label))
        shape = _SHAPES.get(_kind(label))
        if shape is None:
            report.drop(op.mask(label), f"op {label!r} is not known", name)
            continue
        part = shape(_Columns(table, rows, file), label)
        bad = bad_numbers((latency_us[rows], *part.sizes)) | device.take(rows).mask("")
        report.drop(bad, MISSING, name, rows)
        good = ~bad
        rows = rows[good]
        versions = version.take(rows)
        yield (
            label,
            make_table(
                latency_us[rows],
                part.dims[good],
                peers={},
                **_devices(device.take(rows)),
                family=part.family,
                label=part.label,
                dtype="float32",
                framework="pytorch",
                framework_version=found[1] if found else _strip(versions),
                kernel_source="eager",
                source="neusight",
                launch_included=True,
                file=name,
                row=rows.astype(np.int64),
                split_group=part.group.take(good),
                split="test" if "/test/" in f"/{name}" else "train",
                origin=KERNEL_TABLE,
            ),
        )


def _strip(versions: Names) -> Names:
    return replace(versions, names=tuple(n.removeprefix("p") for n in versions.names))


def _devices(raw: Names) -> dict[str, Names]:
    raw = raw.compact()
    return {"raw_device": raw, "device": raw.map(catalogue_names(raw.names))}


def _first_seen(
    op: str, part: KernelTable, seen: dict[str, set[bytes]], report: ImportReport
) -> KernelTable:
    """Without the rows that an earlier file holds too (merged tables stand beside their parts)."""
    if not len(part):
        return part
    values = np.column_stack([part.duration_us, part.dims])
    kept = np.ones(len(part), np.bool_)
    for device in part.raw_device.present():
        known = seen.setdefault(f"{device}/{op}/{part.split[0]}", set())
        before = len(known)
        rows = np.flatnonzero(part.raw_device.mask(device))
        keys = [values[r].tobytes() for r in rows]
        if before:
            kept[rows] = [k not in known for k in keys]
        known.update(keys)
    report.drop(~kept, "the row stands in an earlier file too", part.file[0], part.row)
    return part if kept.all() else part.take(kept)


class _Columns:
    """The size columns of some rows of a file."""

    def __init__(self, table: Any, rows: I64, file: Path) -> None:  # noqa: ANN401
        self._table, self._rows, self._file = table, rows, file

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> F64:
        if name not in self._table.column_names:
            raise InputError("no such column", path=self._file, field=name)
        return numbers(self._table, name)[self._rows]

    def __contains__(self, name: str) -> bool:
        return name in self._table.column_names


class _Part:
    """The rows of one op of a file as dimensions of a family."""

    def __init__(self, label: str, family: str, dims: F64, sizes: list[F64], group: Names) -> None:
        self.label, self.family, self.dims, self.sizes, self.group = (
            label,
            family,
            dims,
            sizes,
            group,
        )


def _kind(op: str) -> str:
    return "vector" if op in UNARY | BINARY else op


def _bmm(columns: _Columns, op: str) -> _Part:
    b, m, n, k = (columns[c] for c in "BMNK")
    dims = family_dims("gemm", len(columns), batch=b, m=m, n=k, k=n, variant=2)
    return _Part("bmm", "gemm", dims, [b, m, n, k], groups("bmm", m=m, n=k, k=n))


def _linear(columns: _Columns, op: str) -> _Part:
    b, m, n, k = (columns[c] for c in "BMNK")
    dims = family_dims(
        "gemm", len(columns), batch=1, m=b * m, n=k, k=n, bias=1, b_transposed=1, variant=1
    )
    return _Part("linear", "gemm", dims, [b, m, n, k], groups("linear", n=k, k=n))


def _conv(columns: _Columns, op: str) -> _Part:
    batch, channels, out = (columns[c] for c in ("B", "Input_Channel", "Output_Channel"))
    kernel = columns["Kernel_Size" if "Kernel_Size" in columns else "Kernel_Szie"]
    size, stride, padding = (columns[c] for c in ("Input_Size", "Stride", "Padding"))
    dims = family_dims(
        "conv",
        len(columns),
        batch=batch,
        in_channels=channels,
        out_channels=out,
        in_h=size,
        in_w=size,
        kernel_h=kernel,
        kernel_w=kernel,
        stride_h=stride,
        stride_w=stride,
        pad_h=padding,
        pad_w=padding,
        dilation_h=1,
        dilation_w=1,
        groups=1,
    )
    sizes = [batch, channels, out, kernel, size, stride, padding + 1]
    group = groups("conv", in_channels=channels, out_channels=out, kernel=kernel)
    return _Part("conv", "conv", dims, sizes, group)


def _layer_norm(columns: _Columns, op: str) -> _Part:
    rows, cols = columns["B"], columns["H"]
    dims = family_dims("norm", len(columns), rows=rows, cols=cols, kind=0, affine=1)
    return _Part("layer_norm", "norm", dims, [rows, cols], groups("layer_norm", cols=cols))


def _softmax(columns: _Columns, op: str) -> _Part:
    rows, cols = columns["B"], columns["H"]
    dims = family_dims("softmax", len(columns), rows=rows, cols=cols)
    return _Part("softmax", "softmax", dims, [rows, cols], groups("softmax", cols=cols))


def _vector(columns: _Columns, op: str) -> _Part:
    rows, cols = columns["B"], columns["H"]
    numel, inputs = rows * cols, 2 if op in BINARY else 1
    dims = elementwise_dims(numel, numel * inputs * ELEMENT_BYTES, inputs, op in SPECIAL)
    return _Part("elementwise", "elementwise", dims, [rows, cols], groups(op, cols=cols))


def elementwise_dims(numel: F64, bytes_read: F64, inputs: float, special: bool) -> F64:
    """[n, MAX_DIMS] an op that writes one fp32 number per element."""
    return family_dims(
        "elementwise",
        len(numel),
        numel=numel,
        bytes_read=bytes_read,
        bytes_written=numel * ELEMENT_BYTES,
        flops_per_element=10 if special else 1,
        inputs=inputs,
        special=float(special),
    )


_SHAPES: dict[str, Callable[[_Columns, str], _Part]] = {
    "bmm": _bmm,
    "linear": _linear,
    "conv": _conv,
    "ln": _layer_norm,
    "softmax": _softmax,
    "vector": _vector,
}
