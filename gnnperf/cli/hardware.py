"""`gnnperf hardware list|show NAME|check FILE`."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gnnperf.config import read_yaml
from gnnperf.errors import InputError
from gnnperf.hardware import (
    Hardware,
    Platform,
    find_hardware,
    get_hardware,
    get_platform,
    list_hardware,
    list_platforms,
    platform_of,
    read_hardware,
    read_platform,
)
from gnnperf.hardware.reading import figures

_WORDS = ("aliases", "kind", "vendor", "architecture", "group", "gpu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every device and platform of the catalogue")
    show = actions.add_parser("show", help="one device or platform, each figure with its source")
    show.add_argument("name", help="a name, an alias, or a YAML file")
    check = actions.add_parser("check", help="check your own YAML file")
    check.add_argument("file", type=Path)
    for action in (listing, show, check):
        action.add_argument("--json", type=Path, metavar="FILE", help="write it as JSON")


def run(args: argparse.Namespace) -> int:
    """Do the action."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    action = {"list": _list, "show": _show, "check": _check}[args.action]
    document = action(args, console)
    if args.json is not None:
        from gnnperf.cli.render import write_json  # the timeline is not needed before

        write_json(document, args.json)
    return 0


def _list(args: argparse.Namespace, console: Console) -> Any:  # noqa: ANN401
    del args
    table = Table(title="Devices (dense peaks in TFLOP/s)", box=None)
    heads = ("name", "group", "SMs", "MHz", "fp32", "tf32", "bf16", "fp8", "GB/s", "GiB", "W")
    for head in heads:
        is_word = head in ("name", "group")
        table.add_column(head, justify="left" if is_word else "right", no_wrap=is_word)
    for hw in list_hardware():
        peak = hw.peak_tflops
        paths = ("fp32_vector", "tf32_tensor", "bf16_tensor", "fp8_tensor")
        numbers = [hw.sm_count, hw.boost_clock_mhz, *(peak.get(path) for path in paths)]
        numbers += [hw.memory_bandwidth_gb_per_s, hw.memory_size_gb, hw.board_power_w]
        table.add_row(hw.name, hw.group, *("" if n is None else f"{n:g}" for n in numbers))
    console.print(table)
    nodes = Table(title="\nPlatforms (GB/s of one device, one direction)", box=None)
    for head in ("name", "device", "per node", "intra-node", "inter-node"):
        nodes.add_column(head)
    for node in list_platforms():
        links = [node.intra_node, node.inter_node]
        ways = [f"{x.name} {x.bandwidth_gb_per_s:g}" if x is not None else "" for x in links]
        nodes.add_row(node.name, node.gpu, str(node.gpus_per_node), *ways)
    console.print(nodes)
    return {
        "devices": [asdict(hw) for hw in list_hardware()],
        "platforms": [asdict(node) for node in list_platforms()],
    }


def _show(args: argparse.Namespace, console: Console) -> Any:  # noqa: ANN401
    item = _named(args.name)
    _print_item(item, console)
    if isinstance(item, Hardware):
        console.print(f"platform: {platform_of(item).name}")
    return asdict(item)


def _named(name: str) -> Hardware | Platform:
    if find_hardware(name) is None:
        known = {key for node in list_platforms() for key in (node.name, *node.aliases)}
        if name in known:
            return get_platform(name)
    return get_hardware(name)


def _check(args: argparse.Namespace, console: Console) -> Any:  # noqa: ANN401
    data = read_yaml(args.file)
    is_platform = "platforms" in data or "gpus_per_node" in data
    items = read_platform(args.file) if is_platform else read_hardware(args.file)
    if not items:
        raise InputError("describes nothing", path=args.file, remedy="see docs/hardware.md")
    for item in items:
        bare = [key for key in figures(item) if key not in item.sources]
        text = f", no source for {', '.join(bare)}" if bare else ", every figure with its source"
        console.print(f"{item.name}: can be used{text}")
    return [asdict(item) for item in items]


def _print_item(item: Hardware | Platform, console: Console) -> None:
    table = Table(title=item.name, title_justify="left", box=None)
    for head in ("figure", "value", "source"):
        table.add_column(head, overflow="fold")
    for key, value in asdict(item).items():
        if key in ("name", "sources", "notes") or value in (None, "", ()):
            continue
        table.add_row(key, _text(value), item.sources.get(key, "" if key in _WORDS else "default"))
    console.print(table)
    if item.notes:
        console.print(f"note: {item.notes}")


def _text(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
