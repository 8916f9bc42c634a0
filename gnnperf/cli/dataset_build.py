"""`gnnperf dataset build TRACE... --out FILE`: own measurements as training data."""

import argparse
from pathlib import Path

from gnnperf.errors import InputError

ENDINGS = (".parquet", ".npz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's options."""
    parser.add_argument(
        "trace",
        nargs="+",
        type=Path,
        metavar="TRACE",
        help="traces, as `gnnperf infer` reads them; for a table also folders of sets of traces",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help=".parquet: a kernel table of every measured op with shapes; .npz: execution graphs",
    )


def run(args: argparse.Namespace) -> int:
    """Read the traces, write a table or graphs, say what was left out."""
    if args.out.suffix not in ENDINGS:
        raise InputError(
            f"cannot write {args.out.suffix or 'a file without an ending'}",
            path=args.out,
            field="--out",
            remedy=f"end it in {' or '.join(ENDINGS)}",
        )
    if args.out.is_dir():
        raise InputError("is a folder", path=args.out, field="--out", remedy="name a file")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    return _graphs(args) if args.out.suffix == ".npz" else _table(args)


def _graphs(args: argparse.Namespace) -> int:
    from gnnperf.graph import save_job
    from gnnperf.traces import read_job

    job = read_job(args.trace)
    save_job(job, args.out)
    print(f"{args.out}: {len(job.graphs)} graphs, {sum(g.num_nodes for g in job.graphs)} nodes")
    return 0


def _table(args: argparse.Namespace) -> int:
    from gnnperf.data.from_traces import table_of_sets, trace_sets
    from gnnperf.data.tables import save_table

    for path in args.trace:
        if not path.exists():
            raise InputError("no such file or folder", path=path, remedy="check the path")
    found = table_of_sets(trace_sets(args.trace))
    built = found.built
    if not len(built.table):
        raise InputError(
            "no op has both shapes and a measured time",
            path=args.trace[0],
            remedy="record with record_shapes=True",
        )
    save_table(built.table, args.out)
    for name, why in found.left_out.items():
        print(f"left out {name}: {why}")
    for name, count in found.rows.items():
        print(f"{count:6d} rows of {name}")
    left_out = sum(built.unknown.values())
    print(
        f"{args.out}: {len(built.table)} rows; left out: {left_out} of unknown size or family,"
        f" {built.unmeasured} without a measured time, {built.collectives} collectives"
    )
    for name, count in sorted(built.unknown.items(), key=lambda item: -item[1])[:10]:
        print(f"  {count:6d} x {name[:90]}")
    return 0
