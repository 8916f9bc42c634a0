"""Synthetic graphs: labels are the simulator's within the noise, the same seed gives the same."""

from pathlib import Path

import numpy as np

from gnnperf.analytic import device_time
from gnnperf.cli.main import main
from gnnperf.data.graphs import piece_edges
from gnnperf.data.model_graphs import load_graphs
from gnnperf.data.synth import synthetic_graphs
from gnnperf.hardware import get_hardware


def test_labels_are_the_simulators_with_noise() -> None:
    device = get_hardware("l4")
    graphs = synthetic_graphs([device], 40, seed=1)
    ratio = np.concatenate([g.duration_us / device_time(g.batch, device).total_us for g in graphs])
    assert 0.7 < ratio.min() < ratio.max() < 1.5
    assert ratio.std() > 0.01
    again = synthetic_graphs([device], 40, seed=1)
    assert all(
        np.array_equal(a.duration_us, b.duration_us) for a, b in zip(graphs, again, strict=True)
    )


def test_edges_join_what_is_written_to_what_reads_it() -> None:
    graph = synthetic_graphs([get_hardware("l4")], 1)[0]
    edges = piece_edges(graph)
    data = set(
        zip(edges.source[edges.data].tolist(), edges.destination[edges.data].tolist(), strict=True)
    )
    assert (2, 3) in data  # the softmax reads the scores
    assert (6, 11) in data  # the last addition reads the residual stream
    order = ~edges.data
    assert np.array_equal(edges.destination[order], edges.source[order] + 1)


def test_the_command_writes_graphs_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "synthetic.npz"
    assert main(["dataset", "synth", "--out", str(path), "--count", "3", "--hardware", "t4"]) == 0
    graphs = load_graphs(path)
    assert len(graphs) == 3
    assert {g.meta.device for g in graphs} == {"t4"}
