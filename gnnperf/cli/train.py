"""`gnnperf train --config FILE`: fit the prior and train the network; resumes what was stopped."""

import argparse
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, TaskID

if TYPE_CHECKING:
    from gnnperf.training.fit import Tell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="YAML config")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set one key of the config, e.g. train.epochs=5 (may be given again)",
    )
    parser.add_argument("--data", metavar="DIR", help="kernel tables; the same as data.path")
    parser.add_argument("--run", metavar="DIR", help="folder of the run; the same as run")
    parser.add_argument(
        "--leave-out",
        metavar="GROUP",
        help="a device group that is not trained on; `each`: one run without each group in turn",
    )
    parser.add_argument(
        "--wandb",
        choices=("offline", "online", "disabled"),
        help="tracking by Weights & Biases (default: as the config says, else offline)",
    )


def run(args: argparse.Namespace) -> int:
    """Train, print where the checkpoint is."""
    from gnnperf.training import load_config, train
    from gnnperf.training.leave_out import leave_each_out

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    settings = list(args.set)
    each = args.leave_out == "each"
    for key, value in (("data.path", args.data), ("run", args.run), ("wandb", args.wandb)):
        if value is not None:
            settings.append(f"{key}={value}")
    if args.leave_out and not each:
        settings.append(f"data.leave_out=[{args.leave_out}]")
    config = load_config(args.config, settings)
    error = Console(stderr=True)
    bar = error.is_terminal and not args.quiet
    started = time.monotonic()
    with Progress(console=error, disable=not bar, transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def telling(group: str) -> "Tell":
            def tell(stage: str, done: int, total: int) -> None:
                name = f"{group} {stage}".strip()
                if name not in tasks:
                    tasks[name] = progress.add_task(name, total=total)
                progress.update(tasks[name], completed=done)
                if done == total:
                    progress.remove_task(tasks[name])

            return tell

        place = leave_each_out(config, telling, bar) if each else train(config, telling(""), bar)
    print(f"{place} ({time.monotonic() - started:.0f} s)")
    return 0
