"""Which network scores a device: one for all, or the one that never saw the device's group."""

import json
from pathlib import Path

from gnnperf.api.predictor import Predictor, default_checkpoint
from gnnperf.data.splits import device_group
from gnnperf.errors import InputError
from gnnperf.hardware import Hardware

EACH = "each"
"""Value of `leave_out`: every row is scored by the network that was trained without its group."""


class Networks:
    """The networks of a checkpoint, loaded when they are first asked for.

    A group's network is the checkpoint itself if it never saw the group, else the one in the
    folder GROUP below it, as `gnnperf train --leave-out each` leaves them.
    """

    def __init__(self, checkpoint: Path | None, leave_out: str | None) -> None:
        self.place = checkpoint or default_checkpoint()
        self.leave_out = leave_out
        self.loaded: dict[str, Predictor] = {}
        """by group left out, "" for none"""

    def of(self, hardware: Hardware) -> Predictor:
        """The network for a device; raises InputError if there is none without its group."""
        return self.without("" if self.leave_out is None else hardware.group)

    def without(self, group: str) -> Predictor:
        """The network that never saw a group, "" for the checkpoint's own."""
        if group not in self.loaded:
            self.loaded[group] = self._load(group)
        return self.loaded[group]

    def _load(self, group: str) -> Predictor:
        if not group:
            return Predictor.load(self.place)
        folder = self.place if self.place.is_dir() else self.place.parent
        own = self.place.is_file() or (folder / "model.ckpt").is_file()
        for place in ([self.place] if own else []) + [folder / group]:
            if place.exists():
                found = Predictor.load(place)
                if group not in seen_groups(found):
                    _set_intervals(found, folder, group)
                    return found
        raise InputError(
            f"no network without the group {group}, neither itself nor the folder {group} in it",
            path=self.place,
            remedy=f"train one with `gnnperf train --leave-out {group}` and give its run folder",
        )

    def identity(self) -> str | dict[str, str] | None:
        """Of the one network, or of each one by the group it never saw."""
        names = {g: p.model.identity for g, p in self.loaded.items() if p.model is not None}
        return names.get("") or (names or None)


def seen_by(predictor: Predictor) -> tuple[str, ...]:
    """The devices that a predictor's network was trained on."""
    return () if predictor.model is None else tuple(predictor.model.network.config.devices)


def seen_groups(predictor: Predictor) -> set[str]:
    """The groups of devices and of recordings that a predictor's network was trained on."""
    card = {} if predictor.model is None else predictor.model.card
    return {device_group(d) for d in seen_by(predictor)} | set(card.get("workloads", ()))


def _set_intervals(predictor: Predictor, folder: Path, group: str) -> None:
    """Let the errors of the other groups of a run alone set the intervals, where there are any.

    A run's own checkpoint has the factors that its left-out rows justify: those that are scored.
    """
    files = [f for f in sorted(folder.glob("*/scores.json")) if f.parent.name != group]
    quantiles = [q for f in files for q in json.loads(f.read_text("utf-8"))["quantiles"]]
    if predictor.model is None or not quantiles:
        return
    from gnnperf.training.scores import interval_factors  # torch is not needed before

    network = predictor.model.network
    factors = interval_factors(quantiles, network.config.slots)
    for index, slot in enumerate(network.config.slots):
        network.factor[index] = factors[slot]
