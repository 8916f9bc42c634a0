"""Traces of a few events, written by hand."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Event = dict[str, Any]
Value = Any
"""Whatever JSON can hold: the tests write wrong types on purpose."""

SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[4] / "shared"))


def event(cat: str, name: str, ts: Value, dur: Value, tid: Value = 1, **args: Value) -> Event:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 100,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": {key.replace("_", " "): value for key, value in args.items()},
    }


def op(name: str, ts: Value, dur: Value, tid: Value = 1, **args: Value) -> Event:
    return event("cpu_op", name, ts, dur, tid, **args)


def call(
    name: str, ts: Value, dur: Value, correlation: Value, tid: Value = 1, **args: Value
) -> Event:
    return event("cuda_runtime", name, ts, dur, tid, correlation=correlation, **args)


def kernel(
    name: str, ts: Value, dur: Value, correlation: Value, stream: Value = 7, **args: Value
) -> Event:
    given = {"device": 0, "stream": stream, "correlation": correlation, **args}
    return event("kernel", name, ts, dur, stream, **given)


def step(number: int, ts: Value, dur: Value) -> Event:
    return event("user_annotation", f"ProfilerStep#{number}", ts, dur)


def one_op() -> list[Event]:
    """An op that launches a kernel."""
    return [
        op("aten::mm", 10, 20, Input_Dims=[[4, 8], [8, 2]], Input_type=["float", "float"]),
        call("cudaLaunchKernel", 15, 5, 1),
        kernel("sgemm", 40, 7, 1, grid=[2, 3, 1], block=[64, 1, 1]),
    ]


class Tiny:
    """What the tests build traces from."""

    op = staticmethod(op)
    call = staticmethod(call)
    kernel = staticmethod(kernel)
    step = staticmethod(step)
    event = staticmethod(event)
    one_op = staticmethod(one_op)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, events: list[Event], name: str = "trace.json", **header: Value) -> Path:
        document = {"schemaVersion": 1, **header, "traceEvents": events}
        return self.text(json.dumps(document), name)

    def text(self, text: str | bytes, name: str = "trace.json") -> Path:
        path = self.folder / name
        data = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(tmp_path)


@pytest.fixture
def real() -> Callable[[str], Path]:
    """The path of a real trace, or a skip."""

    def find(name: str) -> Path:
        path = SHARED / "data" / "traces" / name
        if not path.exists():
            pytest.skip(f"no real trace at {path} (set GNNPERF_SHARED)")
        return path

    return find
