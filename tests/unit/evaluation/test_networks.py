"""How `evaluate` asks a network, and which one with a group left out; networks are stand-ins."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnperf.api.predictor import Predictor
from gnnperf.data.model_graphs import PieceEdges
from gnnperf.data.tables import Names, family_dims, make_table, save_table
from gnnperf.errors import InputError
from gnnperf.evaluation import Settings, evaluate
from gnnperf.evaluation.kernel_models import How, NetworkKernels
from gnnperf.evaluation.networks import Networks
from gnnperf.hardware import get_hardware
from gnnperf.nn.predict import KernelModel
from gnnperf.ops import OpBatch, family_index


@dataclass
class Network:
    """Predicts 7 us and remembers how it was asked."""

    devices: tuple[str, ...] = ()
    card: dict[str, Any] = field(default_factory=dict)
    uses_edges: bool = False
    asked: list[dict[str, object]] = field(default_factory=list)
    identity: str = "stand-in"

    @property
    def network(self) -> SimpleNamespace:
        return SimpleNamespace(config=SimpleNamespace(devices=self.devices))

    def without_edges(self) -> "Network":
        return self

    def predict(self, batch: OpBatch, hardware: object, **how: object) -> SimpleNamespace:
        self.asked.append(how)
        times = np.full(len(batch), 7.0)
        return SimpleNamespace(time_us=times, low_us=times - 1, high_us=times + 1)


def batch(rows: int = 2) -> OpBatch:
    family = np.full(rows, family_index("softmax"), np.int16)
    dims = family_dims("softmax", rows, rows=8, cols=8)
    return OpBatch(family, dims, np.ones(rows, np.int8), np.ones(rows, np.bool_))


@pytest.mark.parametrize("data", [{}, {"graphs": "models.npz"}, {"synthetic": "synth.npz"}])
def test_a_network_uses_edges_where_it_was_trained_on_graphs(data: dict[str, str]) -> None:
    model = KernelModel(None, "", {"config": {"data": data}})  # type: ignore[arg-type]
    assert model.uses_edges == bool(data)


@pytest.mark.parametrize("uses_edges", [False, True])
def test_edges_reach_only_a_network_that_uses_them(uses_edges: bool) -> None:
    stand_in = Network(uses_edges=uses_edges)
    edges = PieceEdges(np.array([0]), np.array([1]), np.array([True]))
    how = How("neusight", "pytorch", "eager", launch_included=True, in_model=True)
    kernels = NetworkKernels(lambda hardware: Predictor(None, stand_in))  # type: ignore[arg-type]
    found = kernels.predict(batch(), get_hardware("l4"), how, edges)
    assert found.time_us.tolist() == [7, 7]
    (asked,) = stand_in.asked
    assert (asked.pop("edges") is not None) == uses_edges
    assert asked == {
        "source": "neusight",
        "framework": "pytorch",
        "kernel_source": "eager",
        "launch_included": True,
        "in_model": True,
    }


def load_by_folder(monkeypatch: pytest.MonkeyPatch, trained: dict[str, tuple[str, ...]]) -> None:
    def load(checkpoint: Path) -> SimpleNamespace:
        return SimpleNamespace(model=Network(trained[checkpoint.name]))

    monkeypatch.setattr(Predictor, "load", load)


def sweeps(tmp_path: Path) -> Path:
    path = tmp_path / "sweeps.csv"
    path.write_text("gpu,n_gpus,collective,bytes,time_us\nA100,8,all_reduce,1048576,30\n")
    return path


def test_a_group_left_out_needs_a_network_that_never_saw_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "default"
    place.mkdir()
    (place / "model.ckpt").touch()
    load_by_folder(
        monkeypatch,
        {"default": ("a100-pcie-40gb", "t4"), "a100": ("t4",), "t4": ("t4",)},
    )
    settings = Settings(checkpoint=place, leave_out="a100-sxm-80gb")
    with pytest.raises(InputError, match=r"without the group a100.*--leave-out a100"):
        evaluate([sweeps(tmp_path)], settings)
    (place / "a100").mkdir()
    found = evaluate([sweeps(tmp_path)], settings)
    assert found.summary["seen_devices"] == ["t4"]
    assert found.kernels[0]["seen"] is False
    (place / "t4").mkdir()  # that one saw it all the same
    with pytest.raises(InputError, match="without the group t4"):
        evaluate([sweeps(tmp_path)], Settings(checkpoint=place, leave_out="t4"))


def test_each_row_by_the_network_that_never_saw_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("a100", "t4"):
        (tmp_path / "loo" / group).mkdir(parents=True)
    load_by_folder(monkeypatch, {"a100": ("t4",), "t4": ("a100-sxm-80gb",)})
    table = make_table(
        np.array([70.0, 7.0, 7.0]),
        family_dims("softmax", 3, rows=8, cols=8),
        peers={},
        device=Names.of(["a100-pcie-40gb", "t4", "l4"]),
        family="softmax",
        label="softmax",
        dtype="float32",
        source="own",
        launch_included=False,
        row=np.arange(3),
        origin="kernel table",
    )
    path = save_table(table, tmp_path / "k.parquet")
    found = evaluate([path], Settings(checkpoint=tmp_path / "loo", leave_out="each"))
    assert {k["device"]: (k["mape"], k["seen"]) for k in found.kernels} == {
        "a100-pcie-40gb": (90, False),
        "t4": (0, False),
    }
    (why,) = found.summary["left_out"]
    assert "without the group l4" in why


def test_what_a_network_saw_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_by_folder(monkeypatch, {"default": ("a100-sxm-80gb",)})
    found = evaluate([sweeps(tmp_path)], Settings(checkpoint=tmp_path / "default"))
    assert found.kernels[0]["device"] in ("a100-sxm-80gb", "a100-sxm-40gb")
    assert found.kernels[0]["seen"] == (found.kernels[0]["device"] == "a100-sxm-80gb")
    assert found.to_json()["iterations"][0]["seen"] == found.kernels[0]["seen"]


def test_the_other_groups_alone_set_the_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factor = np.ones(1)
    for group, worst in (("a100", 50.0), ("t4", 2.0), ("l4", 4.0)):
        (tmp_path / group).mkdir()
        quantiles = np.linspace(0, worst, 101).tolist()
        scores = {"quantiles": [{"slot": "softmax/softmax", "quantiles": quantiles}]}
        (tmp_path / group / "scores.json").write_text(json.dumps(scores))

    def load(checkpoint: Path) -> SimpleNamespace:
        config = SimpleNamespace(devices=("h100-sxm",), slots=("softmax/softmax",))
        network = SimpleNamespace(config=config, factor=factor)
        return SimpleNamespace(model=SimpleNamespace(network=network, card={}))

    monkeypatch.setattr(Predictor, "load", load)
    Networks(tmp_path, "each").without("a100")
    # half of the rows uniform on [0, 2], half on [0, 4]: 90 % lie below 3.2; a100's own count not
    assert factor[0] == pytest.approx(3.2, abs=0.05)
