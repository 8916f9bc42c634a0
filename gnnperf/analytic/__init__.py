"""Times from data sheets and shapes alone: device work, collectives, parallel plans."""

from gnnperf.analytic.device_time import DeviceTime, device_time, roofline_rule

__all__ = ["DeviceTime", "device_time", "roofline_rule"]
