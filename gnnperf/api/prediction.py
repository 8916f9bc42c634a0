"""What a prediction says: the contract of `infer --json` as plain dataclasses."""

from dataclasses import asdict, dataclass, field
from typing import Any

from gnnperf.timeline.shares import Share

FORMAT = 1
"""Number of the JSON layout."""


@dataclass(frozen=True)
class Estimate:
    """A time with its interval, beside what was measured."""

    predicted: float
    low: float
    high: float
    coverage: float
    """share of measured times that such intervals are meant to hold"""
    measured: float | None = None


@dataclass(frozen=True)
class KernelEstimate:
    """One piece of device work (or, on a CPU, one leaf op)."""

    name: str
    family: str
    stream: str
    predicted_us: float
    low_us: float
    high_us: float
    measured_us: float | None
    slack_us: float | None = None
    """how much longer it may take without delay to the step; null where the timeline lacks it"""


@dataclass(frozen=True)
class FamilyTotal:
    """All work of one op family."""

    family: str
    count: int
    predicted_us: float
    measured_us: float | None
    share: float
    """of the predicted device time, 0 to 1"""


@dataclass(frozen=True)
class PathItem:
    """One node of the critical path."""

    name: str
    lane: str
    rank: int
    start_us: float
    duration_us: float
    """time that the path spends in the node"""
    before_us: float
    """time that passes before it starts: launch latency, gap, the host's own work"""
    slack_us: float | None
    """how much later it may end once without delay to the step; null for untraced calls"""
    phase: str
    scope: str | None
    """module or annotation that issued it; null where the trace tells none"""


@dataclass(frozen=True)
class Saving:
    """What the step would lose at most if every call of one name took no time."""

    name: str
    count: int
    """nodes of that name on the critical path"""
    path_us: float
    """time of the critical path spent in them"""
    saving_us: float
    """step as predicted less the step solved again with all of them free"""


@dataclass(frozen=True)
class Prediction:
    """The predicted step of a job on a piece of hardware."""

    iteration_time_us: Estimate
    breakdown_us: dict[str, float]
    """compute, communication, exposed_communication, host_bound_idle, copy, overlap; contention:
    what works that run side by side add to the step, a part of all of these"""
    by_family: tuple[FamilyTotal, ...]
    by_phase: tuple[Share, ...]
    """forward, backward, optimizer, data loading, other"""
    by_scope: tuple[Share, ...]
    """modules or annotations, each with all inside it; empty where the trace holds none"""
    kernels: tuple[KernelEstimate, ...]
    critical_path: tuple[PathItem, ...]
    savings: tuple[Saving, ...]
    """by name, the most first"""
    warnings: tuple[str, ...]
    unknown_ops: dict[str, int]
    """ops that no family knows or whose sizes are missing, with their count"""
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The layout of `infer --json` (no NaN: what is unknown is null)."""
        return {"format": FORMAT, **asdict(self)}
