"""Execution graphs: columnar, typed edges, one step of one rank; a job holds the ranks' graphs."""

from gnnperf.graph.dtypes import DTYPES, dtype_bytes, dtype_index
from gnnperf.graph.io import load_job, save_job
from gnnperf.graph.job import Job, Rendezvous
from gnnperf.graph.kinds import EdgeKind, LaneKind, NodeKind, Phase
from gnnperf.graph.model import (
    Arguments,
    Collectives,
    Edges,
    ExecutionGraph,
    GraphMeta,
    Lanes,
    Nodes,
    Tensors,
)

__all__ = [
    "DTYPES",
    "Arguments",
    "Collectives",
    "EdgeKind",
    "Edges",
    "ExecutionGraph",
    "GraphMeta",
    "Job",
    "LaneKind",
    "Lanes",
    "NodeKind",
    "Nodes",
    "Phase",
    "Rendezvous",
    "Tensors",
    "dtype_bytes",
    "dtype_index",
    "load_job",
    "save_job",
]
