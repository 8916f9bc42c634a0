"""A trained network as a file with its card (JSON and text) beside it."""

import json
from pathlib import Path
from typing import Any

import torch

from gnnperf import __version__
from gnnperf.nn.model import KernelNetwork
from gnnperf.nn.stored import (
    FORMAT,
    build,
    checkpoint_file,
    feature_list,
    header,
    identity,
    read_checkpoint,
)

__all__ = [
    "FORMAT",
    "build",
    "checkpoint_file",
    "feature_list",
    "identity",
    "read_checkpoint",
    "save_checkpoint",
]


def save_checkpoint(
    network: KernelNetwork, folder: str | Path, card: dict[str, Any], config: dict[str, Any]
) -> Path:
    """Write model.ckpt, card.json and card.md into a folder; returns the checkpoint's path.

    Args:
        network: What is saved.
        folder: Made if it does not exist.
        card: Data, hashes, figures on left-out groups; plain values.
        config: The resolved config of the run, plain values.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    head = header(network) | {"config": config, "card": card, "version": __version__}
    state = {f"network.{name}": value for name, value in network.state_dict().items()}
    torch.save({"gnnperf": head, "state_dict": state}, place / "model.ckpt")
    text = json.dumps(card, indent=1, sort_keys=True, allow_nan=False)
    (place / "card.json").write_text(text + "\n", encoding="utf-8")
    (place / "card.md").write_text(card_text(card), encoding="utf-8")
    return place / "model.ckpt"


def card_text(card: dict[str, Any]) -> str:
    """The card for people."""
    lines = [
        "# Kernel model of gnnperf",
        "",
        f"gnnperf {card['version']}, checkpoint format {FORMAT}, target: microseconds of device "
        f"time, {100 * card['coverage']:.0f} % intervals.",
        "",
        f"Trained on {card['rows']:,} rows of {len(card['devices'])} devices "
        f"({', '.join(card['devices'])}). {card['left_out_text']}",
        "",
        "Median absolute percentage error, mean over the device groups left out (never training "
        "error); rows timed with their launch count from 50 us:",
        "",
        "| family | group left out | rows | prior alone | edge-free | network | bias |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in card["left_out"]:
        lines.append(
            f"| {row['label']} | {row['group']} | {row['n']} | {row['prior']:.1f} "
            f"| {row['edge_free']:.1f} | {row['network']:.1f} | {row['bias']:+.1f} |"
        )
    lines += ["", "Data: " + "; ".join(f"{k} sha256 {v[:16]}" for k, v in card["data"].items())]
    return "\n".join(lines) + "\n"
