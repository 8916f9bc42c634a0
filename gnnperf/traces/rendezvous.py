"""Matches the collectives of several ranks: which kernels are parts of the same one."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from gnnperf.graph import ExecutionGraph, Rendezvous
from gnnperf.graph.model import NONE

Part = tuple[int, int]
"""graph, node"""


def match_collectives(graphs: Sequence[ExecutionGraph]) -> Rendezvous:
    """The collectives of equal step, joined over ranks.

    By process group and sequence number where every rank records them, else by kind and order,
    aligned from the end of the step (the first ones may be cut off). Collectives that fewer than
    two ranks have are left out.
    """
    by_step: dict[int, list[int]] = defaultdict(list)
    for index, graph in enumerate(graphs):
        by_step[graph.meta.step].append(index)
    rows: list[list[Part]] = []
    for indices in by_step.values():
        if len({graphs[i].meta.rank for i in indices}) > 1:
            rows += _match_step(graphs, indices)
    rows = [r for r in rows if len(r) > 1]
    sizes = [len(r) for r in rows]
    return Rendezvous(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.array([g for r in rows for g, _ in r], np.int32),
        np.array([n for r in rows for _, n in r], np.int32),
    )


def _match_step(graphs: Sequence[ExecutionGraph], indices: list[int]) -> list[list[Part]]:
    numbered = all(
        len(graphs[i].collectives.node)
        and (graphs[i].collectives.sequence != NONE).all()
        and (graphs[i].collectives.group != NONE).all()
        for i in indices
    )
    found: dict[tuple[str, int], list[Part]] = defaultdict(list)
    for index in indices:
        graph = graphs[index]
        table = graph.collectives
        order = np.argsort(graph.nodes.start_us[table.node], kind="stable")
        if numbered:
            for row in order.tolist():
                key = (graph.strings[table.group[row]], int(table.sequence[row]))
                found[key].append((index, int(table.node[row])))
            continue
        seen: dict[str, int] = defaultdict(int)
        for row in order[::-1].tolist():
            kind = graph.strings[table.kind[row]] if table.kind[row] >= 0 else ""
            found[(kind, seen[kind])].append((index, int(table.node[row])))
            seen[kind] += 1
    return list(found.values())
