"""One run for each device group, trained without it; the figures and intervals of all together."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from gnnperf.config import read_yaml
from gnnperf.data.recordings import recorded_ops
from gnnperf.data.samples import Samples, read_samples
from gnnperf.data.splits import WORKLOAD
from gnnperf.errors import InputError
from gnnperf.training.config import DataGroup, TrainConfig
from gnnperf.training.fit import Tell, recordings_of, train
from gnnperf.training.scores import cross_coverage


def leave_each_out(config: TrainConfig, tell: Callable[[str], Tell], bar: bool = False) -> Path:
    """Run `train` once without each group of devices and of recordings.

    Groups that are done are not run again; one without which nothing is left is not left out.

    Args:
        config: The run; its folder gets one folder for each group and `scores.json`.
        tell: Gives, for a group, what `train` is to call.
        bar: Show Lightning's progress bar.

    Returns:
        The folder; `intervals: FOLDER` in another config takes its intervals from it.

    Raises:
        InputError: The folder holds the runs of another config.
    """
    base = Path(config.run)
    base.mkdir(parents=True, exist_ok=True)
    saved = base / "config.yaml"
    if saved.exists() and read_yaml(saved) != config.plain():
        raise InputError("holds the runs of another config", path=base, remedy="name another run")
    saved.write_text(yaml.safe_dump(config.plain(), sort_keys=False))
    recorded = recordings_of(config.data)
    more = recorded_ops(recorded) if recorded else None
    samples = read_samples(config.data.path, 50, config.seed, more)
    joined: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("quantiles", "left_out", "unseen_shapes", "models")
    }
    for group in samples.groups:
        place = base / group
        if not _remains(config.data, samples, group):
            continue
        if not (place / "model.ckpt").exists():
            data = replace(config.data, leave_out=(group,))
            one = replace(config, run=str(place), output="", intervals="", data=data)
            place = train(one, tell(group), bar)
        scores = json.loads((place / "scores.json").read_text())
        for entry in scores["quantiles"]:
            entry["group"] = group
        for name, values in joined.items():
            values.extend(scores[name])
    joined["intervals"] = cross_coverage(joined["quantiles"])
    (base / "scores.json").write_text(json.dumps(joined, indent=1) + "\n")
    return base


def _remains(data: DataGroup, samples: Samples, group: str) -> bool:
    """Whether rows are left without a group; recordings go with their device."""
    rows = samples.of_groups([group], inside=False)
    if group.startswith(WORKLOAD):
        return len(rows) > 0
    recorded = [name for name in samples.groups if name.startswith(WORKLOAD)]
    kept = recordings_of(replace(data, leave_out=(group,)))
    return len(kept) > 0 or len(samples.of_groups([group, *recorded], inside=False)) > 0
