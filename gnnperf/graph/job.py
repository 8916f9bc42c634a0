"""A job: the graphs of its ranks (one or more steps each) and the collectives that join them."""

from dataclasses import dataclass, field

import numpy as np

from gnnperf.errors import GnnperfError, InputError
from gnnperf.graph.model import I32, I64, ExecutionGraph, check_index, check_ptr


@dataclass(frozen=True, eq=False)
class Rendezvous:
    """Collectives matched over ranks (CSR): one row per collective of the job."""

    ptr: I64
    """[r + 1] into graph and node"""
    graph: I32
    """[m] index into Job.graphs"""
    node: I32
    """[m] node of that graph"""

    @staticmethod
    def none() -> "Rendezvous":
        """No collective joins the graphs."""
        empty = np.zeros(0, np.int32)
        return Rendezvous(np.zeros(1, np.int64), empty, empty)


@dataclass(frozen=True, eq=False)
class Job:
    """Every step of every rank that was read."""

    graphs: tuple[ExecutionGraph, ...]
    """ordered by (rank, step)"""
    rendezvous: Rendezvous = field(default_factory=Rendezvous.none)
    """collectives joined over the graphs of equal step"""
    folded_ranks: int = 1
    """SPMD: how many real ranks each graph stands for"""

    def check(self) -> None:
        """Raise GnnperfError if a graph's tables or the rendezvous do not fit together."""
        for graph in self.graphs:
            graph.check()
        ptr, graphs, nodes = self.rendezvous.ptr, self.rendezvous.graph, self.rendezvous.node
        check_ptr("rendezvous.ptr", ptr, len(ptr) - 1, len(nodes))
        sizes = np.array([graph.num_nodes for graph in self.graphs])
        check_index("rendezvous.graph", graphs, len(sizes), 0)
        if len(graphs) != len(nodes) or (nodes < 0).any() or (nodes >= sizes[graphs]).any():
            raise GnnperfError("rendezvous.node points outside of its graphs")

    @property
    def ranks(self) -> list[int]:
        """The distinct ranks, ascending."""
        return sorted({g.meta.rank for g in self.graphs})

    @property
    def steps(self) -> list[int]:
        """The distinct step indices, ascending."""
        return sorted({g.meta.step for g in self.graphs})

    def indices_of_step(self, step: int) -> list[int]:
        """Indices into `graphs` of one step's graphs, a rank each, by rank."""
        found = [i for i, g in enumerate(self.graphs) if g.meta.step == step]
        if not found:
            raise InputError(
                f"no step {step} (steps: {self.steps})",
                path=self.graphs[0].meta.source or None if self.graphs else None,
                field="step",
                remedy="choose one of them",
            )
        return sorted(found, key=lambda i: self.graphs[i].meta.rank)

    def of_step(self, step: int) -> "Job":
        """The job reduced to one step, its rendezvous kept."""
        keep = self.indices_of_step(step)
        index = {old: new for new, old in enumerate(keep)}
        rows: list[tuple[list[int], list[int]]] = []
        for row in range(len(self.rendezvous.ptr) - 1):
            part = slice(self.rendezvous.ptr[row], self.rendezvous.ptr[row + 1])
            graphs = self.rendezvous.graph[part].tolist()
            if all(g in index for g in graphs):
                rows.append(([index[g] for g in graphs], self.rendezvous.node[part].tolist()))
        sizes = [len(g) for g, _ in rows]
        return Job(
            tuple(self.graphs[i] for i in keep),
            Rendezvous(
                np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
                np.array([g for gs, _ in rows for g in gs], np.int32),
                np.array([n for _, ns in rows for n in ns], np.int32),
            ),
            self.folded_ranks,
        )
