"""The config of a training run: frozen groups, every key explained here."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gnnperf.config import from_mapping, override, read_yaml
from gnnperf.errors import InputError


@dataclass(frozen=True)
class DataGroup:
    """Where the rows come from."""

    path: str = "datasets/imported"
    """folder of kernel tables (`gnnperf dataset import`, `dataset synth`, `dataset build`)"""
    graphs: str = ""
    """file of labelled model graphs (`gnnperf dataset import neusight`); "" for none"""
    synthetic: str = ""
    """file of graphs labelled by the analytic simulator (`gnnperf dataset synth`); "" for none"""
    recordings: str = ""
    """folder of own recordings (manifest.json): their ops inside steps, and their steps' unprofiled
    times for `train.step_weight`; "" for none"""
    rows_per_cell: int = 4000
    """most rows of one (device, reported family, element type)"""
    leave_out: tuple[str, ...] = ()
    """device groups, and groups of recordings (workload-bert), that are not trained on; the figures
    and the intervals come from them"""


@dataclass(frozen=True)
class PriorGroup:
    """Fitting the coefficients of the analytic prior."""

    steps: int = 300
    batch_size: int = 2048
    learning_rate: float = 0.03
    penalty: float = 2.0e-4
    """weight of the squared distance from the starting values"""


@dataclass(frozen=True)
class ModelGroup:
    """Sizes of the residual network."""

    hidden: int = 64
    layers: int = 3
    members: int = 1
    """networks whose mean is the prediction"""
    bound: float = 0.6
    """largest residual of the log time"""
    dropout: float = 0.1


@dataclass(frozen=True)
class TrainGroup:
    """Training the residual network."""

    epochs: int = 20
    batch_size: int = 4096
    learning_rate: float = 2.0e-3
    weight_decay: float = 1.0e-2
    noise: float = 0.2
    """deviation of the noise on standardized inputs"""
    shrink: float = 0.02
    """weight of the squared residual: what the data do not ask for is not added"""
    step_weight: float = 0.0
    """weight of the loss on the time of whole steps, through the timeline, beside that on their
    ops: steps of `data.recordings` and of labelled models (`data.graphs`) whose whole was timed;
    0: no such loss"""
    steps_per_batch: int = 4
    """steps drawn for each batch where `step_weight` is not 0"""


@dataclass(frozen=True)
class TrainConfig:
    """One run."""

    seed: int = 0
    run: str = "runs/run"
    """folder of the run; one that holds another config's run gets a number behind it"""
    output: str = ""
    """also copy the checkpoint and its card here, e.g. checkpoints/default"""
    intervals: str = ""
    """folder of a leave-one-group-out run whose errors set the intervals, or several such with
    commas between (devices: configs/loo.yaml, workloads: configs/workloads.yaml); "" for this
    run's own"""
    threads: int = 1
    """of torch; more than one only helps on cores that nothing else uses"""
    wandb: str = "offline"
    """offline, online or disabled"""
    data: DataGroup = field(default_factory=DataGroup)
    prior: PriorGroup = field(default_factory=PriorGroup)
    model: ModelGroup = field(default_factory=ModelGroup)
    train: TrainGroup = field(default_factory=TrainGroup)

    def __post_init__(self) -> None:
        """Refuse values that cannot be run; the message names the key."""
        for key, value in (
            ("data.rows_per_cell", self.data.rows_per_cell),
            ("threads", self.threads),
            ("prior.steps", self.prior.steps),
            ("prior.batch_size", self.prior.batch_size),
            ("model.hidden", self.model.hidden),
            ("model.layers", self.model.layers),
            ("model.members", self.model.members),
            ("train.epochs", self.train.epochs),
            ("train.batch_size", self.train.batch_size),
            ("train.steps_per_batch", self.train.steps_per_batch),
        ):
            if value < 1:
                raise ValueError(f"{key} must be at least 1, not {value}")
        if not self.train.step_weight >= 0:
            raise ValueError(f"train.step_weight must be at least 0, not {self.train.step_weight}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be from 0 to 4294967295, not {self.seed}")
        if self.wandb not in ("offline", "online", "disabled"):
            raise ValueError(f"wandb must be offline, online or disabled, not {self.wandb!r}")

    @property
    def interval_files(self) -> tuple[Path, ...]:
        """The scores of the runs that set the intervals."""
        folders = (part.strip() for part in self.intervals.split(","))
        return tuple(Path(folder) / "scores.json" for folder in folders if folder)

    def plain(self) -> dict[str, Any]:
        """Nested plain values, as YAML and the checkpoint hold them."""
        values = asdict(self)
        values["data"]["leave_out"] = list(self.data.leave_out)
        return values


def load_config(path: str | Path, settings: list[str] | None = None) -> TrainConfig:
    """A config from YAML with `group.key=value` settings applied.

    Raises:
        InputError: Unknown key, wrong type, or a value that cannot be run.
    """
    return from_mapping(TrainConfig, override(read_yaml(path), settings or []), path)


def run_folder(config: TrainConfig, fresh: bool = False) -> Path:
    """The folder to run in: that of an unfinished run of the same config, else a new one.

    Raises:
        InputError: It cannot be made.
    """
    base = Path(config.run)
    for number in range(1, 10_000):
        place = base if number == 1 else base.with_name(f"{base.name}-{number}")
        if not place.exists():
            try:
                place.mkdir(parents=True)
            except OSError as why:
                raise InputError(why.strerror or str(why), path=place, field="run") from why
            return place
        saved = place / "config.yaml"
        finished = (place / "model.ckpt").exists()
        same = saved.exists() and read_yaml(saved) == config.plain()
        if same and not finished and not fresh:
            return place
    raise InputError("10,000 runs of this name exist", path=base, field="run")
