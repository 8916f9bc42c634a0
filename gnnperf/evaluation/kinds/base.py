"""The table of kinds, and how a path finds its kind."""

import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

from gnnperf.errors import InputError
from gnnperf.evaluation.context import Context
from gnnperf.registry import Registry


@dataclass(frozen=True)
class Kind:
    """One kind of measured data."""

    what: str
    """in words, for the message that lists what is recognized"""
    recognizes: Callable[[Path], bool]
    """whether a path holds it; looks inside, must not raise"""
    score: Callable[[Path, Context], None]
    """scores it into the context"""


KINDS: Registry[Kind] = Registry("kind of data")


def kind_of(path: Path) -> Kind:
    """The first kind that recognizes a path.

    Raises:
        InputError: The path does not exist, or no kind recognizes it.
    """
    if not path.exists():
        raise InputError("no such file or folder", path=path, remedy="check the path")
    for _, kind in KINDS.items():
        if kind.recognizes(path):
            return kind
    known = "; ".join(kind.what for _, kind in KINDS.items())
    raise InputError("holds nothing that evaluate recognizes", path=path, remedy=f"give {known}")


def csv_columns(path: Path) -> tuple[str, ...]:
    """The header of a CSV file (also .gz); none if it is no text."""
    if not path.is_file() or not path.name.endswith((".csv", ".csv.gz")):
        return ()
    try:
        with open_text(path) as file:
            return tuple(next(csv.reader(file), ()))
    except (OSError, UnicodeDecodeError, EOFError, csv.Error):
        return ()


def csv_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by column.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with open_text(path) as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, EOFError, csv.Error) as why:
        raise InputError(f"no CSV ({why})", path=path) from why


def open_text(path: Path) -> TextIO:
    """Open a plain or gzip-compressed text file."""
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8", newline=""))
    return path.open(encoding="utf-8", newline="")
