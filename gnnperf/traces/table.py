"""What a reader hands over: the events of one rank as columns, all steps, before they are cut."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnperf.graph import Edges, GraphMeta, Lanes, NodeKind, Tensors
from gnnperf.graph.model import F64, I32, I64, NONE, U8, Arguments


class Interner(dict[str, int]):
    """Gives every distinct text a number, in the order of first sight."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def codes(self, texts: Iterable[str]) -> I32:
        """[n] the numbers of n texts."""
        return np.fromiter(map(self.__getitem__, texts), np.int32)


@dataclass(eq=False)
class Signatures:
    """The distinct arguments of ops; many events share one (CSR, see `Arguments`)."""

    arguments: Arguments
    tensors: Tensors

    @staticmethod
    def none() -> "Signatures":
        """No signature."""
        zero, i32 = np.zeros(1, np.int64), np.zeros(0, np.int32)
        return Signatures(Arguments(zero, i32, i32, zero), no_tensors())


def no_tensors() -> Tensors:
    """A table of no tensors."""
    none = np.zeros(0, np.int64)
    return Tensors(np.zeros(0, np.int8), np.zeros(1, np.int64), none, none, none, none)


@dataclass(eq=False)
class CollectiveTable:
    """What events say of collectives (rows in any order, at most one per event)."""

    event: I64
    """[c] index of the event: the kernel itself or a host op that names the collective"""
    kind: I32
    """[c] index into strings; NONE if not recorded"""
    group: I32
    sequence: I64
    input_bytes: I64
    output_bytes: I64
    group_size: I32
    ranks: I32
    """[c] index into strings of the list of ranks as text; NONE if not recorded"""

    @staticmethod
    def none() -> "CollectiveTable":
        """Nothing said."""
        i32, i64 = np.zeros(0, np.int32), np.zeros(0, np.int64)
        return CollectiveTable(i64, i32, i32, i64, i64, i64, i32, i32)


@dataclass(eq=False)
class StepMarks:
    """Where steps start and end on the host's clock, ascending."""

    delimiter: str
    names: tuple[str, ...]
    start_us: F64
    end_us: F64


@dataclass(eq=False)
class TraceTable:
    """The events of one rank. Times are microseconds from `origin_us` of the trace's clock."""

    strings: Interner
    kind: U8
    name: I32
    lane: I32
    start_us: F64
    duration_us: F64
    correlation: I64
    """[n] id that joins a runtime call with the device work it enqueued; NONE without"""
    external_id: I64
    """[n] id of a host op (`Record function id` or `External id`); NONE without"""
    signature: I32
    """[n] row of `signatures` with the op's inputs; NONE without"""
    bytes: I64
    grid_blocks: I64
    block_threads: I32
    registers: I32
    shared_memory: I32
    event: I64
    stream: I64
    backward: NDArray[np.bool_]
    """[n] whether the event says itself that it runs in the backward pass"""
    lanes: Lanes
    signatures: Signatures
    collectives: CollectiveTable
    marks: "list[StepMarks]"
    """candidate delimiters of steps, best first"""
    module_lane: I32
    """[m] lane of a module call (`nn.Module: Linear_0`)"""
    module_name: I32
    module_start_us: F64
    module_duration_us: F64
    meta: GraphMeta
    origin_us: float = 0.0
    clock_us: float = 0.0
    """greatest time as written in the file: what its float can resolve bounds the rounding"""
    parent: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    """[n] filled by `link`: enclosing host node of the same lane"""
    op: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    launch: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    scope: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    phase: U8 = field(default_factory=lambda: np.zeros(0, np.uint8))
    output_signature: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    """[n] row of `signatures` with the op's outputs; empty where no event has outputs"""
    edges: Edges | None = None
    """dependencies between events that the trace states; then no order of lanes is assumed"""
    timed: bool = True
    """whether the times are times; else they are only the order of the events"""
    annotation: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """[n] host ops that are annotations of the user; empty where that is not recorded"""
    forward_thread: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """[n] the profiler's number (no thread id) of the thread whose forward op a host op is the
    backward of; 0 or NONE for others; empty where that is not recorded"""
    autograd: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """[n] sequence number that joins a backward op with its forward op; NONE without; or empty"""
    record_function: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """[n] record-function id of a host op; empty where none is recorded"""
    counts: dict[str, int] = field(default_factory=dict)
    """what the reader repaired or could not use, by reason"""
    taken: dict[str, int] = field(default_factory=dict)
    """events that are in the table, by their category in the file (marks of steps included)"""
    left_out: dict[str, int] = field(default_factory=dict)
    """events that are not, by category"""
    texts: list[str] = field(default_factory=list)
    """the strings in order, as far as they were needed"""

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def names(self) -> list[str]:
        """The strings in order."""
        if len(self.texts) != len(self.strings):
            self.texts = list(self.strings)
        return self.texts

    @property
    def is_op(self) -> NDArray[np.bool_]:
        """[n] host ops that are no annotations."""
        host: NDArray[np.bool_] = self.kind == NodeKind.HOST_OP
        return host & ~self.annotation if len(self.annotation) else host

    def keep(self, mask: NDArray[np.bool_]) -> "TraceTable":
        """The table without some events (only before it is linked)."""
        n = len(self)
        new = np.where(mask, np.cumsum(mask) - 1, NONE)
        columns = {
            f.name: getattr(self, f.name)[mask]
            for f in fields(self)
            if isinstance(getattr(self, f.name), np.ndarray)
            and f.name not in _OTHER_COLUMNS
            and len(getattr(self, f.name)) == n
        }
        kept = replace(self, **columns)
        said = self.collectives
        rows = mask[said.event]
        kept.collectives = CollectiveTable(
            new[said.event[rows]],
            *(getattr(said, f.name)[rows] for f in fields(said) if f.name != "event"),
        )
        return kept


_OTHER_COLUMNS = frozenset(
    ("module_lane", "module_name", "module_start_us", "module_duration_us", "launch", "scope")
)


def empty_table(n: int, strings: Interner, lanes: Lanes, meta: GraphMeta) -> TraceTable:
    """A table of n host ops of which nothing is known yet."""
    i32, f64 = np.zeros(0, np.int32), np.zeros(0, np.float64)
    unknown: dict[str, Any] = {
        name: full(n)
        for name in ("correlation", "external_id", "bytes", "grid_blocks", "event", "stream")
    }
    small: dict[str, Any] = {
        name: full(n).astype(np.int32)
        for name in ("signature", "block_threads", "registers", "shared_memory", "op", "parent")
    }
    return TraceTable(
        strings=strings,
        kind=np.zeros(n, np.uint8),
        name=np.zeros(n, np.int32),
        lane=np.zeros(n, np.int32),
        start_us=np.full(n, np.nan),
        duration_us=np.full(n, np.nan),
        backward=np.zeros(n, np.bool_),
        lanes=lanes,
        signatures=Signatures.none(),
        collectives=CollectiveTable.none(),
        marks=[],
        module_lane=i32,
        module_name=i32,
        module_start_us=f64,
        module_duration_us=f64,
        meta=meta,
        **unknown,
        **small,
    )


def full(n: int, dtype: type = np.int64) -> NDArray[np.int64]:
    """[n] filled with NONE."""
    return np.full(n, NONE, dtype)


ROUNDING_US = 0.002
"""Parents and children overlap by up to this where times have nanoseconds."""


def tolerance_us(table: TraceTable) -> float:
    """How far the times of one thread may overlap by rounding."""
    fraction = bool((table.duration_us % 1.0 != 0).any())
    if not fraction:
        return 0.0
    return max(ROUNDING_US, 2 * float(np.spacing(table.clock_us)))
