"""aiconfigurator's tables: warm kernels under CUDA graph replay, weights cycled past the L2.

Two layouts: the public repository's (`systems/data/GPU/OP/FRAMEWORK/VERSION/*_perf.parquet`,
milliseconds, each op its own columns) and one tidy table of all of them (microseconds).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnperf.data.importers.aiconfigurator_shapes import SHAPES, Columns
from gnnperf.data.importers.base import (
    IMPORTERS,
    MISSING,
    ImportReport,
    bad_numbers,
    catalogue_names,
    column_names,
    numbers,
    read_columns,
    require,
    texts,
)
from gnnperf.data.tables import I64, KERNEL_TABLE, KernelTable, Names, make_table
from gnnperf.errors import InputError
from gnnperf.graph import dtype_bytes, dtype_index

CHUNK = 250_000
TIDY = ("gpu", "framework", "version", "family", "dtype", "kernel_source", "latency_us", "split")
TIDY_SIZES = (
    *("batch", "seq", "step", "q_heads", "kv_heads", "head_dim", "window", "m", "n", "k"),
    *("hidden", "inter", "topk", "experts", "moe_tp", "moe_ep", "distribution", "variant"),
)
_ATTENTION = {"batch": "batch_size", "seq": "isl", "q_heads": "num_heads", "window": "window_size"}
_ATTENTION |= {
    "kv_heads": "num_key_value_heads",
    "kv_dtype": "kv_cache_dtype",
    "dtype": "attn_dtype",
}
_MOE = {"m": "num_tokens", "hidden": "hidden_size", "inter": "inter_size", "experts": "num_experts"}
_MOE |= {"moe_tp": "moe_tp_size", "moe_ep": "moe_ep_size", "dtype": "moe_dtype"}
PUBLIC: dict[str, tuple[str, dict[str, str]]] = {
    "gemm_perf": ("gemm", {"dtype": "gemm_dtype"}),
    "context_attention_perf": ("attn_context", _ATTENTION),
    "generation_attention_perf": ("attn_generation", _ATTENTION),
    "moe_perf": ("moe", _MOE),
}
"""stem of a public file -> tidy family, tidy name -> column of that file"""
_NEEDED = {
    "gemm": ("m", "n", "k"),
    "attn_context": ("batch", "seq", "q_heads", "kv_heads", "head_dim", "step"),
    "attn_generation": ("batch", "seq", "q_heads", "kv_heads", "head_dim", "step"),
    "moe": ("m", "hidden", "inter", "topk", "experts", "moe_tp", "moe_ep", "distribution"),
}


@IMPORTERS.register("aiconfigurator")
def read_kernels(path: Path, report: ImportReport) -> Iterator[KernelTable]:
    """The kernels of a tidy table, or of a folder in the public layout, in parts.

    Raises:
        InputError: Nothing of the kind in the path, or a column is missing.
    """
    tidy = path / "kernels.parquet" if path.is_dir() else path
    if tidy.is_file():
        yield from _read_tidy(tidy, report)
        return
    files = public_files(path)
    if not files:
        raise InputError(
            "no *_perf.parquet under a folder systems/data and no kernels.parquet",
            path=path,
            remedy="give the repository's folder or the tidy table",
        )
    for file in files:
        yield from _read_public(path, file, report)


def public_files(path: Path) -> list[Path]:
    """The performance tables of the public layout below a folder that holds no tidy table."""
    if not path.is_dir() or (path / "kernels.parquet").is_file():
        return []
    return sorted(
        p for p in path.rglob("*_perf.parquet") if "data" in p.relative_to(path).parts[:-5]
    )


def is_tidy(path: Path) -> bool:
    """Whether a parquet or CSV file has the tidy table's columns."""
    return set(TIDY) - {"split"} <= set(column_names(path))


def _read_tidy(path: Path, report: ImportReport) -> Iterator[KernelTable]:
    report.files += 1
    start = 0
    for table in _tidy_parts(path):
        family = texts(table, "family")
        for name in family.present():
            rows = np.flatnonzero(family.mask(name))
            part = table.take(pa.array(rows))
            for op, keep in _by_op(name, part):
                facts = {
                    "raw_device": texts(part, "gpu").take(keep),
                    "framework": texts(part, "framework").take(keep),
                    "framework_version": texts(part, "version").take(keep),
                    "split": texts(part, "split").take(keep),
                }
                yield from _rows(
                    Columns(part.take(pa.array(keep))),
                    op,
                    facts,
                    (path.name, start + rows[keep]),
                    report,
                )
        start += len(table)


def _tidy_parts(path: Path) -> Iterator[Any]:
    if path.suffix != ".parquet":
        yield read_columns(path, TIDY[:-1], ("split", *TIDY_SIZES))
        return
    names = column_names(path)
    require(path, TIDY[:-1])
    file = pq.ParquetFile(path)
    for batch in file.iter_batches(CHUNK, columns=[n for n in (*TIDY, *TIDY_SIZES) if n in names]):
        yield pa.Table.from_batches([batch])


def _by_op(family: str, part: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """The causal convolutions that stand among the delta nets are another op."""
    if family != "gdn":
        yield family, np.arange(len(part))
        return
    source = texts(part, "kernel_source")
    conv = source.mask(*(n for n in source.names if n.startswith("causal_conv1d")))
    for op, rows in (("gdn", np.flatnonzero(~conv)), ("mamba2", np.flatnonzero(conv))):
        if len(rows):
            yield op, rows


def _read_public(root: Path, file: Path, report: ImportReport) -> Iterator[KernelTable]:
    if file.stem == "nccl_perf":  # sweeps of collectives: see read_collectives
        return
    if file.stem not in PUBLIC:
        report.notes.append(f"not read, no kernel table of a known op: {file.relative_to(root)}")
        return
    family, names = PUBLIC[file.stem]
    needed = [names.get(n, n) for n in ("dtype", *_NEEDED[family])]
    extra = [c for c in ("window_size", "kv_cache_dtype") if c not in needed]
    common = ("framework", "version", "kernel_source", "latency")
    table = read_columns(file, (*common, *needed), extra)
    report.files += 1
    gpu = file.relative_to(root).parts[-5]
    framework = texts(table, "framework")
    facts = {
        "raw_device": Names.constant(gpu, len(table)),
        "framework": framework.map({n: n.lower() for n in framework.names}),
        "framework_version": texts(table, "version"),
        "split": Names.constant("", len(table)),
    }
    place = (file.relative_to(root).as_posix(), np.arange(len(table), dtype=np.int64))
    yield from _rows(Columns(table, names), family, facts, place, report)


def _rows(
    columns: Columns,
    family: str,
    facts: dict[str, Names],
    place: tuple[str, I64],
    report: ImportReport,
) -> Iterator[KernelTable]:
    """One table of one op: shapes, bad rows counted, names and provenance."""
    file, rows = place
    if family not in SHAPES:
        report.drop(np.ones(len(columns), np.bool_), f"op {family!r} is not known", file, rows)
        return
    shape, dtype = SHAPES[family](columns), columns.text("dtype")
    time_us = columns["latency_us"]
    if np.isnan(time_us).all():
        time_us = columns["latency"] * 1e3
    for name in dtype.present():
        if not dtype_index(name):
            report.drop(dtype.mask(name), f"{family} of type {name} is not modelled", file, rows)
    known = dtype.lookup({n: dtype_index(n) > 0 for n in dtype.names}, False).astype(np.bool_)
    bad = known & bad_numbers((time_us, *shape.sizes))
    report.drop(bad, MISSING, file, rows)
    good = np.flatnonzero(known & ~bad)
    if not len(good):
        return
    report.rows += len(good)
    names = {n: v.take(good).compact() for n, v in facts.items()}
    yield make_table(
        time_us[good],
        shape.dims[good],
        peers={},
        device=names["raw_device"].map(catalogue_names(names["raw_device"].names)),
        **names,
        family=shape.family,
        label=shape.label,
        dtype=dtype.take(good).compact(),
        kernel_source=columns.text("kernel_source").take(good).compact(),
        source="aiconfigurator",
        launch_included=False,
        file=file,
        row=rows[good],
        split_group=shape.group.take(good),
        origin=KERNEL_TABLE,
    )


def read_collectives(path: Path) -> list[dict[str, str]]:
    """NCCL's sweeps of the public layout as rows: gpu, n_gpus, collective, bytes, time_us, dtype.

    Raises:
        InputError: A file lacks a column.
    """
    rows: list[dict[str, str]] = []
    for file in (f for f in public_files(path) if f.stem == "nccl_perf"):
        names = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
        table = read_columns(file, names)
        gpu = file.relative_to(path).parts[-5]
        op, dtype = texts(table, "op_name"), texts(table, "nccl_dtype")
        size = {n: dtype_bytes(dtype_index(n)) or 1.0 for n in dtype.names}
        sent = numbers(table, "message_size") * dtype.lookup(size, 1.0)
        ranks, time_us = numbers(table, "num_gpus"), numbers(table, "latency") * 1e3
        rows += [
            {
                "gpu": gpu,
                "n_gpus": f"{ranks[i]:.0f}",
                "collective": op[i],
                "bytes": f"{sent[i]:.0f}",
                "time_us": repr(float(time_us[i])),
                "dtype": dtype[i],
            }
            for i in range(len(table))
        ]
    return rows
