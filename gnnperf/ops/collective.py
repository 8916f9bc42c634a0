"""Communication between ranks; its time comes from `gnnperf.analytic.collectives`."""

import numpy as np

from gnnperf.ops.base import F64, I8, Cost, Family
from gnnperf.ops.call import Call, Work

KINDS: tuple[str, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
    "barrier",
)
"""What the dimension `kind` indexes; the names of `graph.Collectives.kind`."""


def _cost(dims: F64, dtype: I8) -> Cost:
    """What one rank puts in is read, what it gets out is written; reductions are not counted."""
    _, entering, leaving = dims[:, :3].T
    return Cost(
        flops=np.zeros(len(dims)),
        bytes_read=entering,
        bytes_written=leaving,
        tensor_path=np.zeros(len(dims), np.bool_),
        parallel_items=leaving,
    )


FAMILY = Family(
    "collective",
    ("kind", "input_bytes", "output_bytes", "group_size", "nodes"),
    _cost,
    ("input_bytes", "output_bytes"),
)


_NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
    "send": "send_recv",
    "recv": "send_recv",
    "barrier": "barrier",
}


def kind_of(name: str) -> str | None:
    """One of `KINDS` from a name as ops and kernels write it; None if it names none.

    `c10d::allreduce_`, `nccl:all_gather`, `ncclDevKernel_ReduceScatter_Sum_bf16`.
    """
    text = "".join(c for c in name.lower() if c.isalpha())
    return next((kind for pattern, kind in _NAMES.items() if pattern in text), None)


def communication(kind: str, entering: float, leaving: float, ranks: float, dtype: int) -> Work:
    """A collective; without its kind or its bytes the row is not known, 0 ranks are not known."""
    known = kind in KINDS and (entering > 0 or leaving > 0 or kind == "barrier")
    index = KINDS.index(kind) if kind in KINDS else len(KINDS)
    dims = (float(index), max(entering, leaving * (kind == "all_reduce")), leaving, ranks, 0.0)
    return Work("collective", dims, dtype, known)


def parse(call: Call) -> Work:
    """A call of c10d or NCCL: bytes from its tensors; how many ranks share it, it does not say."""
    tensors = call.tensors
    moved = sum(t.nbytes for t in tensors)
    dtype = tensors[0].dtype if tensors else 0
    return communication(kind_of(call.name) or "", moved, moved, 0.0, dtype)
