"""What the works of a step ask of a device: SMs, memory bandwidth, links."""

import numpy as np
from numpy.typing import NDArray

from gnnperf.analytic import device_time
from gnnperf.analytic.peaks import DRAM_SHARE, Machine, hit_share
from gnnperf.graph import ExecutionGraph, NodeKind
from gnnperf.graph.model import F64
from gnnperf.hardware import Hardware, find_hardware
from gnnperf.ops import Description, OpBatch, batch_cost, dim_index, family_index, family_names
from gnnperf.timeline.contention import Demand
from gnnperf.timeline.waves import blocks_per_sm, sm_share

CHANNELS = 16.0
"""Blocks of a collective whose grid the trace does not hold: NCCL's usual 16 to 24 in a node."""
BLOCK_SHARE = {"amd": 0.125}
"""Share of an SM that such a block takes: 256 of 2,048 threads in RCCL; elsewhere all of it
(NCCL's 640 threads of 96 registers leave no room for another kernel's block)."""
TILE = 128.0
"""Edge of the output tile of one block of a matrix product whose grid is not known."""
ITEMS_PER_SM = 2048.0 * 4
"""Items that other kernels work on at once on one SM: its threads, four items each."""
IN_TILES = ("gemm", "conv", "attention", "moe_gemm")
"""Families whose blocks are few and long, and run in waves."""


def demand_of(
    graph: ExecutionGraph, described: Description, hardware: Hardware, settled: NDArray[np.bool_]
) -> Demand:
    """The demands of a graph's nodes on a device.

    Args:
        graph: The step of one rank.
        described: Its device work.
        hardware: The device that it is predicted for.
        settled: [rows] whose durations already hold what ran beside them.
    """
    batch, node = described.batch, described.node
    alone = device_time(batch, hardware)
    machine, cost = Machine.of(hardware), batch_cost(batch)
    moved = cost.bytes_read + cost.bytes_written
    missed = moved * (1 - hit_share(moved, machine))
    collective = graph.nodes.kind[node] == NodeKind.COLLECTIVE
    copies = graph.nodes.kind[node] == NodeKind.COPY
    tiled = np.array([n in IN_TILES for n in family_names()], np.bool_)[batch.family]
    blocks, counted = _blocks(graph, described, hardware, tiled)
    columns = (
        np.where(collective, 0.0, alone.compute_us),
        np.where(collective, moved, missed) / (DRAM_SHARE * machine.dram_bytes_per_us),
        alone.launch_us,
        np.where(collective | copies, 0.0, blocks),
        tiled & counted,
        np.where(collective, _channels(graph, described, hardware), 0.0),
        np.where(collective, _link_share(batch, hardware, collective), 0.0),
        settled,
    )
    return Demand(*(_on_nodes(graph, node, c) for c in columns))  # type: ignore[arg-type]


def _on_nodes(
    graph: ExecutionGraph, node: NDArray[np.int64], rows: NDArray[np.generic]
) -> NDArray[np.generic]:
    values = np.zeros(graph.num_nodes, rows.dtype)
    values[node] = rows
    return values


def _blocks(
    graph: ExecutionGraph, described: Description, hardware: Hardware, tiled: NDArray[np.bool_]
) -> tuple[F64, NDArray[np.bool_]]:
    """[rows] SMs that the blocks could fill, and whether that is more than a guess.

    By the trace's grid, else by tiles or items, else all SMs. Another device runs other kernels
    for what works in tiles: its grid counts on its own only.
    """
    node, batch = described.node, described.batch
    items = batch_cost(batch).parallel_items
    guess = np.where(tiled, items / TILE**2, items / ITEMS_PER_SM)
    product = batch.family == family_index("gemm")
    count, m, n = (batch.dims[:, dim_index("gemm", d)] for d in ("batch", "m", "n"))
    guess = np.where(product, count * np.ceil(m / TILE) * np.ceil(n / TILE), guess)
    guess = np.where(batch.known, np.maximum(guess, 1.0), float(hardware.sm_count))
    grid = graph.nodes.grid_blocks[node].astype(np.float64)
    own = find_hardware(graph.meta.device) if graph.meta.device else None
    same = own is not None and own.name == hardware.name
    sized = (grid > 0) & (graph.nodes.block_threads[node] > 0) & (same | ~tiled)
    blocks = np.where(sized, grid / blocks_per_sm(graph, node, hardware), guess)
    return blocks, sized | batch.known


def _channels(graph: ExecutionGraph, described: Description, hardware: Hardware) -> F64:
    """[rows] SMs that a collective holds: its blocks, each by the share of an SM that it takes."""
    node = described.node
    grid = graph.nodes.grid_blocks[node].astype(np.float64)
    held = np.where(
        grid > 0,
        grid * sm_share(graph, node, hardware),
        CHANNELS * BLOCK_SHARE.get(hardware.vendor, 1.0),
    )
    return np.minimum(held, hardware.sm_count / 2)


def _link_share(batch: OpBatch, hardware: Hardware, collective: NDArray[np.bool_]) -> F64:
    """[rows] share of a collective's time that grows with its bytes: the rest is latency."""
    share = np.zeros(len(batch))
    rows = np.flatnonzero(collective & batch.known)
    if len(rows):
        one = batch.take(rows)
        dims = one.dims.copy()
        for name in ("input_bytes", "output_bytes"):
            dims[:, dim_index("collective", name)] *= 2
        twice = OpBatch(one.family, dims, one.dtype, one.known)
        alone = device_time(one, hardware).total_us
        share[rows] = np.clip(device_time(twice, hardware).total_us / alone - 1.0, 0.0, 1.0)
    share[collective & ~batch.known] = 1.0
    return share
