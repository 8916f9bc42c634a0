import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.errors import InputError
from gnnperf.graph import EdgeKind, ExecutionGraph, NodeKind, Phase
from gnnperf.traces import decode, read_job, read_trace, steady_steps, validate
from gnnperf.traces.source import LIMIT_VARIABLE

Tiny = Any
"""The builder of `conftest.py`, which importlib mode does not let us import."""


def named(graph: ExecutionGraph, name: str) -> list[int]:
    return [i for i in range(graph.num_nodes) if graph.name_of(i) == name]


def node(graph: ExecutionGraph, name: str) -> int:
    (found,) = named(graph, name)
    return found


def test_kernel_links_to_launch_and_innermost_op(tiny: Tiny) -> None:
    graph = read_trace(tiny.write(tiny.one_op()))
    graph.check()
    mm, launch, work = (node(graph, n) for n in ("aten::mm", "cudaLaunchKernel", "sgemm"))
    assert graph.nodes.launch[work] == launch
    assert graph.nodes.op[work] == mm
    assert graph.nodes.op[launch] == mm
    assert graph.nodes.parent[launch] == mm
    assert graph.nodes.start_us[work] - graph.nodes.start_us[mm] == 30
    assert graph.nodes.grid_blocks[work] == 6
    assert graph.nodes.block_threads[work] == 64
    first = slice(*graph.arguments.ptr[mm : mm + 2])
    assert [graph.strings[t] for t in graph.arguments.type[first]] == ["float", "float"]
    assert graph.inputs.dims.tolist() == [4, 8, 8, 2]
    kinds = {EdgeKind(k) for k in graph.edges.kind.tolist()}
    assert {EdgeKind.PROGRAM, EdgeKind.LAUNCH} <= kinds


def test_external_id_of_a_kernel_is_not_believed(tiny: Tiny) -> None:
    events = [
        tiny.op("aten::wrong", 0, 5, External_id=1),
        *tiny.one_op(),
    ]
    events[-1]["args"]["External id"] = 1
    graph = read_trace(tiny.write(events))
    assert graph.name_of(int(graph.nodes.op[node(graph, "sgemm")])) == "aten::mm"


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_bare_list_and_old_categories(tiny: Tiny, suffix: str) -> None:
    events = tiny.one_op()
    for one, category in zip(events, ("Operator", "Runtime", "Kernel"), strict=True):
        one["cat"] = category
    events[0]["args"] = {"Input dims": [[4, 8]], "Input type": ["float"]}
    graph = read_trace(tiny.text(json.dumps(events), f"old.{suffix}"))
    assert graph.nodes.op[node(graph, "sgemm")] == node(graph, "aten::mm")
    assert graph.inputs.dims.tolist() == [4, 8]


def test_string_ids_and_times(tiny: Tiny) -> None:
    events = [
        tiny.op("aten::mm", "10", "20", tid="main thread"),
        tiny.call("hipLaunchKernel", "15", "5", "12", tid="main thread", stream="0x0", size="64"),
        tiny.kernel("gemm", "40", "7.5", "12", stream="stream 7 "),
    ]
    graph = read_trace(tiny.write(events))
    work = node(graph, "gemm")
    assert graph.name_of(int(graph.nodes.op[work])) == "aten::mm"
    assert graph.nodes.duration_us[work] == 7.5
    assert graph.lanes.number[graph.nodes.lane[work]] == 7
    assert graph.nodes.bytes[graph.nodes.launch[work]] == 64


def test_nan_and_infinity_are_blanked_and_counted(tiny: Tiny) -> None:
    events = [*tiny.one_op(), tiny.event("gpu_memcpy", "Memcpy HtoD", 60, 0, 7, bytes=4)]
    text = json.dumps({"traceEvents": events}).replace(
        '"bytes": 4', '"bytes": 4, "memory bandwidth (GB/s)": inf, "rate": NaN'
    )
    path = tiny.text(text)
    graph = read_trace(path)
    assert graph.nodes.bytes[node(graph, "Memcpy HtoD")] == 4
    assert validate(path).checks["repaired_values"] == 2


def test_control_character_in_a_name(tiny: Tiny) -> None:
    text = json.dumps({"traceEvents": tiny.one_op()}).replace("aten::mm", "aten\x01::mm")
    path = tiny.text(text)
    assert node(read_trace(path), "aten ::mm") >= 0
    assert validate(path).checks["repaired_values"] == 1


def test_event_without_a_time_is_dropped_and_counted(tiny: Tiny) -> None:
    path = tiny.write([*tiny.one_op(), tiny.op("aten::lost", None, 3)])
    assert not named(read_trace(path), "aten::lost")
    assert validate(path).checks["events_without_time"] == 1


def test_truncated_file_is_refused_in_one_line(tiny: Tiny) -> None:
    text = json.dumps({"traceEvents": tiny.one_op() * 50})
    path = tiny.text(text[: len(text) // 2])
    with pytest.raises(InputError, match="truncated") as caught:
        read_job(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_writers_in_one_file_are_refused(tiny: Tiny) -> None:
    text = json.dumps({"traceEvents": tiny.one_op()})
    mixed = text[:60] + text[:40] + text[60:] + text[80:]
    with pytest.raises(InputError, match="broken JSON"):
        read_job(tiny.text(mixed))


def test_truncated_gzip_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps({"traceEvents": tiny.one_op() * 20}).encode())
    path = tmp_path / "cut.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match="truncated or damaged gzip"):
        read_job(path)


def test_gzip_bomb_is_refused_at_the_limit(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny.text(b'{"traceEvents": [' + b" " * 50_000_000, "bomb.json.gz")
    assert path.stat().st_size < 100_000
    monkeypatch.setenv(LIMIT_VARIABLE, "0.01")
    with pytest.raises(InputError, match=LIMIT_VARIABLE):
        read_job(path)


def test_limit_must_be_a_number(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "much")
    with pytest.raises(InputError, match="much"):
        read_job(tiny.text("{}", "a.json.gz"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("hello", "no format"),
        ('{"traceEvents": []}', "no op"),
        ('{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "no op"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": 7}]}', "not as a Chrome trace"),
    ],
)
def test_files_that_hold_no_trace(tiny: Tiny, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_job(tiny.text(text))


def test_missing_file_and_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_job(tmp_path / "none.json")
    with pytest.raises(InputError, match="no trace file"):
        read_job(tmp_path)


def test_negative_and_symbolic_dimensions_are_unknown(tiny: Tiny) -> None:
    events = tiny.one_op()
    events[0]["args"]["Input Dims"] = [[-1, 8], ["s0", 2]]
    graph = read_trace(tiny.write(events))
    assert graph.inputs.dims.tolist() == [-1, 8, -1, 2]


def test_lists_of_tensors_scalars_and_values(tiny: Tiny) -> None:
    args = {
        "Input_Dims": [[[1, 5], [1, 6]], [], [3], []],
        "Input_type": ["TensorList", "Scalar", "c10::BFloat16", "ScalarList"],
        "Concrete_Inputs": ["", "1", "", "[1, 2]"],
        "Input_Strides": [[[5, 1], [6, 1]], [], [1], []],
    }
    graph = read_trace(tiny.write([tiny.op("aten::cat", 0, 5, **args)]))
    assert graph.arguments.tensor_ptr.tolist() == [0, 2, 2, 3, 3]
    assert graph.inputs.dims.tolist() == [1, 5, 1, 6, 3]
    assert graph.inputs.strides.tolist() == [5, 1, 6, 1, 1]
    values = [graph.strings[v] if v >= 0 else None for v in graph.arguments.value]
    assert values == [None, "1", None, "[1, 2]"]


def test_kernel_without_launch_is_kept_and_counted(tiny: Tiny) -> None:
    path = tiny.write([*tiny.one_op(), tiny.kernel("before", 5, 3, 999)])
    graph = read_trace(path)
    assert graph.nodes.launch[node(graph, "before")] == -1
    assert graph.nodes.op[node(graph, "before")] == -1
    assert validate(path).checks["kernel_without_launch"] == 1
    assert any("without a launch" in w for w in graph.meta.warnings)


def test_graph_launch_keeps_all_its_kernels(tiny: Tiny) -> None:
    events = [
        tiny.call("cudaGraphLaunch", 0, 9, 5),
        *(tiny.kernel(f"k{i}", 10 + i, 1, 5) for i in range(7)),
    ]
    graph = read_trace(tiny.write(events))
    device = graph.device_nodes
    assert len(device) == 7
    assert set(graph.nodes.launch[device].tolist()) == {node(graph, "cudaGraphLaunch")}


def test_two_devices_are_different_lanes(tiny: Tiny) -> None:
    events = [
        *tiny.one_op(),
        tiny.call("cudaLaunchKernel", 21, 3, 2),
        tiny.kernel("other", 50, 4, 2, device=1),
    ]
    graph = read_trace(tiny.write(events))
    lanes = {int(graph.nodes.lane[node(graph, n)]) for n in ("sgemm", "other")}
    assert len(lanes) == 2
    assert sorted(graph.lanes.device[list(lanes)].tolist()) == [0, 1]
    assert graph.lanes.number[list(lanes)].tolist() == [7, 7]


def test_cpu_only_trace_is_a_cpu_graph(tiny: Tiny) -> None:
    graph = read_trace(tiny.write([tiny.op("aten::mm", 0, 9), tiny.op("aten::add", 10, 2)]))
    assert graph.meta.device_type == "cpu"
    assert len(graph.device_nodes) == 0
    assert np.isnan(graph.meta.device_period_us)


def test_no_distributed_info(tiny: Tiny) -> None:
    meta = read_trace(tiny.write(tiny.one_op())).meta
    assert (meta.rank, meta.world_size, meta.device) == (0, 1, "")


def test_header_is_kept(tiny: Tiny) -> None:
    path = tiny.write(
        tiny.one_op(),
        deviceProperties=[{"id": 0, "name": "Some GPU"}],
        distributedInfo={"rank": 3, "world_size": 8, "nccl_version": "2.1"},
        cuda_runtime_version=12040,
    )
    meta = read_trace(path).meta
    assert (meta.device, meta.rank, meta.world_size) == ("Some GPU", 3, 8)
    assert dict(meta.versions) == {"cuda": "12040", "nccl": "2.1"}
    assert len(meta.sha256) == 64


def steps_of(tiny: Tiny, count: int) -> list[dict[str, Any]]:
    events = []
    for i in range(count):
        base = 1000 * i
        events += [
            tiny.step(7 + i, base, 900),
            tiny.op("aten::mm", base + 10, 20),
            tiny.call("cudaLaunchKernel", base + 15, 5, i + 1),
            tiny.kernel("sgemm", base + 950 + 10 * i, 20, i + 1),
        ]
    return events


def test_steps_and_their_periods(tiny: Tiny) -> None:
    job = read_job(tiny.write(steps_of(tiny, 4)))
    assert [g.meta.step_name for g in job.graphs] == [f"ProfilerStep#{7 + i}" for i in range(4)]
    assert [g.meta.host_step_us for g in job.graphs] == [1000, 1000, 1000, 900]
    periods = [g.meta.device_period_us for g in job.graphs]
    assert periods[:3] == [1010, 1010, 1010]
    assert np.isnan(periods[3])
    for graph in job.graphs:
        assert not named(graph, "ProfilerStep#7")
        assert len(graph.device_nodes) == 1, "a kernel belongs to the step of its launch"
        assert graph.nodes.start_us[node(graph, "aten::mm")] == 10
    assert steady_steps(job) == [1, 2]
    assert read_trace(tiny.write(steps_of(tiny, 4))).meta.step == 1


def test_step_asked_for(tiny: Tiny) -> None:
    path = tiny.write(steps_of(tiny, 3))
    assert read_trace(path, step=2).meta.step_name == "ProfilerStep#9"
    with pytest.raises(InputError, match="no step 5"):
        read_trace(path, step=5)


def test_step_of_no_length(tiny: Tiny) -> None:
    events = [*steps_of(tiny, 2), tiny.step(9, 2000, 0)]
    job = read_job(tiny.write(events))
    assert [g.meta.host_step_us for g in job.graphs] == [1000, 1000]


def test_annotation_and_optimizer_delimit_steps(tiny: Tiny) -> None:
    marked = [
        e
        for i in range(3)
        for e in (
            tiny.event("user_annotation", f"iteration {i}", 100 * i, 90),
            tiny.op("aten::mm", 100 * i + 5, 10),
        )
    ]
    job = read_job(tiny.write(marked))
    assert {g.meta.step_delimiter for g in job.graphs} == {"annotation"}
    assert len(job.graphs) == 3
    optimizer = [
        e
        for i in range(4)
        for e in (
            tiny.event("user_annotation", "Optimizer.step#SGD.step", 100 * i, 20),
            tiny.op("aten::add_", 100 * i + 5, 10),
            tiny.op("aten::mm", 100 * i + 50, 10),
        )
    ]
    job = read_job(tiny.write(optimizer))
    assert {g.meta.step_delimiter for g in job.graphs} == {"optimizer"}
    assert [g.meta.host_step_us for g in job.graphs] == [100, 100, 100]
    graph = job.graphs[0]
    assert graph.nodes.phase[node(graph, "aten::add_")] == Phase.OPTIMIZER
    assert graph.nodes.phase[node(graph, "aten::mm")] == Phase.FORWARD


def test_backward_thread_and_module_scopes(tiny: Tiny) -> None:
    events = [
        tiny.event("python_function", "nn.Module: Net_0", 0, 90),
        tiny.event("python_function", "nn.Module: Linear_3", 5, 50),
        tiny.event("python_function", "train.py(3): step", 0, 95),
        tiny.op("aten::linear", 10, 20),
        tiny.op("AddmmBackward0", 100, 20, tid=2),
        tiny.op("aten::mm", 105, 5, tid=2),
        tiny.op("aten::other", 130, 5, tid=2),
    ]
    graph = read_trace(tiny.write(events))
    phases = {graph.name_of(i): Phase(int(graph.nodes.phase[i])) for i in range(graph.num_nodes)}
    assert phases["aten::linear"] == Phase.FORWARD
    assert phases["aten::mm"] == Phase.BACKWARD
    assert graph.strings[graph.nodes.scope[node(graph, "aten::linear")]] == "Net_0.Linear_3"
    assert graph.nodes.scope[node(graph, "aten::mm")] == -1
    assert len(named(graph, "train.py(3): step")) == 0


def test_collectives_are_told_by_name_and_by_record(tiny: Tiny) -> None:
    record = {
        "Collective_name": "allreduce",
        "In_msg_nelems": 100,
        "Out_msg_nelems": 100,
        "dtype": "Float",
        "Group_size": 2,
        "Process_Group_Name": "0",
        "Process_Group_Ranks": "[0, 1]",
        "Seq": 4,
    }
    events = [
        tiny.kernel("ncclDevKernel_Generic(args)", 10, 5, 1, **record),
        tiny.kernel("dpsk::ep::internode::combine<8>", 20, 5, 2),
        tiny.kernel("_mxfp8_all_to_all_expert_major_kernel", 30, 5, 3),
        tiny.kernel("elementwise", 40, 5, 4),
    ]
    graph = read_trace(tiny.write(events))
    table = graph.collectives
    assert (graph.nodes.kind == NodeKind.COLLECTIVE).sum() == 3
    kinds = {
        graph.name_of(n): graph.strings[k] for n, k in zip(table.node, table.kind, strict=True)
    }
    assert set(kinds.values()) == {"all_reduce", "all_to_all"}
    row = int(np.flatnonzero(table.sequence == 4)[0])
    assert table.input_bytes[row] == 400
    assert table.group_size[row] == 2
    assert table.ranks[table.rank_ptr[row] : table.rank_ptr[row + 1]].tolist() == [0, 1]


def ranks_of(tiny: Tiny, rank: int, early: int) -> list[dict[str, Any]]:
    """Collectives of a rank that has `early` more of them at the start."""
    events = [tiny.op("aten::mm", 0, 5)]
    for i in range(3 + early):
        place = 100 * (i - early) + 500
        events += [
            tiny.call("cudaLaunchKernel", place, 5, i + 1),
            tiny.kernel("ncclKernel_AllReduce_RING", place + 20 + rank, 50 - rank, i + 1),
        ]
    return events


def test_ranks_meet_aligned_from_the_end(tiny: Tiny) -> None:
    for rank, early in ((0, 0), (1, 2)):
        tiny.write(
            ranks_of(tiny, rank, early),
            f"r{rank}.json",
            distributedInfo={"rank": rank, "world_size": 2},
        )
    job = read_job(tiny.folder)
    assert job.ranks == [0, 1]
    joined = job.rendezvous
    assert np.diff(joined.ptr).tolist() == [2, 2, 2]
    starts = [
        job.graphs[g].nodes.start_us[n] for g, n in zip(joined.graph, joined.node, strict=True)
    ]
    assert np.ptp(np.array(starts).reshape(3, 2), axis=1).max() <= 1
    report = validate(tiny.folder)
    assert report.checks["clock_skew"] == 0
    assert report.checks["unmatched_collectives"] == 2


def test_clock_skew_is_seen(tiny: Tiny) -> None:
    for rank in range(3):
        events = ranks_of(tiny, rank, 0)
        for one in events:
            one["ts"] += 5000 if rank == 2 else 0
        tiny.write(events, f"r{rank}.json", distributedInfo={"rank": rank, "world_size": 3})
    report = validate(tiny.folder)
    assert report.checks["clock_skew"] == 1
    assert report.clock_skew_us[2] == 5000


def test_archive_with_apple_double_member(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "ranks.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("x/._rank0.json", "x/rank0.json", "x/rank1.json"):
            data = b"\x00\x05\x16\x07" if "._" in name else json.dumps(tiny.one_op()).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    job = read_job(path)
    assert job.ranks == [0, 1]
    assert job.graphs[1].meta.source.endswith("rank1.json")


def test_cut_into_pieces_gives_the_same(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    events = steps_of(tiny, 200)
    events[5]["name"] = 'odd }, { "name" ] ['
    path = tiny.text(json.dumps({"traceEvents": events, "schemaVersion": 1}, indent=1))
    whole = read_job(path)
    monkeypatch.setattr(decode, "PIECE_BYTES", 700)
    cut = read_job(path)
    assert len(cut.graphs) == len(whole.graphs) == 200
    for one, other in zip(whole.graphs, cut.graphs, strict=True):
        assert [one.name_of(i) for i in range(one.num_nodes)] == [
            other.name_of(i) for i in range(other.num_nodes)
        ]
        assert np.array_equal(one.nodes.start_us, other.nodes.start_us)
        assert np.array_equal(one.nodes.launch, other.nodes.launch)


def test_events_of_waits_and_records_are_known(tiny: Tiny) -> None:
    events = [
        *tiny.one_op(),
        tiny.call("cudaEventRecord", 21, 2, 8),
        tiny.call("cudaEventSynchronize", 24, 9, 9),
        tiny.event(
            "cuda_sync", "Event Sync", 25, 7, -1,
            correlation=9, stream=-1, wait_on_stream=7, wait_on_cuda_event_id=4,
            wait_on_cuda_event_record_corr_id=8,
        ),
    ]  # fmt: skip
    sync = events[-1]
    sync["args"] = {key.replace(" ", "_"): v for key, v in sync["args"].items()}
    graph = read_trace(tiny.write(events))
    record, wait = node(graph, "cudaEventRecord"), node(graph, "cudaEventSynchronize")
    assert graph.nodes.event[[record, wait]].tolist() == [4, 4]
    assert graph.nodes.stream[[record, wait]].tolist() == [7, -1]


def test_steps_of_ranks_meet_by_their_numbers(tiny: Tiny) -> None:
    for rank in range(2):
        events = [
            e
            for k in range(rank, 3 + rank)
            for e in (tiny.step(k, 100 * k, 90), tiny.op("aten::mm", 100 * k + 5, 10))
        ]
        tiny.write(events, f"{rank}.json", distributedInfo={"rank": rank, "world_size": 2})
    job = read_job(tiny.folder)
    assert [(g.meta.rank, g.meta.step) for g in job.graphs] == [
        (0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip


def test_types_without_shapes_make_no_tensors(tiny: Tiny) -> None:
    path = tiny.write([tiny.op("aten::mm", 0, 9, Input_type=["float", "float"])])
    graph = read_trace(path)
    assert len(graph.arguments.type) == 2
    assert len(graph.inputs.dtype) == 0
    assert validate(path).files[0].host_ops_with_shapes_pct == 0.0
