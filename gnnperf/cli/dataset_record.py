"""`gnnperf dataset record`: traces of small real workloads, and how long they really take."""

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from gnnperf.errors import InputError
from gnnperf.hardware import find_hardware
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
    if args.threads < 1:
        raise InputError(f"{args.threads} is too few", field="--threads", remedy="give 1 or more")
    console = Console()
    args.out.mkdir(parents=True, exist_ok=True)
    suites = [name for name in args.suite if name != "ops"]
    if suites or not args.suite:
        _record_workloads(args, suites, console)
    if "ops" in args.suite:
        _record_ops(args, console)
    return 0


def _record_workloads(args: argparse.Namespace, suites: list[str], console: Console) -> None:
    from gnnperf.recording.recorder import QUICK, record_set

    def tell(recording: Recording) -> None:
        measured = recording.measured
        console.print(
            f"{recording.name}: {measured.median_us / 1e3:.3f} ms "
            f"(± {100 * measured.spread:.1f} %), profiled {recording.profiled_us / 1e3:.3f} ms",
            highlight=False,
        )

    effort = QUICK if args.quick else None
    record_set(args.out, suites, args.device, args.threads, effort, tell)


def _record_ops(args: argparse.Namespace, console: Console) -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own lines on stderr
    from gnnperf.data.tables import save_table
    from gnnperf.data.timed_ops import Origin, table_of_ops
    from gnnperf.recording import op_cases, op_timing, recorder
    from gnnperf.recording.manifest import RecordedTable, sha256_of, write_manifest

    device = recorder.device_here(args.device)
    machine = recorder.describe_machine(device)
    manifest = recorder.manifest_for(args.out, machine)
    hardware = find_hardware("cpu" if device == "cpu" else machine.device_name)
    path = args.out / f"ops-{device}-{args.threads}t.parquet"
    with tempfile.TemporaryDirectory() as scratch, _progress(console) as bar:
        trace = Path(scratch) / "ops.json"
        share = 0.001 if args.quick else 1.0  # one size of each op
        task = bar.add_task("ops", total=op_cases.number_of_cases(share))
        times = op_timing.time_ops(
            device, args.threads, trace, share, track=lambda _: bar.advance(task)
        )
        origin = Origin(
            hardware.name if hardware else machine.device_name,
            machine.device_name,
            args.threads,
            machine.versions["torch"],
            path.name,
        )
        table, left_out = table_of_ops(
            trace, op_timing.MARK, times.labels, times.duration_us, origin
        )
    save_table(table, path)
    entry = RecordedTable(
        path.name, sha256_of(path), len(table), left_out, args.threads, 0, op_timing.METHOD
    )
    others = tuple(t for t in manifest.tables if t.file != entry.file)
    write_manifest(replace(manifest, tables=(*others, entry)), args.out)
    console.print(f"{path.name}: {len(table)} ops, {left_out} cases left out", highlight=False)


def _progress(console: Console) -> Progress:
    return Progress(console=console, disable=not console.is_terminal, transient=True)
