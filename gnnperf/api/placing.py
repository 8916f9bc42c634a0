"""Which device a job is predicted for, and its graphs as they run there."""

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.errors import InputError
from gnnperf.graph import ExecutionGraph, Job
from gnnperf.graph.model import NONE
from gnnperf.hardware import Hardware, find_hardware, get_hardware
from gnnperf.ops.lower import lower
from gnnperf.timeline.host_profiler import without_profiler


@dataclass(frozen=True, eq=False)
class Placement:
    """A job on a device."""

    job: Job
    own: Hardware | None
    """the device that ran the trace, if the catalogue knows it"""
    target: Hardware | None
    """None only where a trace of an unknown device is replayed"""
    label: str
    moved: bool
    """whether the target is another device than the trace's"""
    notes: tuple[str, ...]

    @property
    def on_host(self) -> bool:
        """Whether the ops run on the host itself."""
        return self.target is not None and self.target.kind == "cpu"


def place(job: Job, hardware: str | Hardware | None) -> Placement:
    """Put a job on a device (default: its own).

    Raises:
        InputError: No device is known, or the job cannot run on it.
    """
    own = _own_hardware(job)
    target = get_hardware(hardware) if isinstance(hardware, str) else hardware or own
    if target is None:
        raise InputError(
            f"{_told(job)}, which gnnperf does not know",
            path=job.graphs[0].meta.source or None,
            remedy="give --hardware (`gnnperf hardware list` shows the names)",
        )
    moved = own is None or target.name != own.name
    on_device = all(len(g.device_nodes) for g in job.graphs)
    if target.kind == "cpu" and on_device:
        raise InputError(
            f"a trace of a GPU cannot be put on {target.name}",
            path=job.graphs[0].meta.source or None,
            field="--hardware",
            remedy="choose a GPU",
        )
    if on_device:
        return Placement(job, own, target, target.name, moved, ())
    if target.kind == "cpu":
        plain = replace(job, graphs=tuple(without_profiler(g) for g in job.graphs))
        note = "the time is that of a step without a profiler: its part of the host's gaps is out"
        return Placement(plain, own, target, target.name, moved, (note,))
    lowered = tuple(
        g if len(g.device_nodes) else lower(_of_world(g, len(job.ranks))) for g in job.graphs
    )
    notes = ["recorded without a GPU: its leaf ops with shapes became device work"]
    unsized = sum(int((g.collectives.group_size == NONE).sum()) for g in lowered)
    if unsized:
        notes.append(f"assumed: a whole node as the group of {unsized} collectives of unknown size")
    return Placement(replace(job, graphs=lowered), own, target, target.name, moved, tuple(notes))


def replayed(job: Job, hardware: str | Hardware | None) -> Placement:
    """A job on its own device, known or not, with its own times.

    Raises:
        InputError: Another device is asked for, or the trace holds no times.
    """
    own = _own_hardware(job)
    asked = get_hardware(hardware) if isinstance(hardware, str) else hardware
    if asked is not None and (own is None or own.name != asked.name):
        raise InputError(
            f"replay takes the trace's own times: they are not those of {asked.name}",
            remedy="use --engine gnn or analytic",
        )
    if not any(np.isfinite(g.nodes.duration_us).any() for g in job.graphs):
        raise InputError(
            "holds no times to replay",
            path=job.graphs[0].meta.source,
            remedy="use --engine gnn or analytic, with --hardware",
        )
    label = own.name if own is not None else _told(job)
    return Placement(job, own, own, label, False, ())


def _of_world(graph: ExecutionGraph, ranks: int) -> ExecutionGraph:
    """The graph with no fewer ranks in its world than the job has."""
    if graph.meta.world_size >= ranks:
        return graph
    return replace(graph, meta=replace(graph.meta, world_size=ranks))


def _own_hardware(job: Job) -> Hardware | None:
    meta = job.graphs[0].meta
    if meta.device:
        return find_hardware(meta.device)
    return get_hardware("cpu") if meta.device_type == "cpu" else None


def _told(job: Job) -> str:
    name = job.graphs[0].meta.device
    return f"the device {name!r}" if name else "a device that the trace does not name"
