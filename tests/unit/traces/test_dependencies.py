"""What runtime calls imply, on hand-made steps and on traces whose dependencies are known."""

import os
from pathlib import Path

import numpy as np
import pytest

from gnnperf.graph import EdgeKind, ExecutionGraph, NodeKind
from gnnperf.traces import read_job
from gnnperf.traces.dependencies import Call, classify_calls, find_waits, infer_edges

HOME = Path(__file__).parents[3].parent / "shared"
TRACES = Path(os.environ.get("GNNPERF_SHARED", HOME)) / "data" / "traces"


def read(name: str, step: int = 0) -> ExecutionGraph:
    if not (TRACES / name).is_dir():
        pytest.skip(f"no {name} beside the project: the public traces are not here")
    return read_job(TRACES / name).of_step(step).graphs[0]


def named(graph: ExecutionGraph, name: str) -> list[int]:
    return [i for i in range(graph.num_nodes) if graph.name_of(i).startswith(name)]


def test_a_copy_to_pageable_memory_and_each_synchronize_wait_for_the_device() -> None:
    # Four kernels and one pageable copy on one stream; event, stream and device synchronize.
    graph = read("hta_event_sync")
    waits = find_waits(graph)
    order = np.argsort(graph.nodes.start_us)
    copy = named(graph, "Memcpy DtoH")[0]
    blocking = {graph.name_of(int(d)): int(s) for s, d in zip(waits.src, waits.dst, strict=True)}
    assert blocking["cudaMemcpyAsync"] == copy
    assert blocking["cudaStreamSynchronize"] == copy
    kernels = [int(i) for i in order if graph.nodes.kind[i] == NodeKind.KERNEL]
    assert blocking["cudaDeviceSynchronize"] == kernels[-1]
    assert set(waits.kind[waits.kind != EdgeKind.HOST_SYNC]) <= {EdgeKind.THREAD}


def test_calls_are_told_apart_by_name_and_by_what_they_enqueue() -> None:
    graph = read("hta_torchrec_a100", step=2)
    call = classify_calls(graph)
    kinds = {graph.name_of(i): Call(int(call[i])) for i in np.flatnonzero(call).tolist()}
    assert kinds["cudaLaunchKernel"] == Call.LAUNCH
    assert kinds["cudaMemsetAsync"] == Call.LAUNCH
    assert kinds["cudaStreamSynchronize"] == Call.WAIT_STREAM
    assert kinds["cudaStreamWaitEvent"] == Call.HOLD_STREAM
    copies = np.flatnonzero(call == Call.BLOCKING_COPY)
    routes = {
        graph.name_of(int(d))
        for d in graph.device_nodes
        if graph.nodes.launch[d] in set(copies.tolist())
    }
    assert routes == {"Memcpy DtoH (Device -> Pageable)"}


@pytest.mark.parametrize(
    "name", ["hta_torchrec_a100", "hta_ddp_a100_ncclmeta", "tracelens_mi300_resnet_ddp"]
)
def test_no_dependency_contradicts_the_recorded_times(name: str) -> None:
    graph = read(name, step=1)
    edges = infer_edges(graph)
    nodes = graph.nodes
    end = nodes.start_us + nodes.duration_us
    events = edges.kind == EdgeKind.EVENT_WAIT
    assert events.any()
    assert (end[edges.src[events]] <= nodes.start_us[edges.dst[events]] + 1.5).all()
    assert (nodes.lane[edges.src[events]] != nodes.lane[edges.dst[events]]).all()
    syncs = edges.kind == EdgeKind.HOST_SYNC
    # Only large pageable copies to the device end after the call that made them.
    late = end[edges.src[syncs]] > end[edges.dst[syncs]] + 1.5
    names = {graph.name_of(int(i)) for i in edges.src[syncs][late]}
    assert names <= {"Memcpy HtoD (Pageable -> Device)"}


def test_a_collective_waits_for_the_compute_stream_and_the_compute_stream_for_it() -> None:
    graph = read("tracelens_mi300_resnet_ddp", step=1)
    edges = infer_edges(graph)
    events = edges.kind == EdgeKind.EVENT_WAIT
    collective = graph.nodes.kind == NodeKind.COLLECTIVE
    # One broadcast and two all-reduces of buckets per step, each awaited.
    assert collective[edges.dst[events]].any()
    assert collective[edges.src[events]].any()


def test_host_threads_take_turns_where_the_work_passes_between_them() -> None:
    graph = read("kineto_resnet50_w0", step=2)
    edges = infer_edges(graph)
    woken = edges.kind == EdgeKind.THREAD
    # The main thread starts the backward pass on the autograd thread, and goes on after it.
    assert woken.sum() == 2
    threads = graph.nodes.lane[edges.src[woken]], graph.nodes.lane[edges.dst[woken]]
    assert (threads[0] != threads[1]).all()
