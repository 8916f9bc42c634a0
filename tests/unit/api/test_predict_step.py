"""Predictions of a hand-made trace, whose times can be told by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from gnnperf.api import Options, Predictor, simulate
from gnnperf.api.jobs import chosen_step
from gnnperf.api.step import UNTRACED_CALL
from gnnperf.errors import InputError
from gnnperf.graph import Job


@pytest.fixture
def job(trace: Path) -> Job:
    return chosen_step([trace])


def test_replay_gives_the_measured_step(job: Job) -> None:
    prediction = Predictor.of_engine("measured").predict(job)
    time = prediction.iteration_time_us
    assert time.measured == 200.0
    assert time.predicted == pytest.approx(200.0)
    assert [k.predicted_us for k in prediction.kernels] == [40.0, 30.0]
    assert [k.measured_us for k in prediction.kernels] == [40.0, 30.0]
    assert prediction.breakdown_us["compute"] == pytest.approx(70.0)
    assert prediction.breakdown_us["host_bound_idle"] == pytest.approx(130.0)
    assert "host-bound" in prediction.provenance["bound"]


def test_ten_times_longer_kernels_make_it_device_bound(job: Job) -> None:
    prediction = Predictor.of_engine("measured").predict(job, options=Options(kernel_scale=10.0))
    # 400 + 300 us of kernels and two gaps between queued kernels
    assert prediction.iteration_time_us.predicted == pytest.approx(700.0, abs=8.0)
    assert prediction.provenance["bound"].startswith("device-bound")


def test_known_work_is_computed_and_unknown_work_keeps_its_time(job: Job) -> None:
    prediction = simulate(job)
    mm, mine = prediction.kernels
    flops = 2 * 512**3
    assert mm.predicted_us > flops / 19.5e6  # not above the peak of an A100 in fp32
    assert mm.predicted_us < 10 * flops / 19.5e6
    assert mine.predicted_us == 30.0
    assert prediction.unknown_ops == {"my::op": 1}
    assert any("unknown size" in w and "keep their measured time" in w for w in prediction.warnings)


def test_unknown_work_moves_with_the_memory_bandwidth(job: Job) -> None:
    prediction = simulate(job, "h200")
    assert prediction.kernels[1].predicted_us == pytest.approx(30.0 * 2039 / 4800, rel=0.01)
    assert prediction.iteration_time_us.measured is None
    assert all(k.measured_us is None for k in prediction.kernels)
    assert prediction.provenance["moved"]


def test_the_interval_holds_the_prediction_and_knows_what_matters(job: Job) -> None:
    host_bound = simulate(job).iteration_time_us
    assert host_bound.low < host_bound.predicted < host_bound.high
    slow = Predictor.of_engine("analytic").predict(job, options=Options(kernel_scale=50.0))
    time = slow.iteration_time_us
    assert (time.high - time.low) / time.predicted > (
        host_bound.high - host_bound.low
    ) / host_bound.predicted


def test_json_has_no_nan_and_every_field_of_the_contract(job: Job) -> None:
    data = json.loads(json.dumps(simulate(job, "h200").to_json(), allow_nan=False))
    assert data["format"] == 1
    assert {"iteration_time_us", "breakdown_us", "by_family", "kernels", "critical_path"} < set(
        data
    )
    assert set(data["kernels"][0]) == {
        "name", "family", "stream", "predicted_us", "low_us", "high_us", "measured_us", "slack_us"
    }  # fmt: skip


def test_freeing_what_the_step_waits_for_saves_its_time(job: Job) -> None:
    prediction = Predictor.of_engine("measured").predict(job)
    launches = next(s for s in prediction.savings if s.name == "cudaLaunchKernel")
    assert launches.saving_us == pytest.approx(20.0)


def test_the_prediction_leaves_the_graph_alone(job: Job) -> None:
    before = job.graphs[0].nodes.duration_us.copy()
    simulate(job, "h200")
    assert np.array_equal(before, job.graphs[0].nodes.duration_us, equal_nan=True)


def test_what_cannot_be_done_is_refused(job: Job) -> None:
    with pytest.raises(InputError, match="not those of h200"):
        Predictor.of_engine("measured").predict(job, "h200")
    with pytest.raises(InputError, match="cannot be put on"):
        simulate(job, "cpu")
    with pytest.raises(InputError, match="unknown hardware 'h1000'"):
        simulate(job, "h1000")
    with pytest.raises(InputError, match="unknown engine 'magic'"):
        Predictor.of_engine("magic")
    with pytest.raises(InputError, match="no step 99"):
        job.of_step(99)


def test_host_calls_that_no_trace_holds_have_a_name_of_their_own() -> None:
    recording = Path(__file__).parents[3] / "datasets/cpu-recordings/mlp-small/kineto.json.gz"
    prediction = simulate(chosen_step([recording]), "h100-sxm")
    assert prediction.critical_path[0].name == UNTRACED_CALL
    assert prediction.critical_path[0].lane == "host"
    launches = next(s for s in prediction.savings if s.name == UNTRACED_CALL)
    assert 0 < launches.saving_us <= launches.path_us + 1e-6
    # They are of the phase of what they launch: the phases share the whole step.
    shares = sum(share.path_us for share in prediction.by_phase)
    assert shares == pytest.approx(prediction.iteration_time_us.predicted)
    assert {share.name for share in prediction.by_phase} == {"forward", "backward", "optimizer"}
