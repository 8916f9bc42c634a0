"""Hardware files read strictly: no unknown key, no missing figure, no figure in another unit.

A file describes one device or platform (its keys are the fields of `spec`), or a family of them:

    common: {...}            # fields of every device of the file
    families: {NAME: {...}}  # more shared fields, taken by `extends: NAME`
    devices: {NAME: {...}}   # (`platforms:` in a file of platforms)

`sources` of the levels are merged; `"*"` is the source of every figure that none of them names.
"""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from gnnperf.config import from_mapping, read_yaml
from gnnperf.errors import InputError
from gnnperf.hardware.spec import PEAK_PATHS, Hardware, Platform

S = TypeVar("S", bound=Hardware | Platform)

_WORDS = ("name", "aliases", "kind", "vendor", "architecture", "group", "notes", "sources")
_TOP = {"common", "families", "devices", "platforms"}

_RANGES: dict[str, tuple[float, float, str]] = {
    "memory_bandwidth_gb_per_s": (5, 100_000, "10^9 bytes per second"),
    "memory_size_gb": (0.5, 4096, "GiB"),
    "l2_size_mb": (0.1, 2048, "MiB"),
    "l2_bandwidth_gb_per_s": (20, 500_000, "10^9 bytes per second"),
    "last_level_cache_mb": (0.1, 4096, "MiB"),
    "sm_count": (1, 2048, "SMs, compute units or cores"),
    "boost_clock_mhz": (200, 6000, "MHz"),
    "base_clock_mhz": (100, 6000, "MHz"),
    "tensor_clock_mhz": (200, 6000, "MHz"),
    "board_power_w": (1, 5000, "watts"),
    "process_node_nm": (1, 100, "nm"),
    "l2_partitions": (1, 64, "partitions"),
    "shared_memory_kb_per_sm": (1, 4096, "KiB"),
    "register_file_kb_per_sm": (1, 8192, "KiB"),
    "max_threads_per_sm": (1, 8192, "threads"),
    "max_blocks_per_sm": (1, 256, "blocks"),
    "warp_size": (1, 128, "threads"),
    "launch_overhead_us": (0, 1000, "microseconds"),
    "kernel_gap_us": (0, 1000, "microseconds"),
    "pcie_gb_per_s": (0.5, 2000, "10^9 bytes per second, one direction"),
    "gpus_per_node": (1, 1024, "devices"),
    "nics_per_node": (0, 1024, "NICs"),
}
"""Plausible values of a figure and its unit: outside, the unit is probably another one."""

_PEAK_RANGE = (0.001, 200_000.0, "10^12 operations per second")
_LINK_RANGES = {
    "bandwidth_gb_per_s": (0.01, 10_000.0, "10^9 bytes per second, one direction"),
    "latency_us": (0.0, 10_000.0, "microseconds"),
}


def read_hardware(path: str | Path) -> tuple[Hardware, ...]:
    """The devices of a YAML file.

    Raises:
        InputError: Unknown key, missing figure or implausible unit; names file, field, remedy.
    """
    return tuple(
        _hardware(name, data, path) for name, data in _entries(read_yaml(path), "devices", path)
    )


def read_platform(path: str | Path) -> tuple[Platform, ...]:
    """The platforms of a YAML file; raises as `read_hardware`."""
    return tuple(
        _platform(name, data, path) for name, data in _entries(read_yaml(path), "platforms", path)
    )


def figures(item: Hardware | Platform) -> list[str]:
    """Names of the numbers that an item states and that need a source."""
    given = [f.name for f in fields(item) if f.name not in _WORDS]
    defaults = {f.name: f.default for f in fields(item)}
    return [
        name
        for name in given
        if getattr(item, name) not in (None, "") and getattr(item, name) != defaults[name]
    ]


def _entries(data: dict[str, Any], what: str, path: str | Path) -> list[tuple[str, dict[str, Any]]]:
    """(name, its merged fields) of a file of one item or of a family."""
    if what not in data:
        name = str(data.get("name", Path(path).stem))
        return [(name, _merge(path, name, data))]
    for key in data:
        if key not in _TOP:
            raise InputError(
                "unknown key", path=path, field=key, remedy=f"known: common, families, {what}"
            )
    common, families = _group(data, "common", path), _group(data, "families", path)
    families = {name: _group(families, name, path) for name in families}
    found = []
    for name, own in _group(data, what, path).items():
        levels, parent = [own], _group(data[what], name, path).get("extends")
        while parent is not None:
            if parent not in families:
                raise InputError(
                    f"extends {parent!r}, which is no family of the file", path=path, field=name
                )
            if families[parent] in levels:
                raise InputError(f"{parent!r} extends itself", path=path, field=str(name))
            levels.append(families[parent])
            parent = families[parent].get("extends")
        found.append((str(name), _merge(path, str(name), common, *reversed(levels))))
    return found


def _group(data: dict[str, Any], key: str, path: str | Path) -> dict[str, Any]:
    """The mapping at a key; empty where there is none."""
    group = {} if data.get(key) is None else data[key]
    if not isinstance(group, dict):
        raise InputError("expected a group of keys", path=path, field=str(key))
    return group


def _merge(path: str | Path, name: str, *levels: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for level in levels:
        merged |= level
        sources |= _group(level, "sources", path)
    merged.pop("extends", None)
    return merged | {"name": name, "sources": sources}


def _hardware(name: str, data: dict[str, Any], path: str | Path) -> Hardware:
    data = {"aliases": [], "group": name, "kind": "gpu", **data}
    hardware = _build(Hardware, data, path)
    for key, value in hardware.peak_tflops.items():
        if key not in PEAK_PATHS:
            raise InputError(
                "unknown element type and path",
                path=path,
                field=f"{name}: peak_tflops.{key}",
                remedy=f"known: {', '.join(PEAK_PATHS)}",
            )
        _in_range(value, _PEAK_RANGE, path, f"{name}: peak_tflops.{key}")
    if "fp32_vector" not in hardware.peak_tflops:
        raise InputError(
            "missing figure", path=path, field=f"{name}: peak_tflops.fp32_vector", remedy="state it"
        )
    return hardware


def _platform(name: str, data: dict[str, Any], path: str | Path) -> Platform:
    platform = _build(Platform, {"aliases": [], "inter_node": None, **data}, path)
    links = [link for link in (platform.intra_node, platform.inter_node) if link is not None]
    for link in links:
        for key, limits in _LINK_RANGES.items():
            _in_range(getattr(link, key), limits, path, f"{name}: {link.name}.{key}")
    return platform


def _build(cls: type[S], data: dict[str, Any], path: str | Path) -> S:
    name = data["name"]
    required = [
        f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING
    ]
    missing = [key for key in required if key not in data]
    if missing:
        raise InputError(
            f"missing {', '.join(missing)}", path=path, field=name, remedy="state each figure"
        )
    item = from_mapping(cls, data, path, f"{name}: ")
    for key, limits in _RANGES.items():
        value = getattr(item, key, None)
        if value is not None:
            _in_range(value, limits, path, f"{name}: {key}")
    known = {f.name for f in fields(cls)} | set(PEAK_PATHS) | {"*"}
    for key in item.sources:
        if key not in known:
            raise InputError("source of an unknown figure", path=path, field=f"{name}: {key}")
    default = item.sources.get("*")
    named = {k: v for k, v in item.sources.items() if k != "*"}
    spread = {} if default is None else dict.fromkeys(figures(item), default)
    return cls(**{**_shallow(item), "sources": spread | named})


def _shallow(item: Hardware | Platform) -> dict[str, Any]:
    return {f.name: getattr(item, f.name) for f in fields(item)}


def _in_range(value: float, limits: tuple[float, float, str], path: str | Path, field: str) -> None:
    low, high, unit = limits
    if not low <= value <= high:
        raise InputError(
            f"{value:g} is implausible", path=path, field=field, remedy=f"the unit is {unit}"
        )
