"""Steps whose time was measured as a whole, as training batches: rows, and what they add up to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnperf.data.graphs import graph_rows, placed_rows
from gnnperf.data.model_graphs import ModelGraph
from gnnperf.data.recordings import RecordedSteps, op_scale, recorded_on, workload_of
from gnnperf.data.rows import TrainRows
from gnnperf.data.samples import short_us
from gnnperf.features import Measurement
from gnnperf.graph import ExecutionGraph, Job
from gnnperf.hardware import Hardware
from gnnperf.nn.context import row_edges
from gnnperf.nn.model import Edges, KernelNetwork
from gnnperf.ops import Description, describe, family_index
from gnnperf.timeline.assemble import StepSchedule
from gnnperf.timeline.differentiable import iteration_us
from gnnperf.timeline.replay import schedule_of


@dataclass(frozen=True, eq=False)
class StepRows:
    """The work of one step and the step's measured time."""

    rows: TrainRows
    log_step: float
    """natural logarithm of the measured time in us"""
    time: Callable[[Tensor], Tensor]
    """[n] us of the rows -> us of the step, differentiable"""
    weight: float = 1.0
    """how often it is drawn"""
    name: str = ""
    group: str = ""
    """what it is left out with"""

    def log_time(self, us: Tensor) -> Tensor:
        """Logarithm of the step's time from that of its rows, [n] us."""
        return torch.log(self.time(us).clamp(min=1e-3))


def model_step(network: KernelNetwork, graph: ModelGraph, hardware: Hardware) -> StepRows | None:
    """A labelled model: the sum of its ops, repeats counted; None where the whole was not timed."""
    if not graph.meta.step_us > 0:
        return None
    rows = graph_rows(network, graph, hardware, launch_included=False)
    repeat = torch.from_numpy(graph.repeat[graph.owner].astype(np.float32))
    log_step = float(np.log(graph.meta.step_us))
    meta = graph.meta
    return StepRows(
        rows, log_step, lambda us: (us * repeat).sum(), name=meta.id, group=hardware.group
    )


def recorded_steps(network: KernelNetwork, recorded: RecordedSteps) -> list[StepRows]:
    """The steady steps of a recording, through its timeline.

    Work of unknown size and collectives keep their recorded time.
    """
    measured = recorded.recording.measured.median_us
    device, scale = recorded_on(recorded), op_scale(recorded)
    if device is None:
        return []
    found = []
    for number in recorded.steps:
        job = recorded.job.of_step(number)
        described = [describe(g) for g in job.graphs]
        parts = [
            _rows_of(network, g, d, device, scale)
            for g, d in zip(job.graphs, described, strict=True)
        ]
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.joined(part)
        time = _Timeline(schedule_of(job), job, described)
        found.append(
            StepRows(
                rows,
                float(np.log(measured)),
                time,
                1.0 / len(recorded.steps),
                recorded.recording.name,
                workload_of(recorded.recording),
            )
        )
    return found


def _rows_of(
    network: KernelNetwork,
    graph: ExecutionGraph,
    described: Description,
    device: Hardware,
    scale: float,
) -> TrainRows:
    """One rank's work; each row is a measured time of its own. On the host an op stands alone.

    Messages learned from a few recorded steps do not carry over to other workloads.
    """
    on_host = device.kind == "cpu"
    n = len(described.node)
    how = Measurement.same(n, launch_included=on_host, in_model=on_host)
    time = np.nan_to_num(graph.nodes.duration_us[described.node] * scale, nan=0.0)
    weight = np.where(_predicted(described), time / (time + short_us(device)), 0.0)
    if not on_host:
        weight = np.where(_predicted(described) & (time > 0), 1.0, 0.0)
    edges = Edges.none() if on_host else row_edges(graph, described).tensors()
    times = (np.arange(n), time.clip(0.1), weight)
    return placed_rows(network, described.batch, device, how, times, edges)


def _predicted(described: Description) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """[rows] whether a network predicts them: of known size, and no collective."""
    batch = described.batch
    known: np.ndarray[tuple[int], np.dtype[np.bool_]] = batch.known & (
        batch.family != family_index("collective")
    )
    return known


class _Timeline:
    """From the rows' times of all ranks to the step's time."""

    def __init__(self, step: StepSchedule, job: Job, described: Sequence[Description]) -> None:
        self.step = step
        self.sizes = [len(d.node) for d in described]
        self.nodes = [g.num_nodes for g in job.graphs]
        self.places = [torch.from_numpy(d.node.astype(np.int64)) for d in described]
        self.predicted = [torch.from_numpy(_predicted(d)) for d in described]

    def __call__(self, us: Tensor) -> Tensor:
        """See `StepRows.time`."""
        given = []
        for part, count, place, known in zip(
            us.double().split(self.sizes), self.nodes, self.places, self.predicted, strict=True
        ):
            values = torch.full((count,), float("nan"), dtype=torch.float64)
            given.append(values.index_put((place[known],), part[known]))
        return iteration_us(self.step, given).to(us)
