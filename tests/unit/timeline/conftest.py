"""Judges of the timeline: they share no code and no idea with what they judge.

A random schedule's times by an event simulator; a host program's trace by a machine that runs it.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from gnnperf.graph import (
    Arguments,
    Collectives,
    Edges,
    ExecutionGraph,
    GraphMeta,
    LaneKind,
    Lanes,
    NodeKind,
    Nodes,
    Tensors,
)
from gnnperf.graph.model import NONE
from gnnperf.timeline.schedule import Link, Links, Schedule

Simulate = Callable[[Schedule], tuple[list[float], list[float]]]
MakeSchedule = Callable[[int], Schedule]


def simulate(schedule: Schedule) -> tuple[list[float], list[float]]:
    """Start and end of every node: events fire in order of time from a heap."""
    n = schedule.num_nodes
    duration, gap = schedule.duration_us.tolist(), schedule.gap_us.tolist()
    after: dict[tuple[str, int], list[tuple[str, int, float]]] = {}
    missing: dict[tuple[str, int], int] = {}
    for i in range(n):
        missing["start", i] = 0
        missing["end", i] = 1
        after.setdefault(("start", i), []).append(("end", i, duration[i]))
    bounds = schedule.lane_ptr.tolist()
    for begin, end in itertools.pairwise(bounds):
        for i in range(begin + 1, end):
            after.setdefault(("end", i - 1), []).append(("start", i, gap[i]))
            missing["start", i] += 1
    links = schedule.links
    for row in range(len(links)):
        kind = Link(int(links.kind[row]))
        first = "start" if kind in (Link.START_START, Link.START_END) else "end"
        second = "end" if kind in (Link.END_END, Link.START_END) else "start"
        target = (second, int(links.dst[row]))
        after.setdefault((first, int(links.src[row])), []).append(
            (*target, float(links.lag_us[row]))
        )
        missing[target] += 1
    best = dict.fromkeys(missing, float("-inf"))
    for begin, end in itertools.pairwise(bounds):
        if begin < end:
            best["start", begin] = 0.0
    heap = [(max(best[e], 0.0), e) for e, count in missing.items() if count == 0]
    heapq.heapify(heap)
    fired: dict[tuple[str, int], float] = {}
    while heap:
        _, event = heapq.heappop(heap)
        fired[event] = best[event]
        for kind_name, node, lag in after.get(event, []):
            target = (kind_name, node)
            best[target] = max(best[target], best[event] + lag)
            missing[target] -= 1
            if missing[target] == 0:
                heapq.heappush(heap, (best[target], target))
    assert len(fired) == 2 * n, "circle"
    return [fired["start", i] for i in range(n)], [fired["end", i] for i in range(n)]


def random_schedule(seed: int, most: int = 40) -> Schedule:
    """Lanes of any length and edges of all kinds that point forward in a random order."""
    rng = np.random.default_rng(seed)
    lanes = int(rng.integers(1, 6))
    sizes = rng.integers(0, most // lanes + 2, lanes)
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(ptr[-1])
    duration = np.round(rng.exponential(5.0, n), 3) * (rng.random(n) < 0.8)
    gap = np.round(rng.exponential(1.0, n), 3) * (rng.random(n) < 0.5)
    rank = rng.random(n)
    for begin, end in itertools.pairwise(ptr):
        rank[begin:end].sort()
    parts = []
    for _ in range(int(rng.integers(0, 2 * n + 1)) if n > 1 else 0):
        a, b = rng.choice(n, 2, replace=False)
        src, dst = (a, b) if rank[a] < rank[b] else (b, a)
        kind = Link(int(rng.integers(0, 4)))
        parts.append(Links.of([src], [dst], kind, float(np.round(rng.normal(1.0, 2.0), 3))))
    return Schedule(ptr, duration, gap, Links.join(parts))


@pytest.fixture(scope="session")
def brute_force() -> Simulate:
    return simulate


@pytest.fixture(scope="session")
def make_schedule() -> MakeSchedule:
    return random_schedule


@dataclass(frozen=True)
class Instruction:
    """One thing that a host program does."""

    what: str
    """gap, launch, sync, item (a pageable copy to the host), hold (StreamWaitEvent)"""
    us: float = 0.0
    """host time of a gap, device time of a launch or an item"""
    stream: int = 7
    kind: NodeKind = NodeKind.KERNEL


Program = list[Instruction]
LATENCY, PAUSE, CALL, SYNC, SYNC_RETURN, ITEM_START, ITEM_RETURN = (
    2.0,
    1.2,
    8.0,
    4.0,
    5.0,
    10.0,
    10.0,
)


class Machine:
    """Runs programs one instruction after the other: what a trace would record of them."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.time = 0.0
        self.free: dict[int, float] = {}
        self.held: dict[int, float] = {}
        self.calls: list[tuple[str, float, float, int]] = []
        self.work: list[tuple[NodeKind, str, int, float, float, int]] = []

    def step(self, program: Program) -> float:
        """Run the program once; returns the start of its first work."""
        self.calls, self.work = [], []
        for each in program:
            getattr(self, each.what)(each)
        return self.work[0][3] if self.work else np.nan

    def gap(self, each: Instruction) -> None:
        self.time += each.us

    def launch(self, each: Instruction) -> None:
        self._call("cudaLaunchKernel", self.time + CALL, each.stream)
        self._enqueue(each, "kernel", self.time + LATENCY)

    def sync(self, each: Instruction) -> None:
        done = self.free.get(each.stream, -np.inf)
        self._call("cudaStreamSynchronize", max(self.time + SYNC, done + SYNC_RETURN), each.stream)

    def item(self, each: Instruction) -> None:
        begin = self.time
        self._enqueue(each, "Memcpy DtoH (Device -> Pageable)", begin + ITEM_START)
        done = self.free[each.stream] + ITEM_RETURN
        self._call("cudaMemcpyAsync", max(begin + CALL, done), each.stream)

    def hold(self, each: Instruction) -> None:
        """The next work of the stream waits for what was issued on all others."""
        self._call("cudaStreamWaitEvent", self.time + 1.0, each.stream)
        others = [t for s, t in self.free.items() if s != each.stream]
        self.held[each.stream] = max(others, default=-np.inf)

    def _call(self, name: str, end: float, stream: int) -> None:
        self.calls.append((name, self.time, end, stream))
        self.time = end

    def _enqueue(self, each: Instruction, name: str, ready: float) -> None:
        start = max(
            ready,
            self.free.get(each.stream, -np.inf) + PAUSE,
            self.held.pop(each.stream, -np.inf) + PAUSE,
        )
        end = start + each.us * self.scale
        self.free[each.stream] = end
        call = len(self.calls) - (each.what == "launch")
        kind = NodeKind.COPY if each.what == "item" else each.kind
        self.work.append((kind, name, each.stream, start, end, call))


def period_of(program: Program, scale: float = 1.0, steps: int = 14) -> float:
    """Time from one step to the next on the slowest stream, after some steps."""
    machine = Machine(scale)
    begins: list[dict[int, float]] = []
    for _ in range(steps):
        machine.step(program)
        begins.append({w[2]: w[3] for w in machine.work[::-1]})
    return max(begins[-1][s] - begins[-2][s] for s in begins[-1])


def record(program: Program, steps: int = 8, rank: int = 0) -> ExecutionGraph:
    """The graph of one step of a program, as a trace of it would give it."""
    machine = Machine()
    for _ in range(steps):
        begin = machine.time
        first = machine.step(program)
        calls, work, end = machine.calls, machine.work, machine.time
    period = machine.step(program) - first
    return graph_of(calls, work, begin, end - begin, period, rank)


def graph_of(
    calls: list[tuple[str, float, float, int]],
    work: list[tuple[NodeKind, str, int, float, float, int]],
    begin: float,
    host_step: float,
    period: float,
    rank: int = 0,
) -> ExecutionGraph:
    """A graph of calls (name, start, end, stream) and works (kind, name, stream, times, call)."""
    n = len(calls) + len(work)
    names = sorted({c[0] for c in calls} | {w[1] for w in work})
    streams = sorted({w[2] for w in work})
    none, wide = np.full(n, NONE, np.int32), np.full(n, NONE, np.int64)
    times = np.array([c[1:3] for c in calls] + [w[3:5] for w in work], np.float64).reshape(n, 2)
    nodes = Nodes(
        kind=np.array([NodeKind.RUNTIME] * len(calls) + [w[0] for w in work], np.uint8),
        name=np.array(
            [names.index(x) for x in [c[0] for c in calls] + [w[1] for w in work]], np.int32
        ),
        lane=np.array([0] * len(calls) + [1 + streams.index(w[2]) for w in work], np.int32),
        start_us=times[:, 0] - begin,
        duration_us=times[:, 1] - times[:, 0],
        parent=none,
        op=none,
        launch=np.array([NONE] * len(calls) + [w[5] for w in work], np.int32),
        scope=none,
        phase=np.zeros(n, np.uint8),
        bytes=wide,
        grid_blocks=wide.copy(),
        block_threads=none.copy(),
        registers=none,
        shared_memory=none,
        event=wide,
        stream=np.array([c[3] for c in calls] + [NONE] * len(work), np.int64),
    )
    empty, small = np.zeros(0, np.int64), np.zeros(0, np.int32)
    tensors = Tensors(np.zeros(0, np.int8), np.zeros(1, np.int64), empty, empty, empty, empty)
    return ExecutionGraph(
        strings=tuple(names),
        nodes=nodes,
        arguments=Arguments(np.zeros(n + 1, np.int64), small, small, np.zeros(1, np.int64)),
        inputs=tensors,
        outputs=tensors,
        output_ptr=np.zeros(n + 1, np.int64),
        edges=Edges(small, small, np.zeros(0, np.uint8)),
        lanes=Lanes(
            np.array([LaneKind.THREAD] + [LaneKind.STREAM] * len(streams), np.uint8),
            np.array([NONE] + [0] * len(streams), np.int32),
            np.array([1, *streams], np.int64),
            np.zeros(1 + len(streams), np.int32),
        ),
        collectives=Collectives(
            small, small, small, empty, empty, empty, small, np.zeros(1, np.int64), small
        ),
        meta=GraphMeta(
            rank=rank,
            host_step_us=host_step,
            device_period_us=period,
            step_start_us=begin,
            device="NVIDIA A100-SXM4-40GB",
        ),
    )


@pytest.fixture(scope="session")
def programs() -> SimpleNamespace:
    """Programs, the machine that runs them, and the graphs that it records."""
    return SimpleNamespace(
        Instruction=Instruction,
        Machine=Machine,
        record=record,
        period_of=period_of,
        graph_of=graph_of,
    )
