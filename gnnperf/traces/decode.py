"""Decodes Chrome trace JSON in pieces, keeping only the fields in use.

The array of events is cut at places that look like the end of one event and the start of the
next; every piece must be valid JSON by itself, and then the whole is, so a wrong cut cannot pass
unseen. Memory stays at the size of the file plus one piece.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw, Struct

from gnnperf.errors import InputError

PIECE_BYTES = 4 << 20
"""Size of a piece; a file of less is decoded at once."""

_CUT = re.compile(rb"\}(\s*),(\s*)\{")
_HEADER_FIELD = re.compile(r"`\$\.(?!traceEvents\b)(\w+)")
"""The header's field in msgspec's path of a misfit."""
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_NOT_A_NUMBER = re.compile(rb"(?<=[:,\[])\s*[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_CONTROL = bytes(32 if i < 32 else i for i in range(256))
_CONTROLS = bytes(i for i in range(32) if i not in b"\t\n\r")
_PHASE = b'"ph"'
_ATTEMPTS = 8
_HEAD_BYTES = 4096
_NOTHING = Raw(b"")

Number = int | float | str | None


class Args(Struct, gc=False, rename={
    "external_id": "External id", "external_id_old": "external id",
    "record_function": "Record function id", "registers": "registers per thread",
    "shared_memory": "shared memory", "dims": "Input Dims", "dims_old": "Input dims",
    "types": "Input type", "concrete": "Concrete Inputs", "strides": "Input Strides",
    "forward_thread": "Fwd thread id", "autograd": "Sequence number",
    "wait_event": "wait_on_cuda_event_id",
    "wait_record": "wait_on_cuda_event_record_corr_id", "wait_stream": "wait_on_stream",
    "sync_kind": "cuda_sync_kind", "collective": "Collective name", "sequence": "Seq",
    "input_elements": "In msg nelems", "output_elements": "Out msg nelems",
    "group_size": "Group size", "group": "Process Group Name", "ranks": "Process Group Ranks",
}):  # fmt: skip
    """The arguments in use, of every kind of event."""

    external_id: Number = -1
    external_id_old: Number = -1
    record_function: Number = -1
    correlation: Number = -1
    stream: Number = -1
    device: Number = -1
    grid: Raw = _NOTHING
    block: Raw = _NOTHING
    registers: Number = -1
    shared_memory: Number = -1
    bytes: Number = -1
    size: Number = -1
    dims: Raw = _NOTHING
    dims_old: Raw = _NOTHING
    types: Raw = _NOTHING
    concrete: Raw = _NOTHING
    strides: Raw = _NOTHING
    forward_thread: Number = 0
    autograd: Number = -1
    event: Number = -1
    wait_event: Number = -1
    wait_record: Number = -1
    wait_stream: Number = -1
    collective: Number = None
    sequence: Number = -1
    input_elements: Number = -1
    output_elements: Number = -1
    dtype: Number = None
    group_size: Number = -1
    group: Number = None
    ranks: Raw = _NOTHING


class Event(Struct, gc=False):
    """One event of a Chrome trace."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    ts: float | str | None = None
    dur: float | str | None = None
    pid: Number = None
    tid: Number = None
    args: Args | None = None


class Header(Struct, gc=False):
    """What a file says beside its events."""

    traceEvents: list[Event] = []  # noqa: N815
    schemaVersion: Number = None  # noqa: N815
    deviceProperties: list[dict[str, object]] | None = None  # noqa: N815
    distributedInfo: dict[str, object] | None = None  # noqa: N815
    baseTimeNanoseconds: Number = None  # noqa: N815
    cuda_driver_version: Number = None
    cuda_runtime_version: Number = None
    cupti_version: Number = None
    hip_driver_version: Number = None
    hip_runtime_version: Number = None
    roctracer_version: Number = None
    record_shapes: Number = None
    with_stack: Number = None
    profile_memory: Number = None
    WARNING: list[object] | None = None
    ERROR: list[object] | None = None

    @property
    def complaints(self) -> list[object]:
        """What the profiler logged as warnings and errors."""
        return [*(self.WARNING or []), *(self.ERROR or [])]


@dataclass
class Decoded:
    """A file as it is being decoded: its header is there once the last piece is."""

    header: Header = field(default_factory=Header)
    events: int = 0
    """events of the pieces so far"""
    repairs: int = 0
    """numbers that are none, and control characters, that were blanked"""


_EVENTS = msgspec.json.Decoder(list[Event])
_WHOLE = msgspec.json.Decoder(Header)


def pieces(data: bytes, path: str, decoded: Decoded) -> Iterator[list[Event]]:
    """The events of a file, piece by piece; fills `decoded`.

    Raises:
        InputError: The JSON is broken (truncated, interleaved) or an event has a wrong type.
    """
    try:
        yield from _pieces(data, decoded)
    except msgspec.ValidationError as why:
        raise _misfit(str(why), path, decoded.events) from why
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        tail = data.rstrip()[-1:]
        cut = tail not in (b"]", b"}") or "truncated" in str(why)
        raise InputError(
            f"broken JSON, {'truncated' if cut else 'damaged'} among its"
            f" {data.count(_PHASE)} events ({why}; {len(data)} bytes)",
            path=path,
            field="traceEvents",
            remedy="copy or record it again" + ("" if cut else "; one file per rank"),
        ) from why


def _misfit(why: str, path: str, events: int) -> InputError:
    """The error of a value of a wrong type: of the header's field, else of an event."""
    place = _HEADER_FIELD.search(why)
    if place is not None:
        return InputError(
            f"the header is not as a Chrome trace has it: {why}",
            path=path,
            field=place[1],
            remedy="record the trace again or drop that field",
        )
    return InputError(
        f"an event is not as a Chrome trace has it: {why}, counted from event {events}",
        path=path,
        field="traceEvents",
        remedy="record the trace again or drop that event",
    )


def _pieces(data: bytes, decoded: Decoded) -> Iterator[list[Event]]:
    bare = data[:_HEAD_BYTES].lstrip()[:1] == b"["
    array = None if bare else _ARRAY.search(data)
    begin = start = data.index(b"[") + 1 if bare else array.end() if array else len(data)
    while len(data) - start > PIECE_BYTES:
        piece = _first_piece(data, start)
        if piece is None:
            break
        start, events = piece
        yield events
        decoded.events += len(events)
    rest = data if start == begin else data[:begin] + data[start:]
    yield _last_piece(rest, decoded, bare=bare)


def _first_piece(data: bytes, start: int) -> tuple[int, list[Event]] | None:
    """The events up to the first usable cut after PIECE_BYTES, and where the rest starts."""
    for attempt, cut in enumerate(_CUT.finditer(data, start + PIECE_BYTES)):
        comma = cut.end(1)
        try:
            return comma + 1, _EVENTS.decode(b"[" + data[start:comma] + b"]")
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if attempt == _ATTEMPTS:
                break
    return None


def _last_piece(rest: bytes, decoded: Decoded, *, bare: bool) -> list[Event]:
    try:
        return _decode(rest, decoded, bare=bare)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        repaired, numbers = _NOT_A_NUMBER.subn(b" null", rest.translate(_CONTROL))
        controls = len(rest) - len(rest.translate(None, _CONTROLS))
        events = _decode(repaired, decoded, bare=bare)
        decoded.repairs += numbers + controls
        return events


def _decode(rest: bytes, decoded: Decoded, *, bare: bool) -> list[Event]:
    if bare:
        return _EVENTS.decode(rest)
    header = _WHOLE.decode(rest)
    events, header.traceEvents = header.traceEvents, []
    decoded.header = header
    return events
