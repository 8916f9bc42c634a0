"""A training run from its config to its checkpoint."""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
import yaml
from numpy.typing import NDArray
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor

from gnnperf import __version__
from gnnperf.checkpoint import save_checkpoint
from gnnperf.data.datamodule import RowsModule
from gnnperf.data.graph_ops import FittedRows, model_ops
from gnnperf.data.graphs import graph_rows, known_graphs
from gnnperf.data.model_graphs import ModelGraph, load_graphs
from gnnperf.data.recordings import RecordedSteps, read_recordings, recorded_on, recorded_ops
from gnnperf.data.rows import Batches, TrainRows, prior_log_time, with_terms
from gnnperf.data.samples import Samples, read_samples, table_files
from gnnperf.data.steps import StepRows, model_step, recorded_steps
from gnnperf.errors import InputError
from gnnperf.hardware import Hardware
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.model import Edges, KernelNetwork, ModelConfig
from gnnperf.nn.prior import KINDS, AnalyticPrior, kind_of
from gnnperf.ops import family_names
from gnnperf.training.config import DataGroup, TrainConfig, run_folder
from gnnperf.training.module import ResidualModule
from gnnperf.training.prior_fit import fit_prior
from gnnperf.training.scores import (
    COVERAGE,
    SHORT_US,
    Errors,
    errors_of,
    figures,
    interval_factors,
    model_errors,
    quantiles_by_slot,
)

I64 = NDArray[np.int64]
SLOT_ROWS = 20
"""fewer rows than this give a kind of work no residual of its own"""
Tell = Callable[[str, int, int], None]


def _silent(what: str, done: int, total: int) -> None:
    return None


def train(config: TrainConfig, tell: Tell = _silent, bar: bool = False) -> Path:
    """Fit the prior, train the residual, score what was left out, write the checkpoint.

    Args:
        config: The run. An unfinished run of the same config in its folder is resumed.
        tell: Called with the name of a stage, steps done and steps in all.
        bar: Show Lightning's progress bar.

    Returns:
        The folder of the run: model.ckpt, card.json, card.md, config.yaml, scores.json.

    Raises:
        InputError: No data, an unknown group, or a folder that cannot be written.
    """
    _check_intervals(config)
    torch.set_num_threads(config.threads)
    pl.seed_everything(config.seed, workers=True, verbose=False)
    recorded = recordings_of(config.data)
    more = recorded_ops(recorded) if recorded else None
    samples = read_samples(config.data.path, config.data.rows_per_cell, config.seed, more)
    _check_groups(config, samples)
    folder = run_folder(config)
    (folder / "config.yaml").write_text(yaml.safe_dump(config.plain(), sort_keys=False))
    inside = samples.of_groups(config.data.leave_out, inside=False)
    used = inside[~samples.held[inside]]
    network, x = _network(config, samples, used)
    if not network.config.slots:
        raise InputError(
            f"no kind of work is left with {SLOT_ROWS} rows to train on",
            path=config.data.path,
            field="data.leave_out",
            remedy="leave out less or give more rows",
        )
    graphs = _graphs(config)
    fitted = _fitted(x, samples, used).joined(model_ops(network.config, graphs))
    _prior_stage(_Run(config, folder, tell), network.prior, fitted)
    rows, slot = _scaled(network, x, samples, used, fitted)
    trained = used[slot[used].numpy() >= 0]
    steps = [step for one in recorded for step in recorded_steps(network, one)]
    steps = [step for step in steps if step.group not in config.data.leave_out]
    known = [(g, h) for g, h in graphs if h.name in network.config.devices]
    shown = [graph_rows(network, g, h) for g, h in known]
    shown += [step.rows for step in steps if step.rows.edges.index.shape[1]]
    seen = [*steps, *(s for g, h in known if (s := model_step(network, g, h)) is not None)]
    batches = Batches(
        rows.take(torch.from_numpy(trained)), shown, config.train.batch_size, config.seed
    )
    _residual_stage(config, folder, network, (batches, seen), bar)
    card = _score(config, folder, network, rows, samples, slot.numpy())
    card["models"] = _score_models(config, folder, network, graphs)
    traces = {samples.traces[i] for i in np.unique(samples.trace[trained]).tolist()} - {""}
    card["workloads"] = sorted({step.group for step in steps} | traces)
    save_checkpoint(network, folder, card, config.plain())
    if config.output:
        target = Path(config.output)
        target.mkdir(parents=True, exist_ok=True)
        for name in ("model.ckpt", "card.json", "card.md"):
            shutil.copyfile(folder / name, target / name)
    return folder


def _scaled(
    network: KernelNetwork, x: Inputs, samples: Samples, used: I64, fitted: FittedRows
) -> tuple[TrainRows, Tensor]:
    """All rows with the fitted prior's terms, scaled by those used, and their slots.

    The devices' offsets are those of all rows that the prior was fitted to.
    """
    features, slot, log_prior = with_terms(network, samples.rows, x)
    network.fit_scaling(features[used], slot[used])
    measured = torch.from_numpy(samples.log_time)
    error = fitted.log_time - prior_log_time(network, fitted.x)
    network.fit_offsets(fitted.x, network.slots_of(fitted.x), error)
    safe = slot.clamp(min=0)
    rows = TrainRows(
        torch.where(slot.unsqueeze(1) >= 0, network.standardize(features, safe), 0.0),
        safe,
        log_prior + network.offsets(x, slot),
        torch.arange(len(samples)),
        measured,
        torch.from_numpy(samples.weight),
        Edges.none(),
    )
    return rows, slot


def recordings_of(data: DataGroup) -> list[RecordedSteps]:
    """The recordings of a run, those of devices left out not among them.

    Raises:
        InputError: No manifest, or a trace cannot be read.
    """
    found = list(read_recordings(data.recordings)) if data.recordings else []
    devices = [recorded_on(one) for one in found]
    return [
        one
        for one, device in zip(found, devices, strict=True)
        if device is not None and device.group not in data.leave_out
    ]


def _graphs(config: TrainConfig) -> list[tuple[ModelGraph, Hardware]]:
    files = [file for file in (config.data.graphs, config.data.synthetic) if file]
    return known_graphs([graph for file in files for graph in load_graphs(file)])


def _check_intervals(config: TrainConfig) -> None:
    for scores in config.interval_files:
        if not scores.exists():
            raise InputError(
                "no such file",
                path=scores,
                field="intervals",
                remedy="run `gnnperf train --config configs/loo.yaml --leave-out each` first",
            )


def _left_out_scores(config: TrainConfig) -> dict[str, list[dict[str, Any]]]:
    """The entries of all runs that set the intervals, joined by name."""
    joined: dict[str, list[dict[str, Any]]] = {}
    for file in config.interval_files:
        for name, entries in json.loads(file.read_text()).items():
            joined.setdefault(name, []).extend(entries)
    return joined


def _check_groups(config: TrainConfig, samples: Samples) -> None:
    known = [*samples.groups, *filter(None, samples.traces), *(d.name for d in samples.devices)]
    for name in config.data.leave_out:
        if name not in known:
            raise InputError(
                f"no row of the group, trace or device {name!r}",
                field="data.leave_out",
                remedy=f"of this data: {', '.join(known)}",
            )


def _network(config: TrainConfig, samples: Samples, used: I64) -> tuple[KernelNetwork, Inputs]:
    """The untrained network (equal to its prior) and all rows as its inputs."""
    trained = np.unique(samples.rows.device[used])
    devices = tuple(samples.devices[i].name for i in trained)
    codes = np.full(len(samples.devices), -1, np.int64)
    codes[trained] = np.arange(len(trained))
    x = Inputs.of(samples.rows, codes)
    pairs = kind_of(x)[used] * 1000 + x.family[used]
    values, counts = torch.unique(pairs, return_counts=True)
    slots = tuple(
        f"{KINDS[pair // 1000]}/{family_names()[pair % 1000]}"
        for pair, count in zip(values.tolist(), counts.tolist(), strict=True)
        if count >= SLOT_ROWS
    )
    m = config.model
    model = ModelConfig(
        devices, samples.variants, slots, m.hidden, m.layers, m.members, m.bound, m.dropout
    )
    return KernelNetwork(model), x


def _fitted(x: Inputs, samples: Samples, rows: I64) -> FittedRows:
    """Rows to fit the prior to: cells of few rows are drawn more often, short launches less."""
    cell = samples.rows.device[rows] * 1000 + samples.label[rows]
    _, place, count = np.unique(cell, return_inverse=True, return_counts=True)
    weight = torch.from_numpy((samples.weight[rows] / np.sqrt(count[place])).astype(np.float32))
    index = torch.from_numpy(rows)
    return FittedRows(x.take(index), torch.from_numpy(samples.log_time)[index], weight)


class _Run(NamedTuple):
    config: TrainConfig
    folder: Path
    tell: Tell


def _prior_stage(run: _Run, prior: AnalyticPrior, rows: FittedRows) -> None:
    """Fit the prior, or read it where an interrupted run had fitted it."""
    config, saved = run.config, run.folder / "prior.pt"
    if saved.exists():
        prior.load_state_dict(torch.load(saved, weights_only=True))
        return
    fit_prior(
        prior,
        rows.x,
        (rows.log_time, rows.weight),
        config.prior,
        config.seed,
        lambda done, total: run.tell("prior", done, total),
    )
    torch.save(prior.state_dict(), saved)


def _residual_stage(
    config: TrainConfig,
    folder: Path,
    network: KernelNetwork,
    data: tuple[Batches, list[StepRows]],
    bar: bool,
) -> None:
    """Train the residual networks; resumes from last.ckpt."""
    batches, steps = data
    module = ResidualModule(network, config.train, config.train.epochs * len(batches), steps)
    last = folder / "last.ckpt"
    keep = ModelCheckpoint(folder, save_top_k=0, save_last=True, every_n_epochs=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=config.train.epochs,
            callbacks=[keep],
            logger=_logger(config, folder),
            enable_progress_bar=bar,
            enable_model_summary=False,
            gradient_clip_val=1.0,
            reload_dataloaders_every_n_epochs=1,
            default_root_dir=folder,
            log_every_n_steps=10,
        )
        resume = last if last.exists() else None
        trainer.fit(module, RowsModule(batches), ckpt_path=resume, weights_only=False)


def _logger(config: TrainConfig, folder: Path) -> Any:  # noqa: ANN401
    """Weights & Biases; its package is imported only here, when a run is tracked."""
    if config.wandb == "disabled":
        return False
    from pytorch_lightning.loggers import WandbLogger

    return WandbLogger(
        name=folder.name,
        save_dir=folder,
        project="gnnperf",
        offline=config.wandb == "offline",
        config=config.plain(),
    )


def _score(
    config: TrainConfig,
    folder: Path,
    network: KernelNetwork,
    rows: TrainRows,
    samples: Samples,
    slot: I64,
) -> dict[str, Any]:
    """Figures of the groups left out and of unseen shapes; intervals; the card."""
    slots = network.config.slots
    outside = samples.of_groups(config.data.leave_out)
    outside = outside[slot[outside] >= 0]
    unseen = samples.of_groups(config.data.leave_out, inside=False)
    unseen = unseen[samples.held[unseen] & (slot[unseen] >= 0)]
    judged = _scored(samples, outside if len(outside) else unseen)
    errors = _errors(network, rows, samples, judged)
    quantiles = quantiles_by_slot(errors, slot[judged], slots)
    left_out = _left_out_scores(config) or {"quantiles": quantiles, "left_out": []}
    factors = interval_factors(left_out["quantiles"], slots)
    network.factor.copy_(torch.tensor([factors[name] for name in slots]))
    own = _by_cell(samples, judged, errors)
    shapes = _scored(samples, unseen)
    known = _errors(network, rows, samples, shapes)
    scores = {
        "quantiles": quantiles,
        "left_out": own if len(outside) else [],
        "unseen_shapes": _by_cell(samples, shapes, known),
    }
    (folder / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
    figures_left_out = left_out["left_out"] or scores["left_out"]
    return {
        "version": __version__,
        "coverage": COVERAGE,
        "rows": int((~samples.held).sum() - (~samples.held[outside]).sum()),
        "devices": list(network.config.devices),
        "left_out_text": (
            f"The figures are of other, smaller runs, each without one group ({config.intervals})."
            if config.intervals
            else f"Left out: {', '.join(config.data.leave_out) or 'nothing but shapes'}."
        ),
        "left_out": figures_left_out,
        "intervals": left_out.get("intervals", []),
        "unseen_shapes": scores["unseen_shapes"],
        "data": {file.name: _sha256(file) for file in table_files(config.data.path)},
        "config": config.plain(),
    }


def _errors(network: KernelNetwork, rows: TrainRows, samples: Samples, chosen: I64) -> Errors:
    """Errors of some rows as a device that was (or was not) trained on is served."""
    known = np.array([device.name in network.config.devices for device in samples.devices])
    device = torch.from_numpy(known[samples.rows.device[chosen]].astype(np.int64) - 1)
    part = rows.take(torch.from_numpy(chosen))
    in_model = torch.from_numpy(samples.rows.in_model[chosen])
    return errors_of(network, part, network.trust(device, in_model, part.slot))


def _score_models(
    config: TrainConfig,
    folder: Path,
    network: KernelNetwork,
    graphs: list[tuple[ModelGraph, Hardware]],
) -> list[dict[str, Any]]:
    """Errors of the ops of models on devices that were left out, with and without messages."""
    left_out = config.data.leave_out
    outside = [(g, h) for g, h in graphs if h.group in left_out or h.name in left_out]
    found = model_errors(network, outside)
    scores = json.loads((folder / "scores.json").read_text()) | {"models": found}
    (folder / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
    if not config.intervals:
        return found
    return _left_out_scores(config)["models"]


def _scored(samples: Samples, rows: I64) -> I64:
    long = np.exp(samples.log_time[rows]) >= SHORT_US
    chosen: I64 = rows[long | (samples.rows.launch_included[rows] == 0)]
    return chosen


def _by_cell(samples: Samples, rows: I64, errors: Errors) -> list[dict[str, Any]]:
    """One entry for each group and reported family with at least 20 rows."""
    found = []
    for group in range(len(samples.groups)):
        for label in range(len(samples.labels)):
            chosen = np.flatnonzero((samples.group[rows] == group) & (samples.label[rows] == label))
            if len(chosen) >= 20:
                names = {"group": samples.groups[group], "label": samples.labels[label]}
                found.append({**names, **figures(errors, chosen)})
    return found


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
