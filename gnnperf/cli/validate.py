"""`gnnperf validate TRACE...`: what traces hold, how it hangs together, and what is wrong."""

import argparse
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gnnperf.traces.validate import CHECKS, FileReport, Report, validate

_PIPE_WIDTH = 160
_SHOWN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="files, folders or archives of one job: Kineto, execution trace, Chakra, own graphs",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Read, check, print."""
    report = validate(args.traces)
    if args.json is not None:
        from gnnperf.cli.render import write_json  # the timeline is not needed before

        write_json(asdict(report), args.json)
    if args.quiet:
        return 0
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    console.print(_files(report))
    console.print()
    console.print(_links(report))
    console.print()
    for file in report.files[:_SHOWN]:
        _detail(file, console)
    if len(report.files) > _SHOWN:
        console.print(f"... and {len(report.files) - _SHOWN} more files (--json has them all)")
    console.print()
    console.print(_checks(report))
    console.print(f"Steady steps: {', '.join(map(str, report.steady_steps))}")
    return 0


def _files(report: Report) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("file", "format", "schema", "device", "rank", "steps", "found by"):
        table.add_column(head, overflow="fold")
    for file in report.files[:_SHOWN]:
        table.add_row(
            escape(file.file),
            escape(file.format),
            escape(file.schema),
            escape(file.device or f"({file.device_type}, no name)"),
            f"{file.rank} of {file.world_size}",
            str(file.steps),
            file.step_delimiter,
        )
    return table


def _links(report: Report) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("rank", justify="right")
    counted = ("host ops", "with shapes %", "runtime calls", "kernels", "collectives", "copies")
    for head in (*counted, "kernels with op %", "with shapes %"):
        table.add_column(head, justify="right")
    for file in report.files[:_SHOWN]:
        links = file.links
        counts = (links.runtime_calls, links.kernels, links.collectives, links.copies)
        table.add_row(
            str(file.rank),
            str(links.host_ops),
            _share(file.host_ops_with_shapes_pct),
            *map(str, counts),
            _share(file.kernels_with_op_pct),
            _share(file.kernels_with_shapes_pct),
        )
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _detail(file: FileReport, console: Console) -> None:
    name = escape(file.file)
    launched = file.device_with_launch_pct
    share = "" if launched is None else f" ({launched:g} % with a launch)"
    lines = [f"links: {file.linked_by}{share}"]
    if file.versions:
        lines.append("versions: " + ", ".join(f"{k} {v}" for k, v in file.versions.items()))
    if file.left_out:
        lines.append("left out: " + ", ".join(f"{v} {k}" for k, v in file.left_out.items()))
    if "execution_trace_link" in file.notes:
        lines.append(f"execution trace joined: {file.notes['execution_trace_link']}")
    lines += [f"warning: {w}" for w in file.warnings]
    for line in lines:
        console.print(f"[dim]{name}[/dim] {escape(line)}")


def _checks(report: Report) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("check")
    table.add_column("count", justify="right")
    table.add_column("counts")
    for name, meaning in CHECKS.items():
        count = report.checks.get(name)
        style = "yellow" if count else ""
        table.add_row(name, "-" if count is None else str(count), meaning, style=style)
    return table
