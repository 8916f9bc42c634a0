"""Host CPUs by name: how fast one thread issues work."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from gnnperf.config import read_yaml
from gnnperf.errors import InputError
from gnnperf.hardware.lookup import platform_of
from gnnperf.hardware.spec import Hardware

_FILE = Path(__file__).with_name("cpus.yaml")


@dataclass(frozen=True)
class Processor:
    """A host CPU."""

    name: str
    aliases: tuple[str, ...]
    speed: float
    """of one thread: largest clock in GHz x work per clock, a Broadwell core's being 1"""
    source: str


def list_processors() -> tuple[Processor, ...]:
    """Every CPU of the catalogue."""
    return tuple(dict.fromkeys(_index().values()))


def find_processor(name: str) -> Processor | None:
    """A CPU by its name or an alias; a count before it ("2x") does not matter."""
    return _index().get(_key(name))


def get_processor(name: str) -> Processor:
    """A CPU by its name or an alias.

    Raises:
        InputError: The catalogue lacks it; names those that it has.
    """
    found = find_processor(name)
    if found is not None:
        return found
    close = [_index()[k].name for k in get_close_matches(_key(name), list(_index()), n=3)]
    known = ", ".join(dict.fromkeys(close)) or ", ".join(p.name for p in list_processors())
    raise InputError(
        f"unknown CPU {name!r}",
        field="--cpu",
        remedy=f"known: {known}; or give its single-thread speed over the recorded one, as 1.5",
    )


def usual_processor(hardware: Hardware) -> Processor | None:
    """The CPU of the node that a device usually sits in, where the catalogue has it."""
    return find_processor(platform_of(hardware).cpu)


@lru_cache(maxsize=1)
def _index() -> dict[str, Processor]:
    data: dict[str, Any] = read_yaml(_FILE)
    found: dict[str, Processor] = {}
    for name, entry in data["cpus"].items():
        core = data["per_clock"][entry["core"]]
        clock = float(entry["max_clock_ghz"])
        source = f"data sheet: {clock} GHz; {core['source']}"
        item = Processor(name, tuple(entry["aliases"]), clock * float(core["value"]), source)
        found.update({_key(text): item for text in (name, *item.aliases)})
    return found


def _key(name: str) -> str:
    text = re.sub(r"^\d+\s*x\s+", "", name.strip().lower())
    text = re.sub(r"\(r\)|\(tm\)|\bcpu\b|@.*|\d+-core processor", " ", text)
    return "".join(w for w in re.split(r"[\s_-]+", text) if w not in ("intel", "amd", "nvidia"))
