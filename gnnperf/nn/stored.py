"""The checkpoint file: plain data and tensors, read with `weights_only=True` against a schema."""

import hashlib
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from gnnperf.errors import InputError
from gnnperf.features import FEATURES, HARDWARE_COLUMNS
from gnnperf.nn.model import KernelNetwork, ModelConfig
from gnnperf.ops import family_names

FORMAT = 1
"""Number of the file's layout; a reader refuses a newer one."""


def feature_list() -> list[list[str]]:
    """Name, unit and transform of every input of the network, then of the hardware row."""
    return [feature.as_text() for feature in (*FEATURES, *HARDWARE_COLUMNS)]


def header(network: KernelNetwork) -> dict[str, Any]:
    """What describes a network in its checkpoint."""
    return {
        "format": FORMAT,
        "model": network.config.plain(),
        "features": feature_list(),
        "families": list(family_names()),
        "target": "us",
    }


def checkpoint_file(path: str | Path) -> Path:
    """The file itself, or `model.ckpt` of a folder."""
    place = Path(path)
    return place / "model.ckpt" if place.is_dir() else place


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint of gnnperf.

    Raises:
        InputError: No file, not a checkpoint of gnnperf, a newer format, or other features.
    """
    file = checkpoint_file(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of foreign pickles: they are refused below
            content = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as why:
        raise InputError("no such file", path=file, remedy="`gnnperf train` makes one") from why
    except (
        OSError,
        RuntimeError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
        EOFError,
        KeyError,
        ValueError,
    ) as why:
        raise InputError(
            f"no checkpoint ({type(why).__name__})",
            path=file,
            remedy="give a file of `gnnperf train`",
        ) from why
    head = content.get("gnnperf") if isinstance(content, dict) else None
    if not isinstance(head, dict) or "format" not in head:
        raise InputError(
            "no checkpoint of gnnperf", path=file, remedy="give one of `gnnperf train`"
        )
    parts = (content.get("state_dict"), head.get("card", {}))
    if not (isinstance(head["format"], int) and all(isinstance(p, dict) for p in parts)):
        raise InputError("a damaged checkpoint", path=file, remedy="train it again")
    if head["format"] > FORMAT:
        raise InputError(
            f"format {head['format']} is newer than {FORMAT}", path=file, remedy="update gnnperf"
        )
    known = (feature_list(), list(family_names()))
    if (head.get("features"), head.get("families")) != known:
        raise InputError(
            "was trained on other features or op families",
            path=file,
            remedy="train it again with this version",
        )
    result: dict[str, Any] = content
    return result


def build(content: dict[str, Any], path: str | Path = "") -> KernelNetwork:
    """The network of a checkpoint, ready to predict.

    Raises:
        InputError: The file's weights are not those of this version's network.
    """
    try:
        network = KernelNetwork(ModelConfig.of(content["gnnperf"]["model"]))
    except (TypeError, KeyError, AttributeError) as why:
        raise InputError(
            "its network is not one of this version",
            path=path or None,
            field="model",
            remedy="train it again with this version",
        ) from why
    prefix = "network."
    weights = {
        name.removeprefix(prefix): value
        for name, value in content["state_dict"].items()
        if name.startswith(prefix)
    }
    for name, value in weights.items():
        if isinstance(value, torch.Tensor) and value.isnan().any():
            raise InputError(
                "weights that are no numbers", path=path or None, field=name, remedy="train again"
            )
    try:
        network.load_state_dict(weights)
    except RuntimeError as why:
        raise InputError(
            "its weights are not those of this version's network",
            path=path or None,
            remedy="train it again with this version",
        ) from why
    return network.eval()


def identity(path: str | Path) -> str:
    """Short name of a checkpoint: the start of its file's sha256."""
    return hashlib.sha256(checkpoint_file(path).read_bytes()).hexdigest()[:16]
