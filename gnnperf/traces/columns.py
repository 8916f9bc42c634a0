"""From decoded Chrome events to columns, piece by piece; no event outlives its piece."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnperf.graph import LaneKind, NodeKind
from gnnperf.graph.model import NONE
from gnnperf.traces.decode import Args, Event
from gnnperf.traces.table import Interner

CATEGORIES: dict[str, str] = {
    "cpu_op": "host",
    "Operator": "host",
    "user_annotation": "host",
    "NVTX": "host",
    "python_function": "python",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "hip_runtime": "runtime",
    "xpu_runtime": "runtime",
    "xpu_driver": "runtime",
    "privateuse1_runtime": "runtime",
    "privateuse1_driver": "runtime",
    "Runtime": "runtime",
    "kernel": "device",
    "Kernel": "device",
    "gpu_memcpy": "device",
    "Memcpy": "device",
    "gpu_memset": "device",
    "Memset": "device",
    "GPU": "device",
    "cuda_sync": "sync",
    "CPU functions": "host",
    "CUDA functions": "device",
}
"""Category (of the autograd profiler: process) of an event -> how it is read. Others are counted
and left out: flows, spans, overhead, annotations repeated on the device."""

LATEST_US = 2.0**53
"""Times beyond (285 years) are no times: a float does not tell their microseconds apart."""

_ANNOTATIONS = ("user_annotation", "NVTX")
_NO_ARGS = Args()


class Columns:
    """Growing columns of one kind of event: name -> list of arrays, a piece each."""

    def __init__(self) -> None:
        self.parts: dict[str, list[NDArray[Any]]] = defaultdict(list)

    def add(self, **columns: NDArray[Any]) -> None:
        """Append one piece's columns."""
        for name, values in columns.items():
            self.parts[name].append(values)

    def get(self, name: str, dtype: type = np.int64) -> NDArray[Any]:
        """One whole column; empty if no piece had it."""
        parts = self.parts.get(name)
        return np.concatenate(parts) if parts else np.zeros(0, dtype)


def numbers(values: Sequence[Any], dtype: type = np.int64) -> NDArray[Any]:
    """[n] as numbers, whatever they were written as; NONE (NaN) for what is none of the type."""
    try:
        return np.array(values, dtype)
    except (ValueError, TypeError, OverflowError):
        return np.array([_number(v, dtype) for v in values], dtype)


def _number(value: object, dtype: type) -> float | int:
    try:
        if dtype is np.float64:
            return float(value)  # type: ignore[arg-type]
        number = int(value, 0) if isinstance(value, str) else int(value)  # type: ignore[call-overload]
    except (ValueError, TypeError, OverflowError):
        return float("nan") if dtype is np.float64 else NONE
    limits = np.iinfo(dtype)
    return number if limits.min <= number <= limits.max else NONE


def times(values: Sequence[Any]) -> NDArray[np.float64]:
    """[n] as times in microseconds; NaN for what is no number, or none before `LATEST_US`."""
    found: NDArray[np.float64] = numbers(values, np.float64)
    found[~(np.abs(found) < LATEST_US)] = np.nan
    return found


class Keys(dict[Any, int]):
    """Gives every distinct key a number, in the order of first sight."""

    def __missing__(self, key: object) -> int:
        number = self[key] = len(self)
        return number

    def codes(self, keys: Iterable[Any]) -> NDArray[np.int32]:
        """[n] the numbers of n keys."""
        return np.fromiter(map(self.__getitem__, keys), np.int32)


class Collector:
    """Sorts the events of the pieces into columns."""

    def __init__(self) -> None:
        self.strings = Interner()
        self.lanes = Keys()
        self.signatures = Keys()
        self.grids = Keys()
        self.rows = {n: Columns() for n in ("host", "runtime", "device", "sync", "module")}
        self.collectives = Columns()
        self.left_out: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()

    def take(self, events: list[Event]) -> None:
        """Add the events of one piece."""
        groups: dict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                groups[event.cat].append(event)
        self.left_out["not a duration"] += len(events) - sum(map(len, groups.values()))
        for category, found in groups.items():
            if category is None:
                by_process: dict[Any, list[Event]] = defaultdict(list)
                for event in found:
                    by_process[event.pid].append(event)
                for process, part in by_process.items():
                    self._take(str(process), part)
            else:
                self._take(category, found)

    def _take(self, category: str, events: list[Event]) -> None:
        role = CATEGORIES.get(category)
        if role is None:
            self.left_out[category] += len(events)
            return
        self.taken[category] += len(events)
        steps: dict[str, Callable[[list[Event]], None]] = {
            "host": self._host,
            "python": self._python,
            "runtime": self._runtime,
            "device": self._device,
            "sync": self._sync,
        }
        steps[role](events)

    def _times(self, events: list[Event]) -> dict[str, NDArray[Any]]:
        duration = times([e.dur for e in events])
        return {
            "name": self.strings.codes([e.name or "" for e in events]),
            "start_us": times([e.ts for e in events]),
            "duration_us": np.where(duration >= 0, duration, np.nan),
        }

    def _threads(self, events: list[Event]) -> NDArray[np.int32]:
        return self.lanes.codes([(LaneKind.THREAD, e.pid, e.tid) for e in events])

    def _host(self, events: list[Event]) -> None:
        args = [e.args or _NO_ARGS for e in events]
        base = sum(map(len, self.rows["host"].parts["name"]))
        self.rows["host"].add(
            **self._times(events),
            lane=self._threads(events),
            external_id=numbers([a.external_id for a in args]),
            record_function=numbers([a.record_function for a in args]),
            forward_thread=numbers([a.forward_thread for a in args]),
            autograd=numbers([a.autograd for a in args]),
            signature=self._signatures(args),
            annotation=np.array([e.cat in _ANNOTATIONS for e in events], np.bool_),
        )
        self._collective(args, base, "host")

    def _signatures(self, args: list[Args]) -> NDArray[np.int32]:
        keys = [
            (bytes(a.dims) or bytes(a.dims_old), bytes(a.types), bytes(a.concrete),
             bytes(a.strides))
            for a in args
        ]  # fmt: skip
        return self.signatures.codes(keys)

    def _collective(self, args: list[Args], base: int, role: str) -> None:
        found = [(i, a) for i, a in enumerate(args) if a.collective]
        if not found:
            return
        rows = [a for _, a in found]
        self.collectives.add(
            row=np.array([i + base for i, _ in found]),
            on_device=np.full(len(rows), role == "device"),
            kind=self.strings.codes([_text(a.collective) for a in rows]),
            group=self.strings.codes([_text(a.group) for a in rows]),
            dtype=self.strings.codes([_text(a.dtype) for a in rows]),
            ranks=self.strings.codes([bytes(a.ranks).decode() for a in rows]),
            sequence=numbers([a.sequence for a in rows]),
            group_size=numbers([a.group_size for a in rows], np.int32),
            input_elements=numbers([a.input_elements for a in rows]),
            output_elements=numbers([a.output_elements for a in rows]),
        )

    def _python(self, events: list[Event]) -> None:
        modules = [e for e in events if e.name and e.name.startswith("nn.Module: ")]
        self.left_out["python_function"] += len(events) - len(modules)
        if modules:
            self.rows["module"].add(**self._times(modules), lane=self._threads(modules))

    def _runtime(self, events: list[Event]) -> None:
        args = [e.args or _NO_ARGS for e in events]
        self.rows["runtime"].add(
            **self._times(events),
            lane=self._threads(events),
            correlation=numbers([a.correlation for a in args]),
            stream=numbers([a.stream for a in args]),
            event=numbers([a.event for a in args]),
            bytes=numbers([a.bytes if a.size == -1 else a.size for a in args]),
        )

    def _device(self, events: list[Event]) -> None:
        args = [e.args or _NO_ARGS for e in events]
        base = sum(map(len, self.rows["device"].parts["name"]))
        self.rows["device"].add(
            **self._times(events),
            lane=self.lanes.codes(
                [
                    (
                        LaneKind.STREAM,
                        e.pid if a.device == -1 else a.device,
                        e.tid if a.stream == -1 else a.stream,
                    )
                    for e, a in zip(events, args, strict=True)
                ]
            ),
            kind=np.array([_device_kind(e) for e in events], np.uint8),
            correlation=numbers([a.correlation for a in args]),
            external_id=numbers(
                [a.external_id_old if a.external_id == -1 else a.external_id for a in args]
            ),
            grid=self.grids.codes([bytes(a.grid) for a in args]),
            block=self.grids.codes([bytes(a.block) for a in args]),
            registers=numbers([a.registers for a in args], np.int32),
            shared_memory=numbers([a.shared_memory for a in args], np.int32),
            bytes=numbers([a.bytes for a in args]),
        )
        self._collective(args, base, "device")

    def _sync(self, events: list[Event]) -> None:
        args = [e.args or _NO_ARGS for e in events]
        self.rows["sync"].add(
            correlation=numbers([a.correlation for a in args]),
            stream=numbers([a.stream for a in args]),
            event=numbers([a.wait_event for a in args]),
            record=numbers([a.wait_record for a in args]),
            record_stream=numbers([a.wait_stream for a in args]),
        )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _device_kind(event: Event) -> int:
    if event.cat in ("kernel", "Kernel"):
        return NodeKind.KERNEL
    name = event.name or ""
    if event.cat in ("gpu_memcpy", "Memcpy", "gpu_memset", "Memset"):
        return NodeKind.COPY
    return (
        NodeKind.COPY if "memcpy" in name.lower() or "memset" in name.lower() else NodeKind.KERNEL
    )


def product(raw: bytes) -> int:
    """Product of the numbers of `[4, 8, 1]` or `"(4, 8, 1)"`; NONE if none, or past 64 bits."""
    digits = re.findall(rb"\d+", raw)
    total = math.prod(map(int, digits))
    return total if digits and total <= np.iinfo(np.int64).max else NONE
