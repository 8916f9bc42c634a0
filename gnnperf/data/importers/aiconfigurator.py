"""aiconfigurator's tables: warm kernels under CUDA graph replay, weights cycled past the L2.

Two layouts: the public repository's (`systems/data/GPU/OP/FRAMEWORK/VERSION/*_perf.parquet`,
milliseconds, each op its own columns) and one tidy table of all of them (microseconds).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
    require,
    texts,
)
from gnnperf.data.tables import F64, I64, KERNEL_TABLE, KernelTable, Names, family_dims, make_table
from gnnperf.errors import InputError
from gnnperf.graph import dtype_bytes, dtype_index

CHUNK = 250_000
TIDY = ("gpu", "framework", "version", "family", "dtype", "kernel_source", "latency_us", "split")
TIDY_SIZES = (
    *("batch", "seq", "step", "q_heads", "kv_heads", "head_dim", "window", "m", "n", "k"),
    *("hidden", "inter", "topk", "experts", "moe_tp", "moe_ep", "distribution", "variant"),
)
MLA_LATENT, MLA_HEAD = 512, 128
"""sizes of the latent attention of DeepSeek, which the batched products of `mla_bmm` belong to"""
CONV_WIDTH, MAMBA_GROUPS, MAMBA_STATE = 4, 8, 128
"""taps of the causal convolution; groups and state of mamba2, which the tables do not state"""


@dataclass(frozen=True)
class Shape:
    """Rows of one op as dimensions of a family."""

    family: str
    label: str
    dims: F64
    sizes: tuple[F64, ...]
    """what must be positive"""
    group: Names


class Columns:
    """The columns of rows of one op under the tidy table's names."""

    def __init__(self, table: Any, names: dict[str, str] | None = None) -> None:  # noqa: ANN401
        self._table, self._names = table, names or {}

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, name: str) -> F64:
        return numbers(self._table, self._names.get(name, name))

    def zeroed(self, name: str) -> F64:
        """A size whose absence means 0."""
        return np.nan_to_num(self[name])

    def text(self, name: str) -> Names:
        """A column of names."""
        return texts(self._table, self._names.get(name, name))


def _gemm(c: Columns) -> Shape:
    m, n, k = c["m"], c["n"], c["k"]
    dims = family_dims("gemm", len(c), batch=1, m=m, n=n, k=k, b_transposed=1, variant=1)
    return Shape("gemm", "gemm", dims, (m, n, k), groups("gemm", n=n, k=k))


def _attention(c: Columns, causal: bool, decode: bool = False) -> Shape:
    batch, heads, kv_heads, head = (c[n] for n in ("batch", "q_heads", "kv_heads", "head_dim"))
    seq, step, window = c["seq"], c.zeroed("step"), c.zeroed("window")
    kv_type = c.text("kv_dtype")
    kv_bytes = kv_type.lookup({n: dtype_bytes(dtype_index(n)) for n in kv_type.names}, 0.0)
    dims = family_dims(
        "attention",
        len(c),
        batch=batch,
        q_heads=heads,
        kv_heads=kv_heads,
        q_len=seq,
        kv_len=seq + step,
        head_dim=head,
        v_head_dim=head,
        causal=float(causal),
        window=window,
        flash=1,
        kv_bytes=kv_bytes,
    )
    phase = "decode" if decode else "prefill" if causal else "encoder"
    group = groups(f"attention {phase}", q_heads=heads, kv_heads=kv_heads, head_dim=head)
    return Shape("attention", "attention", dims, (batch, heads, kv_heads, seq, head), group)


def _moe(c: Columns) -> Shape:
    tokens, hidden, inter, experts = (c[n] for n in ("m", "hidden", "inter", "experts"))
    top_k, tensor, expert = c["topk"], c["moe_tp"], c["moe_ep"]
    spread, source = c.text("distribution"), c.text("kernel_source")
    skew = {n: float(n.rpartition("_")[2]) for n in spread.names if n.startswith("power_law_")}
    dims = family_dims(
        "moe",
        len(c),
        tokens=tokens,
        hidden=hidden,
        inter=inter,
        experts=experts,
        top_k=top_k,
        tensor_parallel=tensor,
        expert_parallel=expert,
        skew=spread.lookup(skew, 0.0),
        gated=source.lookup({n: 0.0 for n in source.names if "nongated" in n}, 1.0),
    )
    group = groups("moe", hidden=hidden, inter=inter, experts=experts, top_k=top_k)
    return Shape("moe", "moe", dims, (tokens, hidden, inter, experts, top_k, tensor, expert), group)


def _mla(c: Columns) -> Shape:
    heads, m = c["q_heads"], c["m"]
    up = c.text("variant").mask("mla_gen_pre")
    n, k = np.where(up, MLA_LATENT, MLA_HEAD), np.where(up, MLA_HEAD, MLA_LATENT)
    dims = family_dims("gemm", len(c), batch=heads, m=m, n=n, k=k, variant=2)
    return Shape("gemm", "bmm", dims, (heads, m), groups("mla_bmm", heads=heads, n=n, k=k))


def _quantize(c: Columns) -> Shape:
    rows, cols = c["m"], c["k"]
    numel = rows * cols
    dims = family_dims(
        "quantize", len(c), rows=rows, cols=cols, bytes_read=2 * numel, bytes_written=numel
    )
    return Shape("quantize", "quantize", dims, (rows, cols), groups("quantize", cols=cols))


def _delta_net(c: Columns) -> Shape:
    batch, seq, head, heads = (c[n] for n in ("batch", "seq", "head_dim", "kv_heads"))
    channels = (2 * c["q_heads"] + heads) * head
    state = family_dims(
        "recurrent",
        len(c),
        batch=batch,
        length=seq,
        heads=heads,
        head_dim=head,
        state_dim=head,
        kind=2,
    )
    group = groups("gated delta net", q_heads=c["q_heads"], kv_heads=heads, hidden=c["hidden"])
    return Shape("recurrent", "recurrent", state, (batch, seq, head, heads, channels), group)


def _causal_conv(c: Columns) -> Shape:
    batch, seq, head, heads = (c[n] for n in ("batch", "seq", "head_dim", "q_heads"))
    delta_net = c.zeroed("kv_heads") > 0
    channels = np.where(
        delta_net,
        (2 * heads + c.zeroed("kv_heads")) * head,
        heads * head + 2 * MAMBA_GROUPS * MAMBA_STATE,
    )
    dims = family_dims(
        "conv",
        len(c),
        batch=batch,
        in_channels=channels,
        out_channels=channels,
        in_h=1,
        in_w=seq + CONV_WIDTH - 1,
        kernel_h=1,
        kernel_w=CONV_WIDTH,
        stride_h=1,
        stride_w=1,
        dilation_h=1,
        dilation_w=1,
        groups=channels,
    )
    return Shape("conv", "conv", dims, (batch, seq, head, heads), groups("conv", channels=channels))


SHAPES: dict[str, Callable[[Columns], Shape]] = {
    "gemm": _gemm,
    "attn_context": lambda c: _attention(c, causal=True),
    "attn_encoder": lambda c: _attention(c, causal=False),
    "attn_generation": lambda c: _attention(c, causal=True, decode=True),
    "moe": _moe,
    "mla_bmm": _mla,
    "quant_scale_matrix": _quantize,
    "gdn": _delta_net,
    "mamba2": _causal_conv,
}
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
    if path.is_file():
        yield from _read_tidy(path, report)
        return
    files = public_files(path)
    tidy = path / "kernels.parquet"
    if not files and tidy.is_file():
        yield from _read_tidy(tidy, report)
    elif not files:
        raise InputError(
            "no *_perf.parquet under a folder systems/data and no kernels.parquet",
            path=path,
            remedy="give the repository's folder or the tidy table",
        )
    for file in files:
        yield from _read_public(path, file, report)


def public_files(path: Path) -> list[Path]:
    """The performance tables of the public layout below a folder."""
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
