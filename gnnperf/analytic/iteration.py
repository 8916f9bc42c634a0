"""A prediction beside its measurement, as `evaluate` lists them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Iteration:
    """One step (or one collective) of a table: times in us; nan where there is none."""

    id: str
    """the row's own"""
    device: str
    """the catalogue's name, or the table's where the catalogue lacks it"""
    measured_us: float
    """what the table states; to be scored only where `why_not` is empty"""
    predicted_us: float
    low_us: float
    """of the 90 % interval"""
    high_us: float
    analytic_us: float
    """the analytic model alone"""
    how: str = ""
    """plan, `plan, shape from size`, flops (the stated fallback), collective"""
    why_not: str = ""
    """why there is no prediction or no score; empty where there is one"""
