"""Recorded steps as training data: op times, groups, and steps through the timeline."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnperf.data.from_traces import merged, table_of
from gnnperf.data.recordings import (
    MOST_SCALE,
    RecordedSteps,
    op_scale,
    read_recordings,
    recorded_ops,
    workload_of,
)
from gnnperf.data.samples import samples_of
from gnnperf.data.splits import known_group, row_groups, workload_group
from gnnperf.data.steps import recorded_steps
from gnnperf.data.tables import RECORDING, KernelTable, Names, family_dims, make_table
from gnnperf.nn.model import KernelNetwork, ModelConfig
from gnnperf.nn.network import ResidualNetwork
from gnnperf.timeline.replay import run, schedule_of
from gnnperf.training.config import TrainGroup
from gnnperf.training.module import ResidualModule, step_loss

SETS = Path(__file__).parents[3] / "datasets" / "cpu-recordings"


@pytest.fixture(scope="module")
def recorded() -> dict[str, RecordedSteps]:
    groups = {workload_group(n) for n in ("cnn-small", "gpt-tiny", "dlrm-small", "bert-small")}
    found = read_recordings(SETS, tuple(groups))
    return {one.recording.name: one for one in found}


def test_a_workload_is_left_out_whatever_its_size_and_mode(
    recorded: dict[str, RecordedSteps],
) -> None:
    assert workload_group("infer-bert-small") == workload_group("ddp-bert") == "workload-bert"
    assert set(recorded) == {
        "ddp-mlp", "infer-mlp-medium", "mlp-deep", "mlp-large", "mlp-medium", "mlp-small",
    }  # fmt: skip
    assert {workload_of(one.recording) for one in recorded.values()} == {"workload-mlp"}
    assert known_group("workload-mlp") == "workload-mlp"


@pytest.mark.parametrize("name", ["mlp-small", "mlp-medium", "infer-mlp-medium"])
def test_scaled_ops_take_the_unprofiled_step(recorded: dict[str, RecordedSteps], name: str) -> None:
    one = recorded[name]
    scale = op_scale(one)
    assert 1 / MOST_SCALE < scale < MOST_SCALE
    times = [
        run(schedule_of(one.job.of_step(s)), kernel_scale=scale).iteration_us for s in one.steps
    ]
    measured = one.recording.measured.median_us
    assert np.median(times) == pytest.approx(measured, rel=0.03)
    # by hand: without gaps the ops of a step are a sum
    table = recorded_ops([one])
    assert table.source.names == (RECORDING,)
    assert set(row_groups(table).names) == {"workload-mlp"}
    assert (table.duration_us > 0).all()


def test_merged_rows_keep_the_sum(recorded: dict[str, RecordedSteps]) -> None:
    one = recorded["mlp-small"]
    whole = table_of(one.job, RECORDING, "mlp-small").table
    rows = merged(whole)
    assert len(rows) < len(whole)
    keys = np.column_stack([rows.family.codes, rows.dtype.codes, rows.kernel_source.codes])
    assert len(np.unique(np.column_stack([keys, rows.dims]), axis=0)) == len(rows)
    # the first op's mean, by hand
    same = (whole.dims == rows.dims[0]).all(1) & (
        whole.kernel_source.codes == rows.kernel_source.codes[0]
    )
    assert rows.duration_us[0] == pytest.approx(whole.duration_us[same].mean())


def test_groups_of_mixed_rows() -> None:
    names = Names.of(["gnnperf", RECORDING, RECORDING, "gnnperf"])
    table = make_table(
        np.ones(4),
        family_dims("softmax", 4, rows=8, cols=8),
        peers={},
        device=Names.of(["cpu", "cpu", "cpu", "l4"]),
        raw_device="cpu",
        family="softmax",
        label="softmax",
        dtype="float32",
        source=names,
        model=Names.of(["", "infer-gpt-medium", "mlp-small", ""]),
        launch_included=True,
        row=np.arange(4),
    )
    groups = row_groups(table)
    assert [groups[i] for i in range(4)] == ["cpu", "workload-gpt", "workload-mlp", "l4"]


def _network(table: KernelTable) -> KernelNetwork:
    samples = samples_of(table)
    torch.manual_seed(0)
    slots = ("processor/gemm", "processor/elementwise")
    network = KernelNetwork(ModelConfig(("cpu",), samples.variants, slots, hidden=8, layers=1))
    network.mean.zero_()
    network.deviation.fill_(10.0)
    return network


def test_step_loss_reaches_the_network_and_falls(recorded: dict[str, RecordedSteps]) -> None:
    one = recorded["mlp-small"]
    network = _network(recorded_ops([one]))
    steps = recorded_steps(network, one)
    assert len(steps) == len(one.steps)
    module = ResidualModule(network, TrainGroup(step_weight=1.0), 100, steps)
    assert len(module.drawn_steps(3)) == 4
    assert [s.name for s in module.drawn_steps(3)] == [s.name for s in module.drawn_steps(3)]
    net = module.network.members[0]
    assert isinstance(net, ResidualNetwork)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    losses = []
    for _ in range(25):
        loss = step_loss(net, steps)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert net.residual.grad is not None
    assert net.residual.grad.abs().sum() > 0
    assert losses[-1] < 0.5 * losses[0]
    # the step's gradient by a row's log time is that row's time over the step's, on one thread
    us = torch.exp(steps[0].rows.log_prior.double()).detach().requires_grad_()
    steps[0].time(us).backward()  # type: ignore[no-untyped-call]
    assert us.grad is not None
    known = steps[0].rows.weight > 0
    assert torch.allclose(us.grad[known], torch.ones_like(us.grad[known]))


def test_without_a_step_weight_no_step_is_drawn(recorded: dict[str, RecordedSteps]) -> None:
    network = _network(recorded_ops([recorded["mlp-small"]]))
    steps = recorded_steps(network, recorded["mlp-small"])
    assert not ResidualModule(network, TrainGroup(), 100, steps).steps


def test_left_out_recordings_are_not_read() -> None:
    assert not list(read_recordings(SETS, [workload_group(f"{w}-x") for w in _ALL]))
    renamed = replace(next(read_recordings(SETS)).recording, name="other-small")
    assert workload_of(renamed) == "workload-other"


_ALL = ("bert", "cnn", "dlrm", "gpt", "mlp")
