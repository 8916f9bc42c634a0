"""What `infer` and `simulate` share: options, reading, printing, writing."""

import argparse
from pathlib import Path

from gnnperf.errors import InputError

ONE_THREAD = 50_000
"""Pieces of device work below which one thread is used: they take less than a second, and the
threads of a pool that share busy cores wait for one another (ten times as long was seen)."""
MAX_SCALE = 1e6
"""Longer work is a typing error, and far beyond what any device could be."""


def add_step_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every verb that predicts a step."""
    parser.add_argument(
        "trace",
        nargs="+",
        type=Path,
        metavar="TRACE",
        help="trace files of any format that gnnperf reads, folders of ranks, archives, graphs",
    )
    parser.add_argument(
        "--hardware",
        metavar="NAME|FILE",
        help="GPU to predict for (`gnnperf hardware list`), or a YAML file; default: the trace's",
    )
    parser.add_argument(
        "--step", type=int, metavar="K", help="step of the trace (default: the median steady one)"
    )
    parser.add_argument(
        "--kernel-scale",
        type=_scale,
        default=1.0,
        metavar="X",
        help="all device work takes X times as long (0: for free)",
    )
    parser.add_argument(
        "--no-contention",
        action="store_true",
        help="work that overlaps on several streams runs as fast as alone",
    )
    parser.add_argument(
        "--cpu",
        metavar="NAME|FACTOR",
        help="host of the target: a CPU (epyc-9654), or its single-thread speed over the "
        "recorded one (1.5); default: the recorded host",
    )
    parser.add_argument(
        "--evidence",
        type=_trust,
        metavar="auto|X",
        help="how far the trace's kernel times are believed on the target, 0 to 1; auto: 0.75 on "
        "a GPU of the source's group, else 0",
    )
    parser.add_argument("--top", type=_count, default=10, metavar="N", help="rows of the op table")
    parser.add_argument(
        "--timeline", type=Path, metavar="FILE", help="write the computed timeline for Perfetto"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")


def one_thread() -> None:
    """Let torch compute on the calling thread alone."""
    import torch

    torch.set_num_threads(1)


def _scale(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_SCALE:
        raise argparse.ArgumentTypeError(f"{text!r} is no factor from 0 to {MAX_SCALE:,.0f}")
    return value


def _trust(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor a number from 0 to 1")
    return value


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return int(text)


def predict_step(
    args: argparse.Namespace, engine: str, checkpoint: Path | None, calibration: Path | None
) -> int:
    """Read the trace, predict one step, print it, write what was asked for."""
    from gnnperf.api import Options, Predictor
    from gnnperf.api.jobs import chosen_step, recorded_time
    from gnnperf.cli.render import console, print_prediction, write_json, write_timeline

    job = chosen_step(args.trace, args.step)
    if engine == "gnn":
        predictor = Predictor.load(checkpoint, calibration)
        if sum(len(graph.device_nodes) for graph in job.graphs) < ONE_THREAD:
            one_thread()
    elif checkpoint is not None or calibration is not None:
        raise InputError(
            f"the {engine} engine takes no checkpoint and no calibration",
            remedy="leave them out, or use --engine gnn",
        )
    else:
        predictor = Predictor.of_engine(engine)
    prediction, result = predictor.predict_with_timeline(
        job,
        args.hardware,
        Options(
            kernel_scale=args.kernel_scale,
            contention=not args.no_contention,
            evidence=args.evidence,
            cpu=args.cpu,
        ),
        measured=recorded_time(args.trace, job),
    )
    print_prediction(prediction, console(), args.top)
    if args.timeline is not None:
        write_timeline(result, args.timeline)
    if args.json is not None:
        write_json(prediction.to_json(), args.json)
    return 0
