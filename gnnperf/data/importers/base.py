"""What every importer needs: strict columns, counted bad rows, device names, groups of shapes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from gnnperf.data.tables import F64, I64, Bool, KernelTable, Names
from gnnperf.errors import InputError
from gnnperf.hardware import find_hardware
from gnnperf.registry import Registry


@dataclass
class Fault:
    """Rows that were left out for one reason."""

    count: int
    first: str
    """where the first one stands: file:row"""


@dataclass
class ImportReport:
    """What an import read and what it left out."""

    source: str
    what: str = "rows"
    """what is counted: rows, models"""
    files: int = 0
    rows: int = 0
    faults: dict[str, Fault] = field(default_factory=dict)
    """reason -> rows left out"""
    notes: list[str] = field(default_factory=list)

    def drop(self, bad: Bool, reason: str, file: str, rows: I64 | None = None) -> None:
        """Count rows of a file that are bad for a reason (`rows`: their numbers in the file)."""
        count = int(bad.sum())
        if not count:
            return
        if reason in self.faults:
            self.faults[reason].count += count
        else:
            first = int(np.argmax(bad))
            place = first if rows is None else int(rows[first])
            self.faults[reason] = Fault(count, f"{file}:{place}")

    def lines(self) -> list[str]:
        """One line for the rows read, one for each fault and each note."""
        lines = [f"{self.source}: {self.rows:,} {self.what} from {self.files} files"]
        lines += [
            f"left out {fault.count:,} {self.what}: {reason} (first: {fault.first})"
            for reason, fault in self.faults.items()
        ]
        return lines + self.notes


Importer = Callable[[Path, ImportReport], Iterator[KernelTable]]
"""Reads a folder or file of one public layout, in parts; counts what it leaves out."""

MISSING = "a size or the latency is missing or not positive"
IMPORTERS: Registry[Importer] = Registry("importer")


def read_columns(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> Any:  # noqa: ANN401
    """An arrow table with the columns asked for (optional ones where the file has them).

    Numbers of a CSV file stay text: `numbers` converts them and finds the bad ones.

    Raises:
        InputError: The file is missing, cannot be parsed, or lacks a required column.
    """
    names = require(path, required)
    wanted = [n for n in (*required, *optional) if n in names]
    try:
        if path.suffix == ".parquet":
            return pq.read_table(path, columns=wanted)
        types = dict.fromkeys(wanted, pa.string())
        return pa_csv.read_csv(
            path,
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                include_columns=wanted, column_types=types, strings_can_be_null=True
            ),
        )
    except (OSError, pa.ArrowException) as why:
        raise InputError(f"cannot be read ({_first_line(why)})", path=path) from why


def require(path: Path, columns: Sequence[str]) -> list[str]:
    """The columns of a file; raises InputError if one of `columns` is not among them."""
    names = column_names(path)
    missing = [n for n in columns if n not in names]
    if missing:
        raise InputError(
            f"no such column (columns: {', '.join(names)})",
            path=path,
            field=missing[0],
            remedy="the layout has changed: check the file or the importer",
        )
    return names


def column_names(path: Path) -> list[str]:
    """The columns of a CSV (also .gz) or parquet file; raises InputError."""
    if not path.is_file():
        raise InputError("no such file", path=path, remedy="check the path")
    try:
        if path.suffix == ".parquet":
            return [str(n) for n in pq.read_schema(path).names]
        with pa_csv.open_csv(path) as reader:
            return [str(n) for n in reader.schema.names]
    except (OSError, pa.ArrowException) as why:
        raise InputError(f"not a table ({_first_line(why)})", path=path) from why


def _first_line(why: Exception) -> str:
    return (str(why).splitlines() or ["empty"])[0][:120]


def numbers(table: Any, name: str) -> F64:  # noqa: ANN401
    """[n] a column as float64; null and what is no number become NaN."""
    column = table[name].combine_chunks() if name in table.column_names else None
    if column is None:
        return np.full(len(table), np.nan)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        try:
            column = pc.cast(column, pa.float64())
        except pa.ArrowException:
            return np.array([_number(v) for v in column.to_pylist()])
    result: F64 = np.asarray(column.cast(pa.float64()).fill_null(np.nan).to_numpy(False))
    return result


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def texts(table: Any, name: str) -> Names:  # noqa: ANN401
    """[n] a column of names; "" where it is null or the file lacks it."""
    if name not in table.column_names:
        return Names.constant("", len(table))
    return Names.from_arrow(table[name])


def bad_numbers(columns: Iterable[F64]) -> Bool:
    """[n] rows where some column is missing or not positive."""
    stacked = np.stack(list(columns))
    bad: Bool = ~np.all(np.isfinite(stacked) & (stacked > 0), axis=0)
    return bad


def catalogue_names(raw: Iterable[str]) -> dict[str, str]:
    """Name in a source -> name in the catalogue; devices that the catalogue lacks are left out."""
    found = {name: find_hardware(name) for name in raw}
    return {name: device.name for name, device in found.items() if device is not None}


def groups(prefix: str, **dims: F64) -> Names:
    """[n] name of each row's group of equal dimensions: `gemm n=4096 k=1024`."""
    keys = np.stack([np.asarray(v, np.float64) for v in dims.values()], axis=1)
    distinct, codes = np.unique(keys, axis=0, return_inverse=True)
    names = tuple(
        " ".join([prefix, *(f"{n}={v:.6g}" for n, v in zip(dims, row, strict=True))])
        for row in distinct
    )
    return Names(codes.astype(np.int32).reshape(-1), names)
