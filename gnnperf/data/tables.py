"""Kernel tables: measured device work in columns, in memory and as parquet.

The file (format 1) is one parquet table: a dictionary-encoded text column for each `Names` field
of `KernelTable`, `dim_00` ... `dim_15` (float64, meaning by family: docs/families.md),
`launch_included` (bool), `duration_us` (float64), `row` (int64), and `peer:NAME` (float64,
microseconds, NaN for none) for every published predictor. Its schema's metadata holds
`gnnperf_kernel_table`, the number of the format.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gnnperf.errors import InputError
from gnnperf.graph import dtype_index
from gnnperf.ops import FAMILIES, MAX_DIMS, OpBatch, dim_index

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

FORMAT = 1
"""Number of the file's layout; a reader refuses a newer one."""
_MARK = b"gnnperf_kernel_table"
_PEER = "peer:"
KERNEL_TABLE, MODEL_OP = "kernel table", "model op"
"""The two origins of a row: an op timed alone, an op timed inside a model."""
TRACE = "trace"
"""Source of rows of profilers' traces; `model` names the set."""
RECORDING = "recording"
"""Source of rows of own recordings, whose unprofiled step is known; `model` names the recording."""


@dataclass(frozen=True, eq=False)
class Names:
    """A column of names as codes into the distinct ones ("" means none)."""

    codes: I32
    """[n] index into names"""
    names: tuple[str, ...]

    @staticmethod
    def of(values: Iterable[str]) -> "Names":
        """Encode a sequence of names."""
        return Names.from_arrow(pa.array(values, pa.string()))

    @staticmethod
    def constant(name: str, rows: int) -> "Names":
        """The same name in every row."""
        return Names(np.zeros(rows, np.int32), (name,))

    @staticmethod
    def from_arrow(column: Any) -> "Names":  # noqa: ANN401
        """Encode an arrow text or dictionary column; null becomes ""."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
            if isinstance(column, pa.ChunkedArray):  # combine_chunks of nothing
                column = pa.array([], pa.string())
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        names = tuple(str(n) for n in column.dictionary.to_pylist())
        codes = column.indices
        if codes.null_count:
            names = (*names, "")
            codes = codes.fill_null(len(names) - 1)
        return Names(codes.to_numpy(zero_copy_only=False).astype(np.int32), names)

    def to_arrow(self) -> Any:  # noqa: ANN401
        """The dictionary column."""
        return pa.DictionaryArray.from_arrays(pa.array(self.codes), pa.array(self.names))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        return self.names[int(self.codes[row])]

    def take(self, rows: I64 | Bool) -> "Names":
        """The given rows."""
        return Names(self.codes[rows], self.names)

    def mask(self, *names: str) -> Bool:
        """[n] whether each row has one of the names."""
        return self.lookup(dict.fromkeys(names, True), False).astype(np.bool_)

    def lookup(self, values: dict[str, Any], default: Any) -> NDArray[Any]:  # noqa: ANN401
        """[n] the value of each row's name."""
        table = np.array([values.get(n, default) for n in self.names] or [default])
        return table[self.codes]

    def map(self, values: dict[str, str]) -> "Names":
        """Rename; names that are not mentioned stay."""
        return Names(self.codes, tuple(values.get(n, n) for n in self.names)).compact()

    def present(self) -> list[str]:
        """The names that some row has, sorted."""
        return sorted({self.names[c] for c in np.unique(self.codes)})

    def compact(self) -> "Names":
        """The same column, every name once and only those in use."""
        used = self.present()
        index = {n: i for i, n in enumerate(used)}
        translate = np.array([index.get(n, 0) for n in self.names] or [0], np.int32)
        return Names(translate[self.codes], tuple(used))

    @staticmethod
    def join(parts: Sequence["Names"]) -> "Names":
        """One column after the other."""
        index: dict[str, int] = {}
        codes = []
        for part in parts:
            translate = [index.setdefault(n, len(index)) for n in part.names] or [0]
            codes.append(np.array(translate, np.int32)[part.codes])
        return Names(np.concatenate(codes) if codes else np.zeros(0, np.int32), tuple(index))


@dataclass(frozen=True, eq=False)
class KernelTable:
    """Measured pieces of device work, one a row."""

    device: Names
    """[n] the catalogue's name where it knows the device, else as the source writes it"""
    raw_device: Names
    """[n] as the source writes it"""
    family: Names
    """[n] op family"""
    label: Names
    """[n] family as `evaluate` reports it: linear, bmm, gemm, layer_norm, ..."""
    dtype: Names
    """[n] element type as the source writes it (fp8_block, bfloat16)"""
    dims: F64
    """[n, MAX_DIMS] the family's dimensions, unused ones 0"""
    layout: Names
    """[n] what is known of strides and layout, "" if nothing"""
    framework: Names
    """[n] pytorch, sglang, trtllm, vllm; "" if not stated"""
    framework_version: Names
    kernel_source: Names
    """[n] which implementation ran: flashinfer, or a kernel's name"""
    source: Names
    """[n] neusight, aiconfigurator, pipeweave, gnnperf, TRACE, RECORDING"""
    launch_included: Bool
    """[n] whether the launch gap and the call are inside the duration"""
    duration_us: F64
    """[n] measured"""
    file: Names
    """[n] provenance: file within the source"""
    row: I64
    """[n] provenance: row of that file, the first row of data is 0"""
    split_group: Names
    """[n] rows that must stay together in a split: weight shape, or model"""
    split: Names
    """[n] the split that the source publishes: train, test, dev_train, ...; "" if none"""
    origin: Names
    """[n] KERNEL_TABLE or MODEL_OP"""
    model: Names
    """[n] model that the op was timed in, "" for a kernel table"""
    peers: dict[str, F64] = field(default_factory=dict)
    """name of a published predictor -> [n] its prediction in us, NaN where there is none"""

    def __len__(self) -> int:
        return len(self.duration_us)

    def batch(self) -> OpBatch:
        """The rows as device work; a family that gnnperf lacks or a strange dtype is not known."""
        index = {name: i for i, name in enumerate(FAMILIES)}
        types = {name: dtype_index(name) for name in self.dtype.names}
        family = self.family.lookup(index, -1).astype(np.int16)
        dtype = self.dtype.lookup(types, 0).astype(np.int8)
        known = (family >= 0) & (dtype > 0)
        return OpBatch(np.where(family < 0, index["other"], family), self.dims, dtype, known)

    def take(self, rows: I64 | Bool) -> "KernelTable":
        """The given rows (indices or a mask)."""
        columns: dict[str, Any] = {}
        for column in fields(self):
            value = getattr(self, column.name)
            if column.name == "peers":
                columns["peers"] = {n: v[rows] for n, v in value.items()}
            else:
                columns[column.name] = value.take(rows) if isinstance(value, Names) else value[rows]
        return KernelTable(**columns)

    @staticmethod
    def join(parts: Sequence["KernelTable"]) -> "KernelTable":
        """One table after the other; a peer that a part lacks is NaN there."""
        columns: dict[str, Any] = {}
        for column in fields(KernelTable):
            values = [getattr(part, column.name) for part in parts]
            if column.name == "peers":
                columns["peers"] = _join_peers(parts)
            elif isinstance(values[0], Names):
                columns[column.name] = Names.join(values)
            else:
                columns[column.name] = np.concatenate(values)
        return KernelTable(**columns)


def _join_peers(parts: Sequence[KernelTable]) -> dict[str, F64]:
    names = list(dict.fromkeys(name for part in parts for name in part.peers))
    return {
        name: np.concatenate([p.peers.get(name, np.full(len(p), np.nan)) for p in parts])
        for name in names
    }


def make_table(
    duration_us: F64,
    dims: F64,
    *,
    peers: dict[str, F64],
    **columns: Any,  # noqa: ANN401
) -> KernelTable:
    """A table from columns; a plain text stands for that text in every row, none for ""."""
    rows = len(duration_us)
    full: dict[str, Any] = {"duration_us": duration_us, "dims": dims, "peers": peers}
    for column in fields(KernelTable):
        if column.name in full:
            continue
        value = columns.pop(column.name, "")
        if isinstance(value, bool):
            value = np.full(rows, value)
        full[column.name] = Names.constant(value, rows) if isinstance(value, str) else value
    return KernelTable(**full, **columns)


def family_dims(family: str, size: int, /, **values: F64 | float) -> F64:
    """[size, MAX_DIMS] dimensions by name (arrays or numbers); dimensions not given are 0."""
    dims = np.zeros((size, MAX_DIMS))
    for name, value in values.items():
        dims[:, dim_index(family, name)] = value
    return dims


_ARRAYS = ("launch_included", "duration_us", "row")
_TEXTS = tuple(f.name for f in fields(KernelTable) if f.name not in (*_ARRAYS, "dims", "peers"))
_DIMS = tuple(f"dim_{i:02d}" for i in range(MAX_DIMS))


class TableWriter:
    """Writes one parquet file from tables that come one after the other.

    Use it as a context manager. Every table must have the peers named at the start or fewer.
    """

    def __init__(self, path: str | Path, peers: Sequence[str] = ()) -> None:
        text = pa.dictionary(pa.int32(), pa.string())
        columns = [(name, text) for name in _TEXTS] + [(name, pa.float64()) for name in _DIMS]
        columns += [("launch_included", pa.bool_()), ("duration_us", pa.float64())]
        columns += [("row", pa.int64()), *((_PEER + p, pa.float64()) for p in peers)]
        self._schema = pa.schema(columns, metadata={_MARK: str(FORMAT).encode()})
        self._peers = tuple(peers)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def __enter__(self) -> "TableWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, table: KernelTable) -> None:
        """Append a table."""
        columns = [getattr(table, name).compact().to_arrow() for name in _TEXTS]
        columns += [pa.array(table.dims[:, i]) for i in range(MAX_DIMS)]
        columns += [pa.array(getattr(table, name)) for name in _ARRAYS]
        missing = np.full(len(table), np.nan)
        columns += [pa.array(table.peers.get(name, missing)) for name in self._peers]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))


def save_table(table: KernelTable, path: str | Path) -> Path:
    """Write one table as parquet; returns the path."""
    with TableWriter(path, tuple(table.peers)) as writer:
        writer.write(table)
    return Path(path)


def is_table(path: str | Path) -> bool:
    """Whether a parquet file says that it is a kernel table of gnnperf."""
    try:
        return _MARK in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def load_table(path: str | Path) -> KernelTable:
    """Read a whole kernel table.

    Raises:
        InputError: No kernel table, a newer format, or a column is missing.
    """
    parts = list(read_tables(path))
    return KernelTable.join(parts)


def read_tables(path: str | Path, rows: int = 250_000) -> Iterator[KernelTable]:
    """Read a kernel table in parts of at most `rows` rows (an empty table is one part)."""
    file = _open(path)
    names = file.schema_arrow.names
    peers = [n for n in names if n.startswith(_PEER)]
    columns = [*_TEXTS, *_DIMS, *_ARRAYS, *peers]
    missing = [n for n in columns if n not in names]
    if missing:
        raise InputError("no such column", path=path, field=missing[0], remedy="import it again")
    for name in (*_DIMS, "duration_us", *peers):
        if not pa.types.is_floating(file.schema_arrow.field(name).type):
            raise InputError("no numbers", path=path, field=name, remedy="import it again")
    if file.metadata.num_rows == 0:
        yield _from_arrow(file.read(columns), peers)
    for batch in file.iter_batches(rows, columns=columns):
        part = _from_arrow(pa.Table.from_batches([batch]), peers)
        wrong = np.flatnonzero(~((part.duration_us > 0) & np.isfinite(part.duration_us)))
        if len(wrong):
            raise InputError(
                f"{part.duration_us[wrong[0]]:g} us in row {part.row[wrong[0]]} is no duration",
                path=path,
                field="duration_us",
                remedy="leave such rows out and import it again",
            )
        yield part


def _open(path: str | Path) -> Any:  # noqa: ANN401
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as why:
        raise InputError(f"not a parquet file ({why})", path=path) from why
    mark = (file.schema_arrow.metadata or {}).get(_MARK)
    if mark is None:
        raise InputError(
            "no kernel table of gnnperf", path=path, remedy="make one with `gnnperf dataset import`"
        )
    if int(mark) > FORMAT:
        raise InputError(f"format {int(mark)} is newer than {FORMAT}", path=path)
    return file


def _from_arrow(table: Any, peers: list[str]) -> KernelTable:  # noqa: ANN401
    def numbers(name: str) -> NDArray[Any]:
        return np.asarray(table[name].to_numpy())

    dims = np.stack([numbers(n) for n in _DIMS], axis=1) if len(table) else np.zeros((0, MAX_DIMS))
    return KernelTable(
        **{name: Names.from_arrow(table[name]) for name in _TEXTS},
        dims=dims,
        launch_included=numbers("launch_included").astype(np.bool_),
        duration_us=numbers("duration_us"),
        row=numbers("row"),
        peers={n.removeprefix(_PEER): numbers(n) for n in peers},
    )
