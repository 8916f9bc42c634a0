"""The columnar execution graph of one step of one rank.

Every table is a frozen dataclass of numpy arrays of equal length (or CSR: `ptr` has one entry
more than the rows it delimits). Names are interned: columns hold indices into `strings`, -1 for
none. Times are microseconds from the start of the step, NaN where they are not known.
"""

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from gnnperf.errors import GnnperfError
from gnnperf.graph.dtypes import DTYPES
from gnnperf.graph.kinds import DEVICE_KINDS, EdgeKind, NodeKind, Phase

I8 = NDArray[np.int8]
U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

NONE = -1
"""Marks "no such node / string / value" in every integer column."""
ON_HOST = " on host"
"""Behind the type of an argument: its tensors lie in host memory."""
UNKNOWN_DIM = -1
"""A dimension that the trace does not give as a number (symbolic, negative)."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """One row per node, in order of time within each lane (rows themselves in any order)."""

    kind: U8
    """[n] NodeKind"""
    name: I32
    """[n] index into strings"""
    lane: I32
    """[n] index into lanes"""
    start_us: F64
    """[n] measured start, from the start of the step; NaN if unknown"""
    duration_us: F64
    """[n] measured duration; NaN if unknown"""
    parent: I32
    """[n] host nodes: the enclosing host node of the same thread; NONE at top level"""
    op: I32
    """[n] runtime and device nodes: the innermost host op that issued them (an annotation only
    where no op encloses them); NONE if unlinked"""
    launch: I32
    """[n] device nodes: the runtime call that enqueued them; NONE if not in the trace"""
    scope: I32
    """[n] index into strings of the module path or annotation; NONE if not known"""
    phase: U8
    """[n] Phase"""
    bytes: I64
    """[n] bytes moved by a copy, or carried by a collective; NONE otherwise"""
    grid_blocks: I64
    """[n] thread blocks of a kernel; NONE if unknown"""
    block_threads: I32
    """[n] threads of a block; NONE if unknown"""
    registers: I32
    """[n] registers per thread; NONE if unknown"""
    shared_memory: I32
    """[n] bytes of shared memory of a block; NONE if unknown"""
    event: I64
    """[n] runtime nodes: id of the event recorded or waited for; NONE if the trace has none"""
    stream: I64
    """[n] runtime nodes: number of the stream they name; NONE if the trace has none"""


@dataclass(frozen=True, eq=False)
class Tensors:
    """Tensors in the order in which ops name them (the same tensor may stand in many rows)."""

    dtype: I8
    """[t] index into DTYPES"""
    dim_ptr: I64
    """[t + 1] into dims and strides"""
    dims: I64
    """[d] sizes; UNKNOWN_DIM if not a number"""
    strides: I64
    """[d] strides in elements; NONE if not recorded"""
    tensor_id: I64
    """[t] identity of the tensor within the trace; NONE if not recorded"""
    storage_id: I64
    """[t] identity of its storage; NONE if not recorded"""


@dataclass(frozen=True, eq=False)
class Arguments:
    """The arguments of host ops: node -> arguments -> tensors."""

    ptr: I64
    """[n + 1] node -> arguments"""
    type: I32
    """[a] index into strings of the type as recorded (`float`, `Scalar`, `TensorList`); `ON_HOST`
    behind it where a step of a GPU takes tensors that lie in host memory, if the trace says so"""
    value: I32
    """[a] index into strings of the concrete value (`[1, 1]`, `True`); NONE if not recorded"""
    tensor_ptr: I64
    """[a + 1] argument -> rows of `ExecutionGraph.inputs` (none, one, or a list's many)"""


@dataclass(frozen=True, eq=False)
class Edges:
    """Typed, directed edges."""

    src: I32
    dst: I32
    kind: U8
    """[e] EdgeKind"""


@dataclass(frozen=True, eq=False)
class Lanes:
    """Host threads and device streams."""

    kind: U8
    """[l] LaneKind"""
    device: I32
    """[l] device index of a stream; NONE for a thread"""
    number: I64
    """[l] thread id or stream number"""
    label: I32
    """[l] index into strings"""


@dataclass(frozen=True, eq=False)
class Collectives:
    """What is known of the collective of a node (one row per node of kind COLLECTIVE)."""

    node: I32
    """[c] the node"""
    kind: I32
    """[c] index into strings: all_reduce, all_gather, reduce_scatter, all_to_all, ..."""
    group: I32
    """[c] index into strings: name of the process group; NONE if not recorded"""
    sequence: I64
    """[c] number of this collective within its group; NONE if not recorded"""
    input_bytes: I64
    """[c] bytes each rank puts in; NONE if not recorded"""
    output_bytes: I64
    """[c] bytes each rank gets out; NONE if not recorded"""
    group_size: I32
    """[c] ranks of the group; NONE if not recorded"""
    rank_ptr: I64
    """[c + 1] into ranks"""
    ranks: I32
    """[r] global ranks of the group, where recorded"""


@dataclass(frozen=True)
class GraphMeta:
    """Where a graph comes from and what was measured of its step. Plain values only."""

    source: str = ""
    """file name (not the whole path) that it was read from"""
    sha256: str = ""
    """of that file's bytes"""
    format: str = ""
    """kineto, pytorch-et, et+kineto, chakra, neusight, synthetic, gnnperf"""
    schema: str = ""
    device: str = ""
    """name of the device as the trace gives it; empty if it gives none"""
    device_type: str = "cuda"
    """cuda (also ROCm) or cpu: what ran the ops"""
    host_cpu: str = ""
    rank: int = 0
    world_size: int = 1
    step: int = 0
    """index of the step within its trace"""
    step_name: str = ""
    """as the trace names it: ProfilerStep#12"""
    step_delimiter: str = "whole"
    """how steps were found: profiler_step, annotation, optimizer, sequence, whole"""
    step_start_us: float = 0.0
    """start of the step on the trace's own clock"""
    host_step_us: float = float("nan")
    """measured: start of this step to start of the next one on the host (last: its own end)"""
    device_period_us: float = float("nan")
    """measured: first kernel launched in this step to the first one launched in the next"""
    device_span_us: float = float("nan")
    """measured: start of the first to end of the last kernel launched in the step"""
    unprofiled_step_us: float = float("nan")
    """measured without a profiler (own recordings): median"""
    versions: tuple[tuple[str, str], ...] = ()
    """torch, cuda, hip, nccl and the like, where recorded"""
    warnings: tuple[str, ...] = ()
    """what the reader had to leave out or guess, one line each"""
    notes: tuple[tuple[str, str], ...] = ()
    """anything else worth keeping, by name"""


@dataclass(frozen=True, eq=False)
class ExecutionGraph:
    """One step of one rank."""

    strings: tuple[str, ...]
    nodes: Nodes
    arguments: Arguments
    inputs: Tensors
    outputs: Tensors
    output_ptr: I64
    """[n + 1] node -> rows of outputs"""
    edges: Edges
    lanes: Lanes
    collectives: Collectives
    meta: GraphMeta = field(default_factory=GraphMeta)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes.kind)

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.edges.src)

    def name_of(self, node: int) -> str:
        """Name of a node."""
        return self.strings[int(self.nodes.name[node])]

    def is_kind(self, *kinds: NodeKind) -> Bool:
        """[n] whether each node is of one of the kinds."""
        wanted = np.zeros(256, np.bool_)
        wanted[list(kinds)] = True
        return wanted[self.nodes.kind]

    @property
    def device_nodes(self) -> I64:
        """Indices of kernels, copies and collectives."""
        return np.flatnonzero(self.is_kind(*DEVICE_KINDS))

    def check(self) -> None:
        """Raise GnnperfError if tables and indices do not fit together, or times are no times."""
        n, t = self.num_nodes, len(self.inputs.dtype)
        for label in ("nodes", "edges", "lanes"):
            _check_columns(label, getattr(self, label))
        check_ptr("arguments.ptr", self.arguments.ptr, n, len(self.arguments.type))
        check_ptr("arguments.tensor_ptr", self.arguments.tensor_ptr, len(self.arguments.type), t)
        check_ptr("output_ptr", self.output_ptr, n, len(self.outputs.dtype))
        said = self.collectives
        check_ptr("collectives.rank_ptr", said.rank_ptr, len(said.node), len(said.ranks))
        for side in ("inputs", "outputs"):
            tensors = getattr(self, side)
            check_ptr(f"{side}.dim_ptr", tensors.dim_ptr, len(tensors.dtype), len(tensors.dims))
            check_index(f"{side}.dtype", tensors.dtype, len(DTYPES), 0)
        strings, lanes = len(self.strings), len(self.lanes.kind)
        for label, index, size, least in (
            ("nodes.kind", self.nodes.kind, len(NodeKind), 0),
            ("nodes.phase", self.nodes.phase, len(Phase), 0),
            ("nodes.name", self.nodes.name, strings, 0),
            ("nodes.scope", self.nodes.scope, strings, NONE),
            ("nodes.lane", self.nodes.lane, lanes, 0),
            ("nodes.parent", self.nodes.parent, n, NONE),
            ("nodes.op", self.nodes.op, n, NONE),
            ("nodes.launch", self.nodes.launch, n, NONE),
            ("arguments.type", self.arguments.type, strings, NONE),
            ("arguments.value", self.arguments.value, strings, NONE),
            ("edges.src", self.edges.src, n, 0),
            ("edges.dst", self.edges.dst, n, 0),
            ("edges.kind", self.edges.kind, len(EdgeKind), 0),
            ("lanes.label", self.lanes.label, strings, 0),
            ("collectives.node", said.node, n, 0),
            ("collectives.kind", said.kind, strings, NONE),
            ("collectives.group", said.group, strings, NONE),
        ):
            check_index(label, index, size, least)
        check_forest("nodes.parent", self.nodes.parent)
        self._check_times()

    def _check_times(self) -> None:
        start, duration = self.nodes.start_us, self.nodes.duration_us
        if np.isinf(start).any() or np.isinf(duration).any() or (duration < 0).any():
            raise GnnperfError("nodes.start_us or duration_us holds what is no time")
        launch = self.nodes.launch[self.nodes.launch >= 0]
        if np.isnan(start[launch]).any():
            raise GnnperfError("nodes.launch points at calls without a start")


def _check_columns(label: str, table: object) -> None:
    lengths = {len(getattr(table, f.name)) for f in fields(table)}  # type: ignore[arg-type]
    if len(lengths) > 1:
        raise GnnperfError(f"the columns of {label} have several lengths: {sorted(lengths)}")


def check_ptr(label: str, ptr: I64, rows: int, total: int) -> None:
    """Raise GnnperfError if `ptr` does not cut `total` entries into `rows` rows."""
    if len(ptr) != rows + 1 or ptr[0] != 0 or ptr[-1] != total or (np.diff(ptr) < 0).any():
        raise GnnperfError(f"{label} is no CSR pointer of {rows} rows over {total} entries")


def check_forest(label: str, parent: I32) -> None:
    """Raise GnnperfError if a node is its own ancestor (pointer doubling)."""
    n = len(parent)
    above = np.append(np.where(parent < 0, n, parent), n)
    for _ in range(n.bit_length()):
        above = above[above]
    if (above != n).any():
        raise GnnperfError(f"{label} goes in a circle")


def check_index(label: str, index: NDArray[np.integer], size: int, least: int) -> None:
    """Raise GnnperfError if an index is below `least` or not below `size`."""
    if len(index) and (index.min() < least or index.max() >= size):
        raise GnnperfError(f"{label} points outside of its table of {size} rows")


def tables_equal(left: object, right: object) -> bool:
    """Whether two tables (Nodes, Tensors, ...) hold the same arrays, NaN equal to NaN."""
    if type(left) is not type(right):
        return False
    return all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in ((getattr(left, f.name), getattr(right, f.name)) for f in fields(left))  # type: ignore[arg-type]
    )
