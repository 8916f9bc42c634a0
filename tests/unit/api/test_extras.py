"""What a real step holds beside its plain ops: copies, captured graphs, casts, optimizers."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.api import Prediction, Predictor
from gnnperf.api.jobs import chosen_step
from gnnperf.cli.main import main

STEP_US, STEPS = 3000.0, 4
Shapes = dict[str, Any]


@dataclass
class Program:
    """A step on an A100 as a list of events relative to its begin; works queue on one stream."""

    events: list[dict[str, Any]] = field(default_factory=list)
    at: float = 10.0
    free: float = 0.0
    calls: int = 0

    def host(self, name: str, cat: str, us: float, tid: int = 1, **args: object) -> None:
        self.events.append({"ph": "X", "name": name, "cat": cat, "pid": 1, "tid": tid,
                            "ts": self.at, "dur": us, "args": args})  # fmt: skip

    def op(self, name: str, works: list[tuple[str, float]], tid: int = 1, **args: object) -> None:
        """An op of 20 us with one launch, that launches works of (name, us) one after another."""
        self.host(name, "cpu_op", 20.0, tid, **args)
        self.at += 5
        self.calls += 1
        copy = works[0][0].startswith("Memcpy")
        graph = "cudaGraphLaunch" if len(works) > 1 else "cudaLaunchKernel"
        call = "cudaMemcpyAsync" if copy else graph
        self.host(call, "cuda_runtime", 5.0, tid, correlation=self.calls)
        for kernel, us in works:
            begin = max(self.at + 10, self.free + 1)
            more = {"bytes": 50_000_000} if copy else {"grid": [512, 1, 1], "block": [256, 1, 1]}
            self.events.append(
                {"ph": "X", "name": kernel, "cat": "gpu_memcpy" if copy else "kernel", "pid": 0,
                 "tid": 7, "ts": begin, "dur": us,
                 "args": {"device": 0, "stream": 7, "correlation": self.calls, **more}}
            )  # fmt: skip
            self.free = begin + us
        self.at += 25

    def annotate(self, name: str, us: float) -> None:
        self.host(name, "user_annotation", us)

    def predict(self, folder: Path, engine: str) -> Prediction:
        """Written as four equal steps, read and predicted."""
        return Predictor.of_engine(engine).predict(chosen_step([self.write(folder)]))

    def write(self, folder: Path) -> Path:
        """Four equal steps as a trace file."""
        events = []
        for k in range(STEPS):
            begin = 1000.0 + k * STEP_US
            events.append({"ph": "X", "name": f"ProfilerStep#{k}", "cat": "user_annotation",
                           "pid": 1, "tid": 1, "ts": begin, "dur": STEP_US - 1,
                           "args": {}})  # fmt: skip
            for event in self.events:
                args = dict(event["args"])
                if "correlation" in args:
                    args["correlation"] += 1000 * k
                events.append({**event, "ts": event["ts"] + begin, "args": args})
        device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}
        path = folder / "trace.json"
        path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": events}))
        return path


def tensors(*shapes: list[int], kind: str = "float") -> Shapes:
    return {"Input Dims": list(shapes), "Input type": [kind] * len(shapes)}


def phases(prediction: Prediction) -> dict[str, int]:
    return {share.name: share.count for share in prediction.by_phase}


def test_input_copies_cross_the_host_link_and_are_data_loading(tmp_path: Path) -> None:
    program = Program()
    program.annotate("enumerate(DataLoader)#_Iter.__next__", 300.0)
    program.at += 310
    program.op("aten::_to_copy", [("Memcpy HtoD (Pinned -> Device)", 2500.0)])
    program.op("aten::mm", [("sgemm", 40.0)], **tensors([512, 512], [512, 512]))
    found = program.predict(tmp_path, "analytic")
    copy = next(k for k in found.kernels if k.name.startswith("Memcpy"))
    # 50 MB over PCIe 4.0 x16, 31.5 GB/s by its data sheet and some 20 to 26 in practice
    assert 50e6 / 31.5e3 < copy.predicted_us < 50e6 / 18e3
    assert phases(found)["data loading"] == 1
    assert found.breakdown_us["copy"] > 0


@pytest.mark.parametrize("engine", ["measured", "analytic"])
def test_kernels_of_a_captured_graph_run_behind_one_launch(tmp_path: Path, engine: str) -> None:
    program = Program()
    program.op("run_graph", [(f"captured_{k}", 100.0 + k) for k in range(5)])
    found = program.predict(tmp_path, engine)
    # They have no shapes: their measured time is kept, and counted.
    assert [k.predicted_us for k in found.kernels] == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert found.breakdown_us["compute"] == pytest.approx(510.0)
    assert found.iteration_time_us.predicted == pytest.approx(STEP_US)
    assert sum(found.unknown_ops.values()) == 5


def test_gradient_accumulation_and_recomputation_are_backward(tmp_path: Path) -> None:
    program = Program()
    shapes = tensors([256, 256], [256, 256])
    for _ in range(2):
        program.op("aten::mm", [("sgemm", 20.0)], **shapes)
        program.host("CheckpointFunctionBackward", "cpu_op", 140.0, tid=2)
        program.op("aten::mm", [("recomputed_sgemm", 20.0)], tid=2, **shapes)
        program.op("MmBackward0", [("backward_sgemm", 20.0)], tid=2, **shapes)
        program.at += 100
    program.annotate("Optimizer.step#AdamW.step", 100.0)
    program.op("aten::_fused_adamw_", [("multi_tensor_apply_kernel", 30.0)])
    found = program.predict(tmp_path, "measured")
    assert phases(found) == {"forward": 2, "backward": 4, "optimizer": 1}
    by_name = {share.name: share for share in found.by_phase}
    assert by_name["backward"].device_us == pytest.approx(80.0)
    assert by_name["backward"].exposed_us == pytest.approx(80.0)
    assert sum(s.path_us for s in found.by_phase) == pytest.approx(STEP_US)


def test_optimizers_of_many_tensors_are_timed_by_their_bytes(tmp_path: Path) -> None:
    lists = [[[1024, 1024]] * 10] * 5
    told = {"Input Dims": lists, "Input type": ["TensorList"] * 5}
    program = Program()
    program.op("aten::_fused_adamw_", [("multi_tensor_apply_kernel", 200.0)], **told)
    program.op("aten::_foreach_add_", [("multi_tensor_apply_kernel", 90.0)],
               **{"Input Dims": lists[:2], "Input type": ["TensorList"] * 2})  # fmt: skip
    found = program.predict(tmp_path, "analytic")
    assert {k.family for k in found.kernels} == {"optimizer"}
    assert not found.unknown_ops
    numbers, bandwidth = 10 * 1024**2 * 4, 2039e3
    fused, foreach = (k.predicted_us for k in found.kernels)
    # Adam reads parameter, gradient, two moments (and writes three of them): 7; add: 3.
    assert 7 * numbers / bandwidth < fused < 2.0 * 7 * numbers / bandwidth
    assert 3 * numbers / bandwidth < foreach < 2.0 * 3 * numbers / bandwidth


def test_casts_of_autocast_and_fused_kernels_of_a_compiler(tmp_path: Path) -> None:
    program = Program()
    cast = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "float"]}
    program.op("aten::copy_", [("vectorized_elementwise_kernel", 80.0)], **cast)
    shape = tensors([4096, 4096], [4096, 4096], [4096, 4096], kind="c10::BFloat16")
    program.op("triton_poi_fused_add_mul_0", [("triton_poi_fused_add_mul_0", 70.0)], **shape)
    found = program.predict(tmp_path, "analytic")
    assert [k.family for k in found.kernels] == ["copy", "triton"]
    assert not found.unknown_ops
    numbers, bandwidth = 4096**2, 2039e3
    copied, fused = (k.predicted_us for k in found.kernels)
    assert 6 * numbers / bandwidth < copied < 2 * 6 * numbers / bandwidth  # 4 bytes in, 2 out
    assert 6 * numbers / bandwidth < fused < 2 * 6 * numbers / bandwidth  # 3 tensors of 2 bytes


def test_slack_tells_what_may_grow(tmp_path: Path) -> None:
    program = Program()
    program.op("aten::mm", [("sgemm", 40.0)], **tensors([512, 512], [512, 512]))
    found = program.predict(tmp_path, "measured")
    (kernel,) = found.kernels
    # The host sets the period of 3000 us, of which the device's queue is free but for 40 + gap.
    assert kernel.slack_us == pytest.approx(STEP_US - 40.0, abs=5.0)
    # The path ends where the kernel starts: what it spends time in has none to spare.
    rows = [p for p in found.critical_path if p.slack_us is not None and p.duration_us > 0]
    assert rows
    assert np.abs([p.slack_us for p in rows]).max() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("annotated", [True, False])
def test_the_tables_of_phases_and_scopes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], annotated: bool
) -> None:
    program = Program()
    if annotated:
        for name in ("embedding", "encoder", "head"):
            program.annotate(name, 25.0)
            program.op("aten::mm", [("sgemm", 40.0)], **tensors([512, 512], [512, 512]))
    else:
        program.op("aten::mm", [("sgemm", 40.0)], **tensors([512, 512], [512, 512]))
    path, out = program.write(tmp_path), tmp_path / "out.json"
    assert main(["simulate", str(path), "--json", str(out)]) == 0
    text, data = capsys.readouterr().out, json.loads(out.read_text())
    assert "By phase" in text
    assert "added by contention" in text
    assert [s["name"] for s in data["by_phase"]] == ["forward"]
    if annotated:
        assert "/encoder" in text
        assert {s["name"] for s in data["by_scope"]} == {"/embedding", "/encoder", "/head"}
        assert {p["scope"] for p in data["critical_path"]} >= {"/embedding"}
        assert data["provenance"]["scopes"] == "annotations"
    else:
        assert "the trace holds neither module calls nor annotations" in text
        assert data["by_scope"] == []
        assert data["provenance"]["scopes"] == "none in the trace"
