"""`gnnperf dataset record`: traces of small real workloads, and how long they really take."""

import argparse
from pathlib import Path

from rich.console import Console

from gnnperf.recording import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--out", type=Path, default=Path("recordings"), metavar="DIR", help="default: recordings"
    )
    parser.add_argument(
        "--suite",
        nargs="+",
        default=[],
        metavar="NAME",
        help="workloads or families (bert gpt cnn mlp dlrm ddp inference), or `ops`: single ops "
        "into a kernel table; default: all workloads",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, default=1, help="of an op on the CPU, default 1")
    parser.add_argument("--quick", action="store_true", help="few iterations: to try it out")


def run(args: argparse.Namespace) -> int:
    """Record and say what was measured."""
    from gnnperf.recording.recorder import QUICK, record_set

    console = Console()
    args.out.mkdir(parents=True, exist_ok=True)

    def tell(recording: Recording) -> None:
        measured = recording.measured
        console.print(
            f"{recording.name}: {measured.median_us / 1e3:.3f} ms "
            f"(± {100 * measured.spread:.1f} %), profiled {recording.profiled_us / 1e3:.3f} ms",
            highlight=False,
        )

    effort = QUICK if args.quick else None
    record_set(args.out, args.suite, args.device, args.threads, effort, tell)
    return 0
