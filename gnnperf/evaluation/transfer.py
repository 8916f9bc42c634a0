"""What the time of an op on one GPU tells of another: `python -m gnnperf.evaluation.transfer`.

Ops of kernel tables that several GPUs measured: predicted on the target by a network that never
saw the target's group, then multiplied by (measured / predicted on the source) ** trust. Markdown
on standard output: median error by kind of op, nearness of the GPUs, and trust.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnperf.api.predictor import Predictor
from gnnperf.data.tables import F64, I64, KernelTable, Names, load_table
from gnnperf.errors import InputError
from gnnperf.evaluation.kernel_models import NetworkKernels
from gnnperf.evaluation.networks import EACH, Networks
from gnnperf.evaluation.tables import predict_rows
from gnnperf.hardware import Hardware, find_hardware

TRUSTS = (0.0, 0.25, 0.5, 0.75, 1.0)
LEAST_ROWS = 20
"""Ops that a pair of GPUs must have in common."""
SHORT_US = 50.0
"""Rows timed with their launch that are shorter show the host."""
_NEAR = ("one group", "one architecture", "one vendor", "two vendors")


@dataclass(frozen=True, eq=False)
class Pair:
    """Ops that two GPUs measured."""

    target: str
    source: str
    near: str
    kind: NDArray[np.str_]
    """[n] family and type"""
    error: F64
    """[n] log of predicted over measured, on the target"""
    evidence: F64
    """[n] log of measured over predicted, on the source"""


def nearness(a: Hardware, b: Hardware) -> str:
    """How near two GPUs are."""
    if a.group == b.group:
        return _NEAR[0]
    if a.architecture == b.architecture:
        return _NEAR[1]
    return _NEAR[2] if a.vendor == b.vendor else _NEAR[3]


def op_keys(table: KernelTable) -> I64:
    """[n] equal for rows of one op: family, type, dimensions, framework, how it is timed."""
    names = (table.label, table.dtype, table.framework, table.layout, table.source, table.origin)
    columns = [n.codes.astype(np.float64) for n in names] + [table.launch_included.astype(float)]
    whole = np.ascontiguousarray(np.concatenate([np.stack(columns, 1), table.dims], axis=1))
    packed = whole.view(np.dtype((np.void, whole.dtype.itemsize * whole.shape[1]))).ravel()
    keys: I64 = np.unique(packed, return_inverse=True)[1].astype(np.int64)
    return keys


def one_per_op(table: KernelTable) -> tuple[KernelTable, I64]:
    """One row per device and op, of median time, and its key."""
    key = op_keys(table)
    order = np.lexsort((table.duration_us, key, table.device.codes))
    device, sorted_key = table.device.codes[order], key[order]
    new = (device[1:] != device[:-1]) | (sorted_key[1:] != sorted_key[:-1])
    first = np.flatnonzero(np.append(True, new))
    count = np.diff(np.append(first, len(order)))
    chosen = order[first + (count - 1) // 2]
    return table.take(chosen), key[chosen]


def pairs_of(table: KernelTable, networks: Networks, limit: int) -> Iterator[Pair]:
    """Every pair of GPUs of a table.

    Args:
        table: Measured ops.
        networks: Gives the network that never saw a group.
        limit: Ops of a family and type that are drawn for each target.
    """
    batch = table.batch()
    short = table.launch_included & (table.duration_us < SHORT_US)
    table, key = one_per_op(table.take(np.flatnonzero(batch.known & ~short)))
    kind = _kinds(table)
    random = np.random.default_rng(0)
    devices = [(d, h) for d in table.device.present() if (h := find_hardware(d)) is not None]
    for target, hardware in devices:
        mine = np.flatnonzero(table.device.mask(target))
        drawn = [
            random.permutation(mine[kind.codes[mine] == c])[:limit] for c in np.unique(kind.codes)
        ]
        mine = np.sort(np.concatenate(drawn))
        try:
            network = networks.of(hardware)
        except InputError as why:
            sys.stderr.write(f"left out {target}: {why}\n")
            continue
        error = np.log(_times(network, table.take(mine), hardware) / table.duration_us[mine])
        place = dict(zip(key[mine].tolist(), range(len(mine)), strict=True))
        for source, other in devices:
            rows = np.flatnonzero(table.device.mask(source) & np.isin(key, key[mine]))
            if source == target or len(rows) < LEAST_ROWS:
                continue
            there = table.take(rows)
            evidence = np.log(there.duration_us / _times(network, there, other))
            at = np.array([place[k] for k in key[rows].tolist()])
            names = np.array(kind.names)[kind.codes[rows]]
            yield Pair(target, source, nearness(hardware, other), names, error[at], evidence)


def _kinds(table: KernelTable) -> Names:
    width = len(table.dtype.names)
    codes = table.label.codes * width + table.dtype.codes
    names = tuple(f"{a} {b}" for a in table.label.names for b in table.dtype.names)
    return Names(codes.astype(np.int32), names)


def _times(network: Predictor, table: KernelTable, hardware: Hardware) -> F64:
    return predict_rows(NetworkKernels(lambda _: network), table, hardware).time_us


def table_of(pairs: Sequence[Pair]) -> list[str]:
    """Mean over the pairs of the median error in percent, by kind and nearness, and over all."""
    heads = ["op", "GPUs", "pairs", "ops", *(f"trust {t:g}" for t in TRUSTS)]
    lines = [heads, ["---"] * len(heads)]
    kinds = sorted({str(k) for p in pairs for k in np.unique(p.kind)})
    for kind in [*kinds, "all"]:
        for near in _NEAR:
            chosen = [(p, (p.kind == kind) | (kind == "all")) for p in pairs if p.near == near]
            chosen = [(p, rows) for p, rows in chosen if rows.sum() >= LEAST_ROWS]
            if chosen:
                cells = [f"{_error(chosen, trust):.1f}" for trust in TRUSTS]
                count = sum(int(rows.sum()) for _, rows in chosen)
                lines.append([kind, near, str(len(chosen)), f"{count:,}", *cells])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _error(chosen: Sequence[tuple[Pair, NDArray[np.bool_]]], trust: float) -> float:
    medians = [
        np.median(np.abs(np.expm1(p.error[rows] + trust * p.evidence[rows]))) for p, rows in chosen
    ]
    return 100 * float(np.mean(medians))


def main(arguments: Sequence[str]) -> int:
    """Print the table; 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(prog="python -m gnnperf.evaluation.transfer")
    parser.add_argument("tables", nargs="+", type=Path, help="kernel tables of gnnperf (parquet)")
    parser.add_argument("--checkpoint", type=Path, help="default: the one that gnnperf ships")
    parser.add_argument("--leave-out", choices=(EACH,), help="by the networks of a run folder")
    parser.add_argument("--limit", type=int, default=300, metavar="N", help="ops of a kind")
    args = parser.parse_args(arguments)
    try:
        networks = Networks(args.checkpoint, args.leave_out)
        pairs = [p for t in args.tables for p in pairs_of(load_table(t), networks, args.limit)]
    except InputError as why:
        sys.stderr.write(f"{why}\n")
        return 2
    sys.stdout.write("\n".join(table_of(pairs)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
