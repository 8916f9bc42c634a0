"""Rows that no engine can compute: the trace's own time is the evidence, scaled and counted."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gnnperf.api.engines import Times
from gnnperf.hardware import Hardware
from gnnperf.ops import Description

F64 = NDArray[np.float64]

KEPT_SPREAD, SCALED_SPREAD = 1.1, 2.0
"""The interval's factor of a time kept from the trace, and of one scaled to another device."""


def fill_unknown(
    times: Times,
    described: Description,
    measured_us: F64,
    own: Hardware | None,
    target: Hardware,
) -> Times:
    """Times in which rows of unknown size have their measured time instead of a guess.

    On the device that ran the trace the time is kept; on another one it is scaled by the ratio
    of the memory bandwidths, since nothing else is known of such work. Rows without a measured
    time keep what the engine says (bytes moved, or its floor).
    """
    rows = np.flatnonzero(~described.batch.known & np.isfinite(measured_us))
    if not len(rows):
        return times
    same = own is not None and own.name == target.name
    factor, spread = 1.0, KEPT_SPREAD
    if not same:
        spread = SCALED_SPREAD
        if own is not None:
            factor = own.memory_bandwidth_gb_per_s / target.memory_bandwidth_gb_per_s
    us, low, high = times.time_us.copy(), times.low_us.copy(), times.high_us.copy()
    us[rows] = measured_us[rows] * factor
    low[rows], high[rows] = us[rows] / spread, us[rows] * spread
    share = us[rows].sum() / max(us.sum(), 1e-9)
    how = "keep their measured time" if same else f"have their measured time x {factor:.2f}"
    line = f"{len(rows)} kernels of unknown size ({share:.0%} of the device time) {how}"
    return replace(times, time_us=us, low_us=low, high_us=high, warnings=(*times.warnings, line))
