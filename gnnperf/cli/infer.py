"""`gnnperf infer TRACE...`: the iteration time of a trace, on its own hardware or another."""

import argparse
from pathlib import Path

from gnnperf.cli.steps import add_step_arguments, predict_step

ENGINES = ("gnn", "analytic", "measured")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    add_step_arguments(parser)
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="gnn",
        help="what times device work: the network, formulas alone, or the trace itself (replay)",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="a trained network (default: the one that gnnperf ships)",
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="a fit made by `gnnperf calibrate`"
    )


def run(args: argparse.Namespace) -> int:
    """Predict, print, write what was asked for."""
    return predict_step(args, args.engine, args.checkpoint, args.calibration)
