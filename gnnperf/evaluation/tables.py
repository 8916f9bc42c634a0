"""Scores the rows of kernel tables, in parts, device by device."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gnnperf.analytic import roofline_rule
from gnnperf.data.importers.base import ImportReport
from gnnperf.data.splits import implementations, questionable
from gnnperf.data.tables import I64, MODEL_OP, KernelTable, Names, read_tables
from gnnperf.errors import InputError
from gnnperf.evaluation.context import Context
from gnnperf.evaluation.kernel_models import How, KernelPredictor, Predicted
from gnnperf.evaluation.scores import F32, Errors, Key, relative
from gnnperf.hardware import Hardware, find_hardware
from gnnperf.ops import dim_index

_DECODE_QUERIES = 16
"""Up to so many queries a sequence, attention is decoding."""


def score_tables(parts: Iterable[KernelTable], report: ImportReport, context: Context) -> None:
    """Score every row of the parts whose device the catalogue knows; count the others."""
    if report not in context.reports:
        context.reports.append(report)
    limit, split = context.settings.limit, context.settings.split
    if split is not None:
        parts = (part.take(part.split.mask(split)) for part in parts)
    if limit is not None:
        joined = [part for part in parts if len(part)]
        table = KernelTable.join(joined) if joined else None
        parts = [] if table is None else [table.take(_drawn(len(table), limit))]
    for part in parts:
        _score_part(part, context)
        context.tell(report.source, len(part))


def own_parts(path: Path, report: ImportReport) -> Iterator[KernelTable]:
    """The parts of a table in gnnperf's format, its rows counted in the report."""
    report.files += 1
    for part in read_tables(path):
        report.rows += len(part)
        yield part


def _drawn(rows: int, limit: int) -> I64:
    if rows <= limit:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, limit, replace=False))


def _score_part(table: KernelTable, context: Context) -> None:
    for device in table.device.present():
        rows = table.take(table.device.mask(device))
        hardware = find_hardware(device)
        if hardware is None:
            context.scores.unknown_devices[device] += len(rows)
        elif context.wants(device):
            try:
                _score_device(_long_enough(rows, hardware, context), hardware, context)
            except InputError as why:  # the hardware file lacks a figure: the rest is scored
                context.scores.left_out[str(why)] += len(rows)


def _long_enough(table: KernelTable, hardware: Hardware, context: Context) -> KernelTable:
    """Without the rows that show the host of a GPU; questionable ones are counted and stay."""
    short = table.launch_included & (table.duration_us < context.settings.min_us)
    short &= hardware.kind == "gpu"
    if short.any():
        reason = f"launch included and shorter than {context.settings.min_us:g} us"
        context.scores.left_out[reason] += int(short.sum())
        table = table.take(~short)
    for reason, mask in questionable(table).items():
        if mask.any():
            context.scores.left_out[f"scored, but {reason}"] += int(mask.sum())
    return table


def _score_device(table: KernelTable, hardware: Hardware, context: Context) -> None:
    batch = table.batch()
    if not batch.known.all():
        context.scores.left_out["family or type not known"] += int((~batch.known).sum())
        table = table.take(batch.known)
        batch = table.batch()
    if not len(table):
        return
    measured = table.duration_us
    found = predict_rows(context.kernels, table, hardware)
    errors = Errors(
        model=relative(found.time_us, measured),
        covered=(found.low_us <= measured) & (measured <= found.high_us),
        analytic=_errors_of(context.analytic, table, hardware),
        rule=relative(roofline_rule(batch, hardware), measured),
        mlp=_errors_of(context.mlp, table, hardware),
        peers={name: relative(times, measured) for name, times in table.peers.items()},
    )
    columns = (table.label, table.dtype, table.origin, table.source, attention_parts(table))
    for values, rows in by_values(columns):
        label, dtype, origin, data, part = values
        context.scores.add(Key(hardware.name, label, dtype, origin, data, part), errors.take(rows))


def _errors_of(model: KernelPredictor | None, table: KernelTable, hardware: Hardware) -> F32:
    if model is None:
        return np.full(len(table), np.nan, np.float32)
    return relative(predict_rows(model, table, hardware).time_us, table.duration_us)


def predict_rows(model: KernelPredictor, table: KernelTable, hardware: Hardware) -> Predicted:
    """[n] predictions of a table's rows, all of one device, each as it was measured."""
    time, low, high = (np.empty(len(table)) for _ in range(3))
    launch = Names(table.launch_included.astype(np.int32), ("", "launch"))
    columns = (table.source, table.framework, implementations(table), launch, table.origin)
    batch = table.batch()
    for values, rows in by_values(columns):
        source, framework, kernel_source, included, origin = values
        how = How(source, framework, kernel_source, included == "launch", origin == MODEL_OP)
        found = model.predict(batch.take(rows), hardware, how)
        time[rows], low[rows], high[rows] = found.time_us, found.low_us, found.high_us
    return Predicted(time, low, high)


def by_values(columns: tuple[Names, ...]) -> list[tuple[tuple[str, ...], I64]]:
    """The distinct values of several columns, each with the rows that have them."""
    sizes = [len(c.names) for c in columns]
    keys = np.ravel_multi_index([c.codes for c in columns], sizes)
    distinct, inverse = np.unique(keys, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.cumsum(np.bincount(inverse, minlength=len(distinct)))
    result = []
    for key, rows in zip(distinct, np.split(order, ends[:-1]), strict=True):
        codes = np.unravel_index(key, sizes)
        names = tuple(c.names[int(code)] for c, code in zip(columns, codes, strict=True))
        result.append((names, rows))
    return result


def attention_parts(table: KernelTable) -> Names:
    """[n] decode or prefill for attention, "" for everything else."""
    queries = table.dims[:, dim_index("attention", "q_len")]
    keys = table.dims[:, dim_index("attention", "kv_len")]
    decode = (queries <= _DECODE_QUERIES) & (keys > queries)
    attention = table.family.mask("attention")
    return Names(np.where(attention, 1 + decode, 0).astype(np.int32), ("", "prefill", "decode"))
