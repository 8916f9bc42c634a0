"""Trace files to execution graphs."""

from gnnperf.traces.reader import (
    READERS,
    read_job,
    read_trace,
    steady_steps,
    step_time_us,
)

__all__ = ["READERS", "read_job", "read_trace", "steady_steps", "step_time_us"]
