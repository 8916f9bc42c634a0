"""A step on another host: its recorded host times scaled, or the host model's."""

from dataclasses import dataclass, field, replace

import numpy as np

from gnnperf.errors import InputError
from gnnperf.hardware import Hardware
from gnnperf.hardware.processors import find_processor, get_processor, usual_processor
from gnnperf.timeline.assemble import StepSchedule
from gnnperf.timeline.host_model import HostSide
from gnnperf.timeline.lanes import STREAM

TYPICAL_SPEED = 5.07
"""Single-thread speed of a host of factor 1: the median of factor x speed over the 14 sets of
traces whose GPU's usual node has a CPU in the catalogue (docs/host.md)."""
FASTEST = 100.0
"""A CPU is no more times as fast, or as slow, as another: more is a typing error."""


@dataclass(frozen=True)
class OtherHost:
    """What a step's host times are multiplied with."""

    scale: float = 1.0
    """of host times that a trace shows"""
    side: HostSide = field(default_factory=HostSide)
    """for steps without a host side"""
    told: str = ""
    """the change in words, "" for none"""


def other_host(cpu: str | None, recorded: str, own: Hardware | None) -> OtherHost:
    """The host of a step on another CPU.

    Args:
        cpu: A CPU of the catalogue, or how many times as fast as the recorded one it is.
        recorded: The CPU that the trace names, "" for none.
        own: The device that ran the trace: where no CPU is named, its usual node tells one.

    Raises:
        InputError: An unknown CPU, or a factor out of range.
    """
    if cpu is None:
        return OtherHost()
    try:
        factor = float(cpu)
    except ValueError:
        return _named(cpu, recorded, own)
    if not 1 / FASTEST <= factor <= FASTEST:
        raise InputError(
            f"{cpu} is no factor from {1 / FASTEST:g} to {FASTEST:g}",
            field="--cpu",
            remedy="1.5 means: one thread is half again as fast as the recorded one",
        )
    told = f"host times x {1 / factor:.2f}: a CPU {factor:g} times as fast as the recorded one"
    return OtherHost(1 / factor, HostSide(1 / factor), told)


def _named(cpu: str, recorded: str, own: Hardware | None) -> OtherHost:
    target = get_processor(cpu)
    source, how = find_processor(recorded) if recorded else None, "recorded"
    if source is None and own is not None:
        source, how = usual_processor(own), f"assumed: the usual one beside {own.name}"
    speed, name = (
        (TYPICAL_SPEED, "a typical CPU") if source is None else (source.speed, source.name)
    )
    if source is None:
        how = "assumed: the trace names none that the catalogue has"
    scale = speed / target.speed
    told = f"host times x {scale:.2f}: from {name} ({how}) to {target.name}"
    return OtherHost(scale, HostSide(TYPICAL_SPEED / target.speed), told)


def on_host(step: StepSchedule, scale: float) -> StepSchedule:
    """The step with traced host calls and gaps taking `scale` times as long.

    Ranks without a traced host side stay: theirs is the host model's (`schedule_of`, host=...).
    """
    if scale == 1.0:
        return step
    traced = np.array([(g.nodes.launch[g.device_nodes] >= 0).any() for g in step.job.graphs])
    schedule = step.schedule
    on_stream = np.array([n.startswith(STREAM) for n in step.lane_names])[schedule.lane_of]
    factor = np.where(traced[step.graph], scale, 1.0)
    return replace(
        step,
        schedule=replace(
            schedule,
            duration_us=np.where(step.device, 1.0, factor) * schedule.duration_us,
            gap_us=np.where(on_stream, 1.0, factor) * schedule.gap_us,
        ),
    )
