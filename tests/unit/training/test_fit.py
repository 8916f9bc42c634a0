"""A tiny run: it learns, it resumes, the same seed gives the same, its checkpoint loads."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnperf.checkpoint import read_checkpoint
from gnnperf.data.calibrate import calibrate_on
from gnnperf.data.samples import samples_of
from gnnperf.data.tables import KernelTable, family_dims, make_table, save_table
from gnnperf.errors import InputError
from gnnperf.hardware import get_hardware
from gnnperf.nn.calibration import Calibration
from gnnperf.nn.predict import KernelModel
from gnnperf.training import TrainConfig, load_config, train
from gnnperf.training.config import DataGroup, ModelGroup, PriorGroup, TrainGroup, run_folder
from gnnperf.training.scores import interval_factors

ROOT = Path(__file__).parents[3]
DEVICES = ("l4", "t4", "a100-pcie-40gb")
EFFICIENCY = {"l4": 0.5, "t4": 0.6, "a100-pcie-40gb": 0.7}


def table(rows: int = 300) -> KernelTable:
    """Elementwise kernels whose true time is bytes over a share of the bandwidth, strided +30 %."""
    parts = []
    generator = np.random.default_rng(0)
    for name in DEVICES:
        bandwidth = get_hardware(name).memory_bandwidth_gb_per_s * 1e3
        numel = np.round(10 ** generator.uniform(6.5, 8.5, rows))
        dims = family_dims(
            "elementwise",
            rows,
            numel=numel,
            bytes_read=8 * numel,
            bytes_written=4 * numel,
            flops_per_element=1,
            inputs=2,
            strided=np.arange(rows) % 2,
        )
        us = 12 * numel / bandwidth / EFFICIENCY[name] * (1 + 0.3 * dims[:, 5])
        names = {"family": "elementwise", "label": "elementwise", "dtype": "float32"}
        parts.append(
            make_table(
                us,
                dims,
                peers={},
                device=name,
                raw_device=name,
                source="gnnperf",
                framework="pytorch",
                origin="kernel table",
                launch_included=False,
                row=np.arange(rows),
                **names,
            )
        )
    return KernelTable.join(parts)


def config(folder: Path, **changes: object) -> TrainConfig:
    save_table(table(), folder / "table.parquet")
    base = TrainConfig(
        run=str(folder / "run"),
        wandb="disabled",
        data=DataGroup(path=str(folder / "table.parquet"), rows_per_cell=300, leave_out=("l4",)),
        prior=PriorGroup(steps=60, batch_size=128),
        model=ModelGroup(hidden=16, layers=1, dropout=0.0),
        train=TrainGroup(epochs=30, batch_size=128, noise=0.0, shrink=0.001),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainConfig, Path]:
    settings = config(tmp_path_factory.mktemp("fit"))
    return settings, train(settings)


def errors(model: KernelModel, device: str) -> np.ndarray:
    rows = table()
    part = rows.take(np.flatnonzero(rows.device.mask(device)))
    found = model.predict(part.batch(), get_hardware(device), source="gnnperf", framework="pytorch")
    assert (found.low_us < found.time_us).all()
    assert (found.time_us < found.high_us).all()
    return found.time_us / part.duration_us - 1


def test_it_learns_what_the_prior_cannot_say(trained: tuple[TrainConfig, Path]) -> None:
    model = KernelModel.load(trained[1])
    assert np.median(np.abs(errors(model, "t4"))) < 0.06  # strided rows take 30 % longer


def test_calibration_helps_the_device_left_out(
    trained: tuple[TrainConfig, Path], tmp_path: Path
) -> None:
    model = KernelModel.load(trained[1])
    before = np.median(np.abs(errors(model, "l4")))
    found = calibrate_on(model, table(), get_hardware("l4"), ops=20)
    path = found.calibration.save(tmp_path / "l4.json")
    assert path.stat().st_size < 500
    after = np.median(np.abs(errors(model.calibrated(path), "l4")))
    assert after < 0.6 * before
    # another device is left as it was, and it is said
    assert np.array_equal(errors(model.calibrated(path), "t4"), errors(model, "t4"))
    other = model.calibrated(path).predict(table().batch(), get_hardware("t4"))
    assert "the calibration is of l4, not of t4: it is not used" in other.warnings
    with pytest.raises(InputError, match="made with checkpoint"):
        replace(model, identity="another").calibrated(path)
    assert Calibration.load(path).heads == Calibration.load(path).heads


def test_same_seed_same_weights_and_a_second_folder(
    trained: tuple[TrainConfig, Path],
) -> None:
    settings, first = trained
    second = train(settings)
    assert second != first
    one, two = (read_checkpoint(place)["state_dict"] for place in (first, second))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_an_interrupted_run_ends_like_an_unbroken_one(
    trained: tuple[TrainConfig, Path], tmp_path: Path
) -> None:
    settings, first = trained
    short = replace(settings, run=str(tmp_path / "run"))
    place = run_folder(short)
    (place / "config.yaml").write_text((first / "config.yaml").read_text())
    # what the first run left after its last epoch, without the files of its end
    for name in ("prior.pt", "last.ckpt"):
        (place / name).write_bytes((first / name).read_bytes())
    (place / "config.yaml").write_text(
        (first / "config.yaml").read_text().replace(settings.run, short.run)
    )
    assert train(short) == place
    one, two = (read_checkpoint(p)["state_dict"] for p in (first, place))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_wrong_or_newer_checkpoint_is_refused(
    trained: tuple[TrainConfig, Path], tmp_path: Path
) -> None:
    content = read_checkpoint(trained[1])
    content["gnnperf"]["format"] = 99
    torch.save(content, tmp_path / "newer.ckpt")
    with pytest.raises(InputError, match="newer"):
        KernelModel.load(tmp_path / "newer.ckpt")
    (tmp_path / "text.ckpt").write_text("hello")
    with pytest.raises(InputError, match="no checkpoint"):
        KernelModel.load(tmp_path / "text.ckpt")
    with pytest.raises(InputError, match="no such file"):
        KernelModel.load(tmp_path / "absent.ckpt")
    content["gnnperf"]["format"] = 1
    content["gnnperf"]["features"][0][0] = "other"
    torch.save(content, tmp_path / "features.ckpt")
    with pytest.raises(InputError, match="other features"):
        KernelModel.load(tmp_path / "features.ckpt")


def test_an_unknown_group_names_the_groups_there_are(tmp_path: Path) -> None:
    settings = config(tmp_path)
    data = replace(settings.data, leave_out=("h100",))
    with pytest.raises(InputError, match="a100"):
        train(replace(settings, data=data))


def test_nothing_left_to_train_on_is_refused(tmp_path: Path) -> None:
    settings = config(tmp_path)
    data = replace(settings.data, leave_out=("l4", "t4", "a100"))
    with pytest.raises(InputError, match="no kind of work is left"):
        train(replace(settings, data=data))


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_config_is_read(path: Path) -> None:
    assert load_config(path).train.epochs > 0


def test_config_refuses_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("train: {epochs: 0}\n")
    with pytest.raises(InputError, match=r"train\.epochs"):
        load_config(path)
    with pytest.raises(InputError, match="unknown key"):
        load_config(path, ["train.epoch=3"])


def test_intervals_come_from_several_runs(tmp_path: Path) -> None:
    joined = replace(config(tmp_path), intervals=f"{tmp_path / 'a'}, {tmp_path / 'b'}")
    assert [p.parent.name for p in joined.interval_files] == ["a", "b"]
    assert replace(joined, intervals="").interval_files == ()
    with pytest.raises(InputError, match="no such file"):
        train(joined)


def test_interval_factor_covers_nine_in_ten_of_each_group() -> None:
    grid = [float(v) for v in np.linspace(0, 1, 101)]
    scores = [
        {"slot": "a", "quantiles": grid},
        {"slot": "a", "quantiles": [3 * v for v in grid]},
    ]
    factors = interval_factors(scores, ("a", "b"))
    # half of the rows are uniform on [0, 1], half on [0, 3]: 90 % lie below 2.4
    assert factors["a"] == pytest.approx(2.4, abs=0.05)
    assert factors["b"] == factors["a"]


def test_rows_are_left_out_by_group_or_by_single_device() -> None:
    rows = table(2)
    other = replace(rows, device=rows.device.map({"t4": "a100-pcie-80gb"}))
    samples = samples_of(KernelTable.join([rows, other]))
    names = np.array([device.name for device in samples.devices])[samples.rows.device]
    assert set(names[samples.of_groups(["a100-pcie-80gb"])]) == {"a100-pcie-80gb"}
    assert set(names[samples.of_groups(["a100"])]) == {"a100-pcie-40gb", "a100-pcie-80gb"}
    kept = samples.of_groups(["a100-pcie-80gb", "l4"], inside=False)
    assert set(names[kept]) == {"t4", "a100-pcie-40gb"}
