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
from gnnperf.data.tables import KERNEL_TABLE, KernelTable, family_dims, make_table

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
        s = {n: v[rows] for n, v in sizes.items()}
        if name == "gemm":
            used = {n: s[n] for n in ("m", "n", "k")}
            dims = family_dims("gemm", len(rows), batch=1, **used, b_transposed=1, variant=1)
            group = groups("gemm", n=s["n"], k=s["k"])
        else:
            used = {n: s[n] for n in ("m", "experts", "topk", "hidden", "inter")}
            dims = family_dims(
                "moe_gemm",
                len(rows),
                tokens=s["m"],
                hidden=s["hidden"],
                inter=s["inter"],
                experts=s["experts"],
                top_k=s["topk"],
                n=2 * s["inter"],
                k=s["hidden"],
            )
            group = groups("moe", **{n: used[n] for n in ("hidden", "inter", "experts", "topk")})
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
