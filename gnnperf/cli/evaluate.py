"""`gnnperf evaluate DATA...`: predictions beside measurements, by device, family and type."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

if TYPE_CHECKING:
    from gnnperf.evaluation.run import Evaluation

MAX_STEPS = 40
"""iterations that the table for people shows, the worst ones"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument(
        "data",
        nargs="+",
        type=Path,
        metavar="DATA",
        help="files or folders, recognized by what they hold: NeuSight's or aiconfigurator's "
        "public layout, kernel tables, training plans, collective sweeps, traces with an "
        "iterations.csv, own recordings",
    )
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="default: as shipped")
    parser.add_argument(
        "--leave-out",
        metavar="GROUP",
        help="score only this group of devices (or a device's group), by a network that was "
        "trained without it; `each`: every row by the network that never saw its group",
    )
    parser.add_argument("--engine", choices=("gnn", "analytic"), default="gnn")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="score at most N rows of each kernel table"
    )
    parser.add_argument(
        "--split", metavar="NAME", help="score only rows of this split of their table (dev_val)"
    )
    parser.add_argument(
        "--min-us",
        type=float,
        default=50.0,
        metavar="T",
        help="leave out rows timed with their launch that are shorter than T (default: 50)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Score, print, write what was asked for."""
    from gnnperf.cli.render import write_json
    from gnnperf.errors import InputError
    from gnnperf.evaluation import Settings, evaluate

    if args.limit is not None and args.limit < 1:
        raise InputError(f"{args.limit} is no number of rows", field="--limit", remedy="1 or more")
    settings = Settings(
        args.engine, args.checkpoint, args.leave_out, args.limit, args.split, args.min_us
    )
    error = Console(stderr=True)
    with Progress(console=error, disable=args.quiet or not error.is_terminal) as progress:
        tasks: dict[str, Any] = {}

        def tell(what: str, rows: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(f"scoring {what}", total=None)
            progress.update(tasks[what], advance=rows)

        result = evaluate(args.data, settings, tell)
    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    _print(result, console)
    if args.json is not None:
        write_json(result.to_json(), args.json)
    return 0


def _print(result: "Evaluation", console: Console) -> None:
    if result.kernels:
        console.print(_kernel_table(result.kernels))
        console.print(_family_table(result.summary["by_family"]))
    if result.summary["unseen_model_ops"]:
        console.print(_cell_table(result.summary["unseen_model_ops"]))
    for name, figures in result.summary["class_sums"].items():
        text = f"sum of {name} ops in {figures['n']} models: error mean {figures['mape']:.1f} %"
        peers = (f"{peer} {p['mape']:.1f}" for peer, p in figures["peers"].items())
        text = f"{text} ({', '.join(peers)})"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    if result.context.iterations:
        console.print(_step_table(result))
    for name, figures in result.summary["iterations"].items():
        console.print(_step_line(name, figures), highlight=False, markup=False, soft_wrap=True)
    _caveats(result.summary, console)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _table(title: str, words: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for heading in words:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _kernel_table(entries: tuple[dict[str, Any], ...]) -> Table:
    heads = ("rows", "median", "mean", "bias", "covered", "analytic", "rule", "MLP")
    words = ("device", "trained on", "family", "type", "source", "data")
    table = _table("Errors of kernels in % (median, mean; others: median)", words, heads)
    for e in entries:
        table.add_row(
            e["device"],
            {None: "", True: "yes", False: "no"}[e["seen"]],
            *(e[n] for n in ("family", "dtype", "source", "data")),
            f"{e['n']:,}",
            *(
                _percent(e[n])
                for n in (
                    *("median_ape", "mape", "bias", "coverage"),
                    *("analytic_median_ape", "rule_median_ape", "mlp_median_ape"),
                )
            ),
        )
    return table


def _family_table(entries: list[dict[str, Any]]) -> Table:
    heads = ("rows", "mean of groups' medians", "median", "covered", "analytic", "rule")
    words = ("family", "type", "source", "data")
    table = _table("\nBy family, all devices", words, (*heads, "peers"))
    for e in entries:
        peers = ", ".join(f"{n} {_percent(p['median_ape'])}" for n, p in e["peers"].items())
        names = (
            *("mean_of_group_medians", "median_ape", "coverage"),
            *("analytic_median_ape", "rule_median_ape"),
        )
        table.add_row(
            *(e[n] for n in ("family", "dtype", "source", "data")),
            f"{e['n']:,}",
            *(_percent(e[n]) for n in names),
            peers,
        )
    return table


def _cell_table(cells: list[dict[str, Any]]) -> Table:
    """Ops of models on devices that were not trained on; peers where they published the sums."""
    title = "\nOps inside models, devices not trained on (errors in %)"
    heads = ("ops", "median", "bias", "covered", "analytic", "sums in models", "mean")
    table = _table(title, ("device", "family"), (*heads, "peers"))
    for cell in cells:
        sums = cell["sums"]
        peers = ", ".join(f"{n} {_percent(p['mape'])}" for n, p in sums["peers"].items())
        names = ("median_ape", "bias", "coverage", "analytic_median_ape")
        table.add_row(
            cell["device"],
            cell["family"],
            f"{cell['n']:,}",
            *(_percent(cell[n]) for n in names),
            f"{sums['n']:,}",
            _percent(sums["mape"]),
            peers,
        )
    for device in dict.fromkeys(cell["device"] for cell in cells):
        medians = [cell["median_ape"] for cell in cells if cell["device"] == device]
        mean = sum(medians) / len(medians)
        table.add_row(device, f"mean of {len(medians)}", "", _percent(mean))
    return table


def _step_table(result: "Evaluation") -> Table:
    steps = sorted(result.context.iterations, key=lambda s: -s.ape)
    shown = min(len(steps), MAX_STEPS)
    title = f"\nIterations in ms, the {shown} worst of {len(steps)}"
    heads = ("measured", "predicted", "low", "high", "error %", "analytic")
    table = _table(title, ("id", "device", "data"), heads)
    for s in steps[:shown]:
        times = (s.measured_us, s.predicted_us, s.low_us, s.high_us)
        table.add_row(
            s.id[:60],
            s.device,
            s.data[:24],
            *(f"{us / 1e3:,.2f}" for us in times),
            f"{100 * (s.predicted_us / s.measured_us - 1):+.1f}",
            f"{s.analytic_us / 1e3:,.2f}",
        )
    return table


def _step_line(name: str, figures: dict[str, Any]) -> str:
    text = (
        f"{name}: {figures['n']} steps, error mean {figures['mape']:.1f} %, median "
        f"{figures['median_ape']:.1f} %, bias {figures['bias']:+.1f} %, covered "
        f"{figures['coverage']:.0f} %, analytic {_percent(figures['analytic_mape'])} %"
    )
    if figures["analytic_refitted_mape"] is not None:
        text += (
            f" (one factor from the other groups' steps: {figures['analytic_refitted_mape']:.1f} %)"
        )
    for peer, p in figures["peers"].items():
        ours = p["mape_of_gnnperf_on_the_same"]
        text += f"; {peer} {p['mape']:.1f} / {p['median_ape']:.1f} %, gnnperf there {ours:.1f} %"
    return text


def _caveats(summary: dict[str, Any], console: Console) -> None:
    lines = list(summary["imports"])
    if summary["unknown_devices"]:
        named = ", ".join(f"{n} ({c:,})" for n, c in summary["unknown_devices"].items())
        lines.append(f"rows of devices that the catalogue lacks: {named}")
    lines += [f"{count:,} rows: {why}" for why, count in summary["left_out"].items()]
    lines += [f"{count} not scored: {why}" for why, count in summary["unscored_iterations"].items()]
    for line in lines:
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
