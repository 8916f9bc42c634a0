"""pipeweave's tidy table: fp8 products and grouped MoE products of ten GPUs, microseconds.

How the durations were measured is not documented; they look like a profiler's, without launch.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gnnperf.data.importers.base import (
    IMPORTERS,
    MISSING,
    ImportReport,
    bad_numbers,
    catalogue_names,
    column_names,
    groups,
    numbers,
    read_columns,
    texts,
)
from gnnperf.data.tables import F64, KERNEL_TABLE, KernelTable, Names, family_dims, make_table

REQUIRED = ("gpu", "family", "kernel", "dtype", "m", "n", "k", "latency_us")
OPTIONAL = ("experts", "topk", "hidden", "inter", "suggested_split", "split")
PEERS = {"pipeweave": "pred_pipeweave_us", "pipeweave q80": "pred_pipeweave_q80_us"}


def is_tidy(path: Path) -> bool:
    """Whether a file has this table's columns."""
    return set(REQUIRED) <= set(column_names(path))


@IMPORTERS.register("pipeweave")
def read_kernels(path: Path, report: ImportReport) -> Iterator[KernelTable]:
    """The kernels of the tidy table (the file, or the folder that holds kernels.parquet).

    Raises:
        InputError: The file is missing or lacks a column.
    """
    file = path / "kernels.parquet" if path.is_dir() else path
    table = read_columns(file, REQUIRED, (*OPTIONAL, *PEERS.values()))
    report.files += 1
    family = texts(table, "family")
    sizes = {n: numbers(table, n) for n in ("m", "n", "k", "experts", "topk", "hidden", "inter")}
    time_us = numbers(table, "latency_us")
    for name in family.present():
        rows = np.flatnonzero(family.mask(name))
        if name not in ("gemm", "moe"):
            report.drop(family.mask(name), f"op {name!r} is not known", file.name)
            continue
        used, dims, group = _shape(name, {n: v[rows] for n, v in sizes.items()})
        bad = bad_numbers((time_us[rows], *used.values()))
        report.drop(bad, MISSING, file.name, rows)
        good = np.flatnonzero(~bad)
        rows = rows[good]
        report.rows += len(rows)
        raw = texts(table, "gpu").take(rows).compact()
        published = "suggested_split" if "suggested_split" in table.column_names else "split"
        yield make_table(
            time_us[rows],
            dims[good],
            peers={p: numbers(table, c)[rows] for p, c in PEERS.items()},
            raw_device=raw,
            device=raw.map(catalogue_names(raw.names)),
            family="gemm" if name == "gemm" else "moe_gemm",
            label="gemm" if name == "gemm" else "moe_gemm",
            dtype=texts(table, "dtype").take(rows).compact(),
            kernel_source=texts(table, "kernel").take(rows).compact(),
            source="pipeweave",
            launch_included=False,
            file=file.name,
            row=rows.astype(np.int64),
            split_group=group.take(good),
            split=texts(table, published).take(rows).compact(),
            origin=KERNEL_TABLE,
        )


def _shape(family: str, sizes: dict[str, F64]) -> tuple[dict[str, F64], F64, Names]:
    """The sizes that must be positive, the dimensions, the group of equal weights."""
    rows = len(sizes["m"])
    if family == "gemm":
        used = {n: sizes[n] for n in ("m", "n", "k")}
        dims = family_dims("gemm", rows, batch=1, **used, b_transposed=1, variant=1)
        return used, dims, groups("gemm", n=sizes["n"], k=sizes["k"])
    weights = {n: sizes[n] for n in ("hidden", "inter", "experts", "topk")}
    dims = family_dims(
        "moe_gemm",
        rows,
        tokens=sizes["m"],
        hidden=sizes["hidden"],
        inter=sizes["inter"],
        experts=sizes["experts"],
        top_k=sizes["topk"],
        n=2 * sizes["inter"],
        k=sizes["hidden"],
    )
    return {"m": sizes["m"], **weights}, dims, groups("moe", **weights)
