"""`gnnperf dataset synth`: graphs labelled by the analytic simulator with noise."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's options."""
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="graphs (.npz)")
    parser.add_argument("--count", type=int, default=200, help="number of graphs (default: 200)")
    parser.add_argument(
        "--hardware", nargs="+", metavar="NAME", help="devices to draw from (default: all GPUs)"
    )
    parser.add_argument("--dtype", default="float32", help="element type (default: float32)")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")


def run(args: argparse.Namespace) -> int:
    """Make the graphs and write them."""
    from gnnperf.data.model_graphs import save_graphs
    from gnnperf.data.synth import synthetic_graphs
    from gnnperf.errors import InputError
    from gnnperf.graph import dtype_index
    from gnnperf.hardware import get_hardware, list_hardware

    if args.count < 1:
        raise InputError(f"{args.count} is no number of graphs", field="--count")
    if not dtype_index(args.dtype):
        raise InputError(f"unknown element type {args.dtype!r}", field="--dtype")
    devices = [get_hardware(name) for name in args.hardware or ()]
    devices = devices or [device for device in list_hardware() if device.kind == "gpu"]
    graphs = synthetic_graphs(devices, args.count, args.seed, args.dtype)
    try:
        save_graphs(graphs, args.out)
    except OSError as why:
        raise InputError(why.strerror or str(why), path=args.out, field="--out") from why
    nodes = sum(len(graph) for graph in graphs)
    print(f"{args.out}: {len(graphs)} graphs, {nodes} ops, labels: simulated with noise")
    return 0
