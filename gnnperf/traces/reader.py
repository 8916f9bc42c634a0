"""Reading traces: finds the format by content, joins pairs and ranks, gives graphs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from gnnperf.errors import InputError
from gnnperf.graph import ExecutionGraph, Job, load_job
from gnnperf.registry import Registry
from gnnperf.traces import chakra, execution_trace, kineto
from gnnperf.traces.assemble import assemble
from gnnperf.traces.rendezvous import match_collectives
from gnnperf.traces.source import Source, open_sources
from gnnperf.traces.table import TraceTable


class Reader(Protocol):
    """A format of trace files: a module with these two functions."""

    def sniff(self, source: Source) -> bool:
        """Whether the file's content is of this format."""
        ...

    def read(self, source: Source) -> TraceTable:
        """The file's events."""
        ...


_ZIP = b"PK\x03\x04"
"""A file that `save_job` wrote is a zip of arrays."""
_NAMED = 4
"""Most files that one message names."""

READERS: Registry[Reader] = Registry("trace format")
READERS.register("kineto")(kineto)
READERS.register("pytorch-et")(execution_trace)
READERS.register("chakra")(chakra)


_UNKNOWN = "of no format that gnnperf reads"


def find_reader(source: Source) -> Reader | None:
    """The reader that knows the file's content, if one does."""
    return next((reader for _, reader in READERS.items() if reader.sniff(source)), None)


@dataclass
class Inputs:
    """What the given paths hold: trace files, or one saved job."""

    tables: list[TraceTable] = field(default_factory=list)
    job: Job | None = None


def open_inputs(paths: Sequence[str | Path] | str | Path) -> Inputs:
    """Read every file of files, folders and archives.

    A file of no known format is left out with a warning where it was found in a folder or an
    archive beside traces.

    Raises:
        InputError: A file cannot be read; says which and why.
    """
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    inputs = Inputs()
    strangers: list[str] = []
    for source in open_sources(given):
        if source.data[:4] == _ZIP:
            if len(given) > 1 or not Path(source.name).is_file():
                raise InputError(
                    "a graph file holds a whole job", path=source.name, remedy="give it alone"
                )
            inputs.job = load_job(source.name)
        elif reader := find_reader(source):
            inputs.tables.append(reader.read(source))
        elif source.found:
            strangers.append(source.label)
        else:
            raise _refusal(source.name)
    if strangers:
        _warn_of(strangers, inputs, given)
    return inputs


def _refusal(path: str | Path) -> InputError:
    return InputError(_UNKNOWN, path=path, remedy=f"give one of: {', '.join(READERS)}")


def _warn_of(strangers: list[str], inputs: Inputs, given: list[str | Path]) -> None:
    if not inputs.tables:
        raise _refusal(f"{given[0]} ({', '.join(strangers[:_NAMED])})")
    first = inputs.tables[0]
    names = ", ".join(strangers[:_NAMED]) + (" ..." if len(strangers) > _NAMED else "")
    line = f"left out, {_UNKNOWN}: {names}"
    first.meta = replace(first.meta, warnings=(*first.meta.warnings, line))


def read_job(paths: Sequence[str | Path] | str | Path) -> Job:
    """Every step of every rank of files, folders or archives; collectives matched over ranks.

    Raises:
        InputError: A file cannot be read; says which and why.
    """
    inputs = open_inputs(paths)
    if inputs.job is not None:
        return inputs.job
    graphs = assemble(inputs.tables).graphs()
    return Job(tuple(graphs), match_collectives(graphs))


def read_trace(path: str | Path, step: int | None = None) -> ExecutionGraph:
    """One step of the lowest rank of a trace: the one asked for, else the steady one.

    The steady one has the median time (period of the device, else time of the host) among
    `steady_steps`.

    Raises:
        InputError: The file cannot be read or has no such step.
    """
    job = read_job(path)
    rank = job.ranks[0]
    own = {g.meta.step: g for g in job.graphs if g.meta.rank == rank}
    if step is not None:
        if step not in own:
            raise InputError(
                f"no step {step} (steps: {sorted(own)})", path=path, remedy="choose one of them"
            )
        return own[step]
    steady = [own[s] for s in steady_steps(job) if s in own] or list(own.values())
    ordered = sorted(steady, key=lambda g: (step_time_us(g), g.meta.step))
    return ordered[(len(ordered) - 1) // 2]


def step_time_us(graph: ExecutionGraph) -> float:
    """Measured time of a step: the device's period, else the host's, else the device's span."""
    meta = graph.meta
    known = (meta.device_period_us, meta.host_step_us, meta.device_span_us)
    return next((t for t in known if np.isfinite(t)), float("inf"))


def steady_steps(job: Job) -> list[int]:
    """The steps to judge by: without the first, without stubs, without those of unknown period.

    The first step is left out where there are others (caches, allocations, profiler start), and
    so is a stub, which a rank lacks or which has less than half the nodes of the median step
    (recording began or ended inside of it) or whose device work is not in the trace while that of
    others is. Of the rest, those after which no next step begins
    (the last one) are left out where others remain: their period is not known.
    """
    by_step: dict[int, list[ExecutionGraph]] = {step: [] for step in job.steps}
    for graph in job.graphs:
        by_step[graph.meta.step].append(graph)
    sizes = {step: sum(g.num_nodes for g in graphs) for step, graphs in by_step.items()}
    ranks = max((len(graphs) for graphs in by_step.values()), default=0)
    typical = float(np.median(list(sizes.values()))) if sizes else 0.0
    steps = list(by_step)
    whole = [s for s in steps if 2 * sizes[s] >= typical and len(by_step[s]) == ranks]
    whole = [s for s in whole if all(len(g.device_nodes) for g in by_step[s])] or whole
    later = [s for s in whole if s != steps[0]] or whole or steps
    known = [s for s in later if all(_has_period(g, s != steps[-1]) for g in by_step[s])]
    return known or later


def _has_period(graph: ExecutionGraph, followed: bool) -> bool:
    if len(graph.device_nodes):
        return bool(np.isfinite(graph.meta.device_period_us))
    return followed
