"""Devices and platforms as data: YAML files with a source for each figure."""

from gnnperf.hardware.lookup import (
    find_hardware,
    get_hardware,
    get_platform,
    list_hardware,
    list_platforms,
    platform_of,
)
from gnnperf.hardware.reading import read_hardware, read_platform
from gnnperf.hardware.spec import PEAK_PATHS, Hardware, Link, Platform

__all__ = [
    "PEAK_PATHS",
    "Hardware",
    "Link",
    "Platform",
    "find_hardware",
    "get_hardware",
    "get_platform",
    "list_hardware",
    "list_platforms",
    "platform_of",
    "read_hardware",
    "read_platform",
]
