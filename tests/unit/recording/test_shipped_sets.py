"""The data sets that ship: whole, small, and led by a good example."""

from pathlib import Path

import numpy as np
import pytest

from gnnperf.data.tables import load_table
from gnnperf.hardware import find_hardware
from gnnperf.recording import measured_of, read_manifest
from gnnperf.recording.manifest import verify
from gnnperf.traces import read_job

DATASETS = Path(__file__).parents[3] / "datasets"
SETS = sorted(path.parent for path in DATASETS.glob("*/manifest.json"))


@pytest.mark.parametrize("folder", SETS, ids=lambda path: path.name)
def test_files_are_those_of_the_manifest(folder: Path) -> None:
    assert verify(folder) == []
    manifest = read_manifest(folder)
    listed = {file.file for recording in manifest.recordings for file in recording.files}
    listed |= {table.file for table in manifest.tables}
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert present - {"manifest.json"} == listed
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 5_000_000
    for recording in manifest.recordings:
        measured = recording.measured
        assert 0 < measured.p10_us <= measured.median_us <= measured.p90_us
        assert measured.iterations >= 20


def test_the_first_file_is_a_training_step_with_shapes() -> None:
    first = min(p for p in DATASETS.rglob("*.json*") if "manifest" not in p.name)
    job = read_job(first)
    assert 3 <= len(job.steps) <= 5
    graph = job.graphs[1]
    assert graph.meta.format == "kineto"
    names = [graph.name_of(i) for i in range(graph.num_nodes)]
    assert "aten::mm" in names
    assert any(name.startswith("Optimizer.step") for name in names)
    node = names.index("aten::mm")
    assert graph.arguments.ptr[node + 1] > graph.arguments.ptr[node]
    measured = measured_of(first)
    assert measured is not None
    assert 0.5 < measured.median_us / graph.meta.host_step_us < 1.1


def test_the_table_of_single_ops() -> None:
    folder = DATASETS / "cpu-ops"
    for entry in read_manifest(folder).tables:
        table = load_table(folder / entry.file)
        assert len(table) == entry.rows > 1000
        assert table.batch().known.all()
        assert find_hardware(table.device[0]) is not None
        assert np.isfinite(table.duration_us).all()
        assert (table.duration_us > 0.1).all()
