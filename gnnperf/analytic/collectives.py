"""Time of a collective from its bytes, its group and the links of a platform.

    t = L (start + hop * hops) + e x + ramp sqrt(x L)        x = bytes on the wire / bandwidth

per kind, with L and the bandwidth of the link: the coefficients are ratios to what the platform
states, so that they hold for a platform that was never measured. Between latency and bandwidth
lies the ramp: small messages use fewer channels and dearer protocols, and the measured time
there grows with the root of the size. Across nodes the slower of fabric and network counts, and
the network adds its own latency. Derivation, data and errors: docs/collectives.md.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnnperf.analytic.wiring import fabric_gb_per_s
from gnnperf.config import from_mapping, read_yaml
from gnnperf.errors import InputError
from gnnperf.hardware import Platform
from gnnperf.ops.collective import KINDS as OP_KINDS

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

KINDS: tuple[str, ...] = (*OP_KINDS, "unknown")
"""Kinds in the order of `ops.collective.KINDS`; `unknown` is priced as an all_reduce."""
FITTED: tuple[str, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
"""Kinds with coefficients of their own; the others borrow (`_BORROWS`)."""
_BORROWS = {
    "broadcast": "all_gather",
    "reduce": "reduce_scatter",
    "gather": "all_to_all",
    "scatter": "all_to_all",
    "barrier": "all_reduce",
    "unknown": "all_reduce",
}
_BASE = np.array([FITTED.index(_BORROWS.get(kind, kind)) for kind in KINDS])
_REDUCING = np.isin(KINDS, ["all_reduce", "reduce_scatter", "reduce", "unknown"])
RING_RANKS = 8
"""Beyond so many ranks a node, latency grows with the depth of a tree, no longer with the ring."""


@dataclass(frozen=True)
class Coefficients:
    """Ratios to the link figures; sequences are by `FITTED`."""

    start: tuple[float, ...]
    """latency before the first byte, in link latencies"""
    hop: tuple[float, ...]
    """latency of one step of the ring"""
    full: tuple[float, ...]
    """time over x for large messages and many ranks"""
    few: tuple[float, ...]
    """what 1 / (ranks - 1) adds to it"""
    ramp: tuple[float, ...]
    pcie: float
    """factor on x where the fabric is PCI Express"""
    narrow: float
    """factor on x where bytes of one byte each are reduced"""
    in_switch: float
    """factor on x where the switch itself reduces (all_reduce over NVLink 4 and later)"""
    net_start: float
    """latency of the network per level of the tree over nodes, in its link latencies"""
    net_full: float
    net_ramp: float


@dataclass(frozen=True)
class Terms:
    """What the formula needs of each collective; arrays of one shape."""

    base: I64
    """index into FITTED"""
    peers: F64
    """ranks of the group inside the node, less one; at least 1"""
    hops: F64
    wire_us: F64
    """x on the fabric"""
    net_us: F64
    """x on the network"""
    levels: F64
    """of the tree over nodes: log2(nodes)"""
    latency_us: F64
    net_latency_us: F64
    pcie: NDArray[np.bool_]
    narrow: NDArray[np.bool_]
    in_switch: NDArray[np.bool_]
    alone: NDArray[np.bool_]
    """a group of one: nothing to do"""


def collective_time_us(  # noqa: PLR0913 - what one collective is
    kind: ArrayLike | str,
    input_bytes: ArrayLike,
    output_bytes: ArrayLike,
    group_size: ArrayLike,
    nodes: ArrayLike,
    platform: Platform,
    dtype_bytes: ArrayLike = 2,
) -> F64:
    """Time of collectives that nothing delays, in us.

    Args:
        kind: Names or indices of KINDS.
        input_bytes: What a rank puts in; of an all_to_all, what the busiest rank sends.
        output_bytes: What a rank gets out; 0 where not known.
        group_size: Ranks; 0 (not known) is taken as a whole node, 1 costs nothing.
        nodes: Nodes that the group spans; 0 (not known): as few as hold it.
        platform: Links of the node and to other nodes.
        dtype_bytes: Of an element; only 1 differs (one-byte reductions are slower).

    Returns:
        Times of the arguments' common shape.

    Raises:
        InputError: An unknown kind, negative bytes, or a group over nodes on a platform without
            a link between them.
    """
    parts = terms(kind, (input_bytes, output_bytes), group_size, nodes, platform, dtype_bytes)
    return evaluate(coefficients(), parts)


def evaluate(c: Coefficients, t: Terms) -> F64:
    """The formula of the module on prepared terms, in us."""
    k, one = t.base, np.float64(1)
    x = t.wire_us * np.where(t.pcie, c.pcie, one) * np.where(t.narrow, c.narrow, one)
    x = x * np.where(t.in_switch, c.in_switch, one)
    slope = np.asarray(c.full)[k] + np.asarray(c.few)[k] / t.peers
    body = slope * x + np.asarray(c.ramp)[k] * np.sqrt(x * t.latency_us)
    net = c.net_full * t.net_us + c.net_ramp * np.sqrt(t.net_us * t.net_latency_us)
    start = t.latency_us * (np.asarray(c.start)[k] + np.asarray(c.hop)[k] * t.hops)
    start = start + c.net_start * t.net_latency_us * t.levels
    return np.where(t.alone, 0.0, start + np.maximum(body, net))


def terms(
    kind: ArrayLike | str,
    sizes: tuple[ArrayLike, ArrayLike],
    group_size: ArrayLike,
    nodes: ArrayLike,
    platform: Platform,
    dtype_bytes: ArrayLike = 2,
) -> Terms:
    """Everything of the formula that does not depend on its coefficients."""
    codes, entering, leaving, ranks, spans, width = np.broadcast_arrays(
        _codes(kind),
        *(np.nan_to_num(np.asarray(a, np.float64)) for a in (*sizes, group_size, nodes)),
        np.asarray(dtype_bytes, np.float64),
    )
    if (entering < 0).any() or (leaving < 0).any():
        raise InputError("negative bytes of a collective", remedy="give 0 where not known")
    ranks = np.where(ranks > 0, ranks, platform.gpus_per_node)
    pair = _is(codes, "send_recv")
    ranks = np.where(pair, np.minimum(ranks, 2), ranks)
    spans = np.where(spans > 0, spans, np.ceil(ranks / platform.gpus_per_node))
    spans = np.clip(spans, 1, ranks)
    if (spans > 1).any() and platform.inter_node is None:
        raise InputError(
            f"platform {platform.name} has no link to other nodes",
            field="inter_node",
            remedy="state one in a platform file",
        )
    local = ranks / spans
    wire, net = _traffic(codes, _message(codes, entering, leaving, ranks), ranks, spans)
    each, place = np.unique(local, return_inverse=True)
    rates = np.array([fabric_gb_per_s(platform, round(n)) for n in each])
    link = platform.inter_node
    nvlink = platform.intra_node.name.removeprefix("nvlink")
    switch = nvlink.isdigit() and int(nvlink) >= 4 and platform.gpus_per_node >= RING_RANKS
    return Terms(
        base=_BASE[codes],
        peers=np.maximum(local - 1, 1),
        hops=_hops(codes, local),
        wire_us=wire / (rates[place].reshape(wire.shape) * 1e3),
        net_us=net / (link.bandwidth_gb_per_s * 1e3) if link else np.zeros_like(net),
        levels=np.log2(spans),
        latency_us=np.full(wire.shape, platform.intra_node.latency_us),
        net_latency_us=np.full(wire.shape, link.latency_us if link else 0.0),
        pcie=np.full(wire.shape, platform.intra_node.name.startswith("pcie")),
        narrow=_REDUCING[codes] & (width == 1),
        in_switch=_is(codes, "all_reduce") & (width > 1) & (local >= RING_RANKS) & switch,
        alone=ranks <= 1,
    )


@lru_cache(maxsize=1)
def coefficients() -> Coefficients:
    """The coefficients that are shipped; fitted as docs/collectives.md says."""
    path = Path(__file__).with_name("collectives.yaml")
    return from_mapping(Coefficients, dict(read_yaml(path)["coefficients"]), path)


def _codes(kind: ArrayLike | str) -> I64:
    given = np.asarray(kind)
    if given.dtype.kind in "iufb":
        codes = given.astype(np.int64)
        if ((codes < 0) | (codes >= len(KINDS))).any():
            raise InputError(f"kind of a collective outside 0 to {len(KINDS) - 1}")
        return codes
    names, place = np.unique(given.astype(str), return_inverse=True)
    unknown = [str(name) for name in names if name not in KINDS]
    if unknown:
        raise InputError(f"unknown collective {unknown[0]!r}", remedy=f"known: {', '.join(KINDS)}")
    return np.array([KINDS.index(n) for n in names], np.int64)[place].reshape(given.shape)


def _is(codes: I64, *names: str) -> NDArray[np.bool_]:
    return np.isin(codes, [KINDS.index(name) for name in names])


def _message(codes: I64, entering: F64, leaving: F64, ranks: F64) -> F64:
    """The message as NCCL's tests count it: the whole buffer, gathered or to be scattered."""
    gathered = np.where(_is(codes, "all_gather", "gather"), entering * ranks * (leaving == 0), 0.0)
    scattered = np.where(_is(codes, "reduce_scatter"), leaving * ranks * (entering == 0), 0.0)
    whole = np.maximum(np.maximum(entering, leaving), np.maximum(gathered, scattered))
    return np.where(_is(codes, "barrier"), 0.0, whole)


def _traffic(codes: I64, size: F64, ranks: F64, spans: F64) -> tuple[F64, F64]:
    """Bytes through a device's fabric link, and through its share of the node's network.

    On the fabric a ring's (Thakur et al. 2005): 2 (n-1)/n of an all_reduce's bytes over the n
    ranks of the node, (n-1)/n of a gathered or scattered buffer; an all_to_all sends (n-1)/n,
    split by where the peers are. Into and out of a node of m go 2 (m-1)/m of an all_reduce and
    (m-1)/m of the others, over as many NICs as ranks of the group sit in the node.
    """
    local = ranks / spans
    twice = np.where(_is(codes, "all_reduce", "unknown"), 2.0, 1.0)
    several = local > 1
    share = np.where(_is(codes, "all_reduce", "unknown"), (local - 1) / local, (ranks - 1) / ranks)
    wire = twice * share * size * several
    wire = np.where(_is(codes, "all_to_all"), size * (local - 1) / ranks, wire)
    whole = _is(codes, "broadcast", "reduce", "send_recv")
    wire = np.where(whole, size * several, wire)
    net = twice * (spans - 1) / spans * size / local
    net = np.where(_is(codes, "all_to_all"), size * (ranks - local) / ranks, net)
    net = np.where(whole, size / local * (spans > 1), net)
    return wire, net


def _hops(codes: I64, local: F64) -> F64:
    ring = np.minimum(local, RING_RANKS) - 1 + np.log2(np.maximum(local / RING_RANKS, 1))
    hops = ring * np.where(_is(codes, "all_reduce", "barrier", "unknown"), 2, 1)
    return np.where(_is(codes, "send_recv"), 0.0, hops)
