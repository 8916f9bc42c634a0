"""The catalogue by name: case, spaces, dashes, underscores and vendor words do not matter."""

import re
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from gnnperf.errors import InputError
from gnnperf.hardware.reading import read_hardware, read_platform
from gnnperf.hardware.spec import Hardware, Platform

S = TypeVar("S", bound=Hardware | Platform)

_HERE = Path(__file__).parent
_VENDOR_WORDS = {"nvidia", "tesla", "geforce", "quadro", "amd", "instinct"}


def get_hardware(name: str | Path) -> Hardware:
    """A device by its name, an alias, or the path of a YAML file that describes it.

    Raises:
        InputError: No such device (with close matches), or a file that cannot be used.
    """
    if _is_file(name):
        return _only(read_hardware(name), name, "device")
    found = find_hardware(str(name))
    return found if found is not None else _refuse("hardware", str(name), _hardware_index())


def find_hardware(name: str) -> Hardware | None:
    """A device of the catalogue by its name or an alias; None where the catalogue lacks it.

    A remark in parentheses is left aside where the name with it is unknown.
    """
    index = _hardware_index()
    found = index.get(_key(name))
    return found if found is not None else index.get(_key(re.sub(r"\(.*\)", " ", name)))


def list_hardware() -> tuple[Hardware, ...]:
    """Every device of the catalogue, by vendor and age as the files are."""
    return _catalogue()


def get_platform(name: str | Path) -> Platform:
    """A platform by its name, an alias, or the path of a YAML file; raises as `get_hardware`."""
    if _is_file(name):
        return _only(read_platform(name), name, "platform")
    found = _platform_index().get(_key(str(name)))
    return found if found is not None else _refuse("platform", str(name), _platform_index())


def list_platforms() -> tuple[Platform, ...]:
    """Every platform of the catalogue."""
    return _platforms()


def platform_of(hardware: Hardware) -> Platform:
    """The node that a device usually sits in: its vendor's, else a server by its host link."""
    for platform in _platforms():
        if platform.gpu == hardware.name:
            return platform
    if hardware.kind == "cpu":
        name = "cpu-server"
    elif (hardware.pcie_gb_per_s or 0) > 40:
        name = "pcie5-server"
    else:
        name = "pcie4-server" if (hardware.pcie_gb_per_s or 0) > 20 else "pcie3-server"
    return replace(get_platform(name), gpu=hardware.name)


@lru_cache(maxsize=1)
def _catalogue() -> tuple[Hardware, ...]:
    files = sorted((_HERE / "catalogue").glob("*.yaml"))
    return tuple(item for path in files for item in read_hardware(path))


@lru_cache(maxsize=1)
def _platforms() -> tuple[Platform, ...]:
    files = sorted((_HERE / "platforms").glob("*.yaml"))
    return tuple(item for path in files for item in read_platform(path))


@lru_cache(maxsize=1)
def _hardware_index() -> dict[str, Hardware]:
    return _index(_catalogue())


@lru_cache(maxsize=1)
def _platform_index() -> dict[str, Platform]:
    return _index(_platforms())


def _index(items: Iterable[S]) -> dict[str, S]:
    index: dict[str, S] = {}
    for item in items:
        for name in (item.name, *item.aliases):
            other = index.setdefault(_key(name), item)
            if other is not item:
                raise InputError(f"{name!r} names both {other.name} and {item.name}")
    return index


def _key(name: str) -> str:
    words = re.split(r"[\s_-]+", name.strip().lower())
    return "".join(word for word in words if word not in _VENDOR_WORDS)


def _is_file(name: str | Path) -> bool:
    text = str(name)
    return isinstance(name, Path) or text.endswith((".yaml", ".yml")) or Path(text).is_file()


def _only(items: tuple[S, ...], path: str | Path, what: str) -> S:
    if len(items) != 1:
        raise InputError(f"{len(items)} {what}s", path=path, remedy=f"give a file of one {what}")
    return items[0]


def _refuse(what: str, name: str, index: dict[str, S]) -> S:
    close = get_close_matches(_key(name), list(index), n=12, cutoff=0.5)
    names = list(dict.fromkeys(index[key].name for key in close))[:5]
    hint = f" (close: {', '.join(names)})" if names else ""
    raise InputError(
        f"unknown {what} {name!r}{hint}",
        remedy="`gnnperf hardware list` shows all names; a YAML file may be given instead",
    )
