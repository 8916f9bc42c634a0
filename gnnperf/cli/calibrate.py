"""`gnnperf calibrate`: fit a trained network to one device by a few measured ops of it."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument(
        "table", type=Path, metavar="TABLE", help="kernel table (parquet) of measured ops"
    )
    parser.add_argument("--hardware", required=True, metavar="NAME", help="device measured")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="calibration file")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="default: as shipped")
    parser.add_argument(
        "--ops", type=int, metavar="N", help="use N of the rows, drawn evenly over their families"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Fit, write, tell what it changed on the rows used."""
    from gnnperf.api import default_checkpoint
    from gnnperf.data.calibrate import calibrate_on
    from gnnperf.data.tables import load_table
    from gnnperf.hardware import get_hardware
    from gnnperf.nn.predict import KernelModel

    model = KernelModel.load(args.checkpoint or default_checkpoint())
    hardware = get_hardware(args.hardware)
    found = calibrate_on(model, load_table(args.table), hardware, args.ops, args.seed)
    found.calibration.save(args.out)
    size = args.out.stat().st_size
    rows = ", ".join(f"{n} {kind}" for kind, n in found.calibration.rows.items())
    print(
        f"{args.out}: {size} bytes from {rows} ops of {hardware.name}; median error on these "
        f"{found.before:.1f} % before, {found.after:.1f} % after"
    )
    return 0
