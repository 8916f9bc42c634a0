"""Trace files to execution graphs."""

from gnnperf.traces.reader import (
    READERS,
    read_job,
    read_trace,
    steady_steps,
    step_time_us,
)
from gnnperf.traces.validate import FileReport, Report, validate

__all__ = [
    "READERS",
    "FileReport",
    "Report",
    "read_job",
    "read_trace",
    "steady_steps",
    "step_time_us",
    "validate",
]
