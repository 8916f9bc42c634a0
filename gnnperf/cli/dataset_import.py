"""`gnnperf dataset import`: public tables of measurements into gnnperf's own format."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

SOURCES = ("neusight", "aiconfigurator", "pipeweave")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("source", choices=SOURCES, help="whose layout it is")
    parser.add_argument("path", type=Path, help="the folder (or table) as it was published")
    parser.add_argument(
        "--out", type=Path, default=Path("imported"), metavar="DIR", help="default: imported"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Write DIR/SOURCE.parquet (and DIR/SOURCE-models.npz) and say what was left out."""
    from gnnperf.data.imports import import_tables

    error = Console(stderr=True)
    with Progress(console=error, disable=args.quiet or not error.is_terminal) as progress:
        task = progress.add_task(f"reading {args.source}", total=None)
        result = import_tables(
            args.source, args.path, args.out, lambda rows: progress.update(task, advance=rows)
        )
    console = Console()
    for line in result.lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    for path in result.files:
        console.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)
    if args.json is not None:
        from gnnperf.cli.render import write_json

        write_json(result.to_json(), args.json)
    return 0
