"""`gnnperf dataset build TRACE... --out FILE`: own measurements as training data."""

import argparse
from pathlib import Path

from gnnperf.errors import InputError

ENDINGS = (".parquet", ".npz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's options."""
    parser.add_argument(
        "trace", nargs="+", type=Path, metavar="TRACE", help="traces, as `gnnperf infer` reads them"
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
    from gnnperf.graph import save_job
    from gnnperf.traces import read_job

    if args.out.suffix not in ENDINGS:
        raise InputError(
            f"cannot write {args.out.suffix or 'a file without an ending'}",
            path=args.out,
            field="--out",
            remedy=f"end it in {' or '.join(ENDINGS)}",
        )
    job = read_job(args.trace)
    if args.out.is_dir():
        raise InputError("is a folder", path=args.out, field="--out", remedy="name a file")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if args.out.suffix == ".npz":
        save_job(job, args.out)
        print(f"{args.out}: {len(job.graphs)} graphs, {sum(g.num_nodes for g in job.graphs)} nodes")
        return 0

    from gnnperf.data.from_traces import table_of
    from gnnperf.data.tables import save_table

    built = table_of(job)
    if not len(built.table):
        raise InputError(
            "no op has both shapes and a measured time",
            path=args.trace[0],
            remedy="record with record_shapes=True",
        )
    save_table(built.table, args.out)
    left_out = sum(built.unknown.values())
    print(
        f"{args.out}: {len(built.table)} rows; left out: {left_out} of unknown size or family,"
        f" {built.unmeasured} without a measured time"
    )
    for name, count in sorted(built.unknown.items(), key=lambda item: -item[1])[:10]:
        print(f"  {count:6d} x {name[:90]}")
    return 0
