"""Recording: a tiny set end to end, its manifest, and workloads that a seed determines."""

import gzip
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gnnperf.errors import InputError, UnknownNameError
from gnnperf.recording import measured_of, read_manifest
from gnnperf.recording.manifest import Manifest, sha256_of, verify, write_manifest
from gnnperf.recording.recorder import QUICK, record_set
from gnnperf.recording.steps import make_step
from gnnperf.recording.workloads import WORKLOADS, select
from gnnperf.traces import read_job

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    out = tmp_path_factory.mktemp("set")
    return out, record_set(out, ["mlp-small"], "cpu", 1, QUICK)


def test_manifest_says_what_was_measured(recorded: tuple[Path, Manifest]) -> None:
    out, manifest = recorded
    assert manifest == read_manifest(out)
    (recording,) = manifest.recordings
    assert (recording.name, recording.ranks, recording.threads) == ("mlp-small", 1, 1)
    measured = recording.measured
    assert measured.iterations == 6  # a round of three before the profiled run and one after it
    assert len(measured.rounds_us) == 2
    assert 50 < measured.p10_us <= measured.median_us <= measured.p90_us < 1e6
    assert manifest.machine.versions["torch"] == torch.__version__
    for file in recording.files:
        path = out / file.file
        assert (sha256_of(path), path.stat().st_size) == (file.sha256, file.bytes)
    assert verify(out) == []


def test_traces_are_of_the_steps_and_hold_no_path(recorded: tuple[Path, Manifest]) -> None:
    out, manifest = recorded
    job = read_job(out / "mlp-small" / "kineto.json.gz")
    assert len(job.steps) == manifest.recordings[0].profiled_steps
    graph = job.graphs[-1]
    names = [graph.name_of(i) for i in range(graph.num_nodes)]
    assert names.count("aten::addmm") == 3
    trace = gzip.decompress((out / "mlp-small" / "kineto.json.gz").read_bytes()).decode()
    assert "/tmp" not in trace
    assert json.loads(trace)["traceName"] == "kineto.json.gz"
    et = json.loads(gzip.decompress((out / "mlp-small" / "pytorch_et.json.gz").read_bytes()))
    assert [node["name"] for node in et["nodes"]].count("aten::addmm") == 3


def test_measured_time_is_found_beside_the_trace(
    recorded: tuple[Path, Manifest], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, manifest = recorded
    expected = manifest.recordings[0].measured
    assert measured_of(out / "mlp-small" / "kineto.json.gz") == expected
    assert measured_of(out / "mlp-small") == expected
    assert measured_of(tmp_path / "other.json") is None
    copy = tmp_path / "set" / "mlp-small" / "kineto.json.gz"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(b"another trace")
    write_manifest(manifest, tmp_path / "set")
    with caplog.at_level(logging.WARNING):
        assert measured_of(copy) is None
    assert "differs" in caplog.text
    assert len(verify(tmp_path / "set")) == 2


def test_a_broken_or_newer_manifest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    for text, words in (
        ('{"format": 99}', "newer"),
        ("[]", "no manifest"),
        ('{"format": 1}', "machine"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_manifest(path)
    with pytest.raises(InputError, match="No such file"):
        read_manifest(tmp_path / "none.json")


def test_unknown_workload_and_device_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="bert-small"):
        record_set(tmp_path, ["bert-huge"])
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="--device"):
            record_set(tmp_path, ["mlp-small"], "cuda")


def test_families_select_their_workloads() -> None:
    assert set(select(["dlrm", "mlp-deep"])) == {
        "dlrm-small",
        "dlrm-medium",
        "dlrm-large",
        "mlp-deep",
    }
    families = {workload.family for workload in select([]).values()}
    assert {"bert", "gpt", "cnn", "mlp", "dlrm", "ddp", "inference"} <= families


@pytest.mark.parametrize("name", ["mlp-small", "cnn-small", "bert-tiny", "gpt-tiny", "dlrm-small"])
def test_the_seed_determines_the_workload(name: str) -> None:
    def weights(seed: int) -> torch.Tensor:
        step = make_step(WORKLOADS[name].recipe, CPU, seed)
        step()
        step()
        model = step.args[0]  # type: ignore[attr-defined]
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    first = weights(1)
    assert torch.isfinite(first).all()
    assert torch.equal(first, weights(1))
    assert not torch.equal(first, weights(2))


def test_inference_leaves_the_weights_alone() -> None:
    step = make_step(WORKLOADS["infer-bert-small"].recipe, CPU, 0)
    model = step.args[0]  # type: ignore[attr-defined]
    assert not model.training
    before = {k: v.clone() for k, v in model.state_dict().items()}
    step()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_the_package_does_not_import_torch() -> None:
    code = "import sys, gnnperf.recording, gnnperf.cli.dataset; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
