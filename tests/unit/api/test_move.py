"""A trace moved to another GPU: its own times as evidence, its host kept or rescaled."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.api import Options, Predictor
from gnnperf.api.engines import Times
from gnnperf.api.evidence import NEAR_SPREAD, NEAR_TRUST, Evidence, evidence_of, use_evidence
from gnnperf.api.jobs import chosen_step
from gnnperf.cli.main import main
from gnnperf.errors import InputError
from gnnperf.graph import Job
from gnnperf.hardware import get_hardware

FORMULAS = Predictor.of_engine("analytic")


@pytest.fixture
def job(trace: Path) -> Job:
    return chosen_step([trace])


def _kernels(job: Job, hardware: str, trust: float | None) -> list[float]:
    found = FORMULAS.predict(job, hardware, Options(evidence=trust, contention=False))
    return [k.predicted_us for k in found.kernels]


def test_a_near_gpu_is_off_by_a_power_of_what_the_source_was(job: Job) -> None:
    plain, source = _kernels(job, "a100-pcie-80gb", 0.0), _kernels(job, "a100-sxm-80gb", 0.0)
    near = _kernels(job, "a100-pcie-80gb", None)
    assert near[0] == pytest.approx(plain[0] * (40.0 / source[0]) ** NEAR_TRUST)
    assert _kernels(job, "a100-pcie-80gb", 1.0)[0] == pytest.approx(plain[0] * 40.0 / source[0])
    assert near[1] == plain[1]  # of unknown size: its time with the bandwidth, as ever


def test_far_gpus_and_the_own_one_use_none_unless_asked(job: Job) -> None:
    assert _kernels(job, "h100-sxm", None) == _kernels(job, "h100-sxm", 0.0)
    assert _kernels(job, "a100-sxm-80gb", None) == _kernels(job, "a100-sxm-80gb", 0.0)
    assert _kernels(job, "a100-sxm-80gb", 1.0) == pytest.approx([40.0, 30.0])


@pytest.mark.parametrize(
    ("hardware", "trust", "words"),
    [
        ("a100-pcie-80gb", None, "1 kernels start from their measured time on a100-sxm-80gb"),
        ("h100-sxm", None, "none of 1 measured kernel times is used (h100-sxm and a100-sxm-80gb"),
        ("a100-sxm-80gb", None, "--engine measured replays them"),
        ("h100-sxm", 0.0, "as asked for"),
    ],
)
def test_the_output_says_how_many_kernels_used_evidence(
    job: Job, hardware: str, trust: float | None, words: str
) -> None:
    found = FORMULAS.predict(job, hardware, Options(evidence=trust))
    assert sum(words in line for line in found.warnings) == 1
    library = any("1 library kernels" in line for line in found.warnings)
    assert library == (hardware != "a100-sxm-80gb")


def test_a_trace_of_an_unknown_device_gives_no_evidence(job: Job) -> None:
    graph = job.graphs[0]
    strange = replace(job, graphs=(replace(graph, meta=replace(graph.meta, device="Voodoo 2")),))
    found = FORMULAS.predict(strange, "h100-sxm", Options(evidence=1.0))
    assert any("an unknown device" in line for line in found.warnings)


def test_evidence_narrows_the_interval_only() -> None:
    one = np.array([10.0, 10.0])
    times = Times(one, one / 2, one * 1.1, 0.9)
    h100, h200 = get_hardware("h100-sxm"), get_hardware("h200-sxm")
    rows = np.array([True, False])
    found = use_evidence(times, one, one * 3, rows, Evidence(h100, h200, 1.0))
    assert found.time_us.tolist() == [30.0, 10.0]
    assert found.low_us == pytest.approx([30.0 / NEAR_SPREAD, 5.0])
    assert found.high_us == pytest.approx([33.0, 11.0])


def test_trust_by_nearness() -> None:
    names = ("a100-sxm-80gb", "a100-pcie-40gb", "a40", "h100-sxm", "mi300x")
    a100, *others = (get_hardware(n) for n in names)
    assert [evidence_of(a100, h).trust for h in others] == [NEAR_TRUST, 0.0, 0.0, 0.0]
    assert evidence_of(a100, a100).trust == 0.0
    assert evidence_of(None, a100, 1.0).trust == 0.0


def _step(job: Job, cpu: str | None) -> float:
    found = Predictor.of_engine("measured").predict(job, options=Options(cpu=cpu))
    return found.iteration_time_us.predicted


def test_a_faster_cpu_shortens_a_host_bound_step(job: Job) -> None:
    # The step is host-bound: 200 us, of which the device's last kernel is waited for by none.
    assert _step(job, "1") == pytest.approx(_step(job, None)) == pytest.approx(200.0)
    assert _step(job, "2") == pytest.approx(100.0)
    assert _step(job, "0.5") == pytest.approx(400.0)


def test_a_named_cpu_scales_by_single_thread_speeds(job: Job) -> None:
    # The usual host of an A100 node is an EPYC 7742: 3.4 GHz x 1.15; the 9654: 3.7 GHz x 1.56.
    assert _step(job, "epyc-9654") == pytest.approx(200.0 * 3.4 * 1.15 / (3.7 * 1.56))
    found = Predictor.of_engine("measured").predict(job, options=Options(cpu="AMD EPYC 9654"))
    assert any("from epyc-7742 (assumed" in line for line in found.warnings)


def test_unknown_cpus_and_factors_out_of_range_are_refused(job: Job) -> None:
    for cpu in ("epic-9654x", "0", "1e9", "nan"):
        with pytest.raises(InputError, match=r"--cpu|CPU"):
            _step(job, cpu)


def test_infer_takes_cpu_and_evidence(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["infer", str(trace), "--engine", "analytic", "--hardware", "a100-pcie-80gb"]
    assert main([*arguments, "--cpu", "2", "--evidence", "1", "--json", str(out)]) == 0
    warnings = json.loads(out.read_text())["warnings"]
    assert any("(trust 1)" in line for line in warnings)
    assert any("host times x 0.50" in line for line in warnings)
    with pytest.raises(SystemExit):
        main([*arguments, "--evidence", "2"])


@pytest.fixture
def rank_of_eight(trace: Path, tmp_path: Path) -> Job:
    """The hand-made steps with an all-reduce of 100 us at the end of each, one rank of eight."""
    data = json.loads(trace.read_text())
    data["distributedInfo"] = {"rank": 0, "world_size": 8, "backend": "nccl"}
    facts = {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024,
             "dtype": "Float", "Group size": 8}  # fmt: skip
    for k in range(4):
        t, number = 1000.0 + 200.0 * k, 1000 + k
        call = {"ph": "X", "cat": "cuda_runtime", "pid": 1, "tid": 1}
        data["traceEvents"] += [
            call | {"name": "cudaLaunchKernel", "ts": t + 85, "dur": 5,
                    "args": {"correlation": number}},
            {"ph": "X", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "cat": "kernel",
             "ts": t + 104, "dur": 90, "pid": 0, "tid": 7,
             "args": facts | {"correlation": number, "device": 0, "stream": 7}},
        ]  # fmt: skip
    path = tmp_path / "rank.json"
    path.write_text(json.dumps(data))
    return chosen_step([path])


def test_what_collectives_waited_for_absent_ranks_is_kept_or_told(rank_of_eight: Job) -> None:
    own = FORMULAS.predict(rank_of_eight)
    (kept,) = [k for k in own.kernels if k.family == "collective"]
    assert kept.predicted_us == 90.0
    assert any("1 keep their measured time" in line for line in own.warnings)
    moved = FORMULAS.predict(rank_of_eight, "h100-sxm")
    (timed,) = [k for k in moved.kernels if k.family == "collective"]
    assert timed.predicted_us < 45.0
    assert any("as if all ranks arrived together" in line for line in moved.warnings)
