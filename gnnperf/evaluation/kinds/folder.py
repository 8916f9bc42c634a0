"""A folder of files that are each of a kind: kernel tables, sweeps, training plans."""

from pathlib import Path

from gnnperf.evaluation.context import Context
from gnnperf.evaluation.kinds.base import KINDS, Kind

_FILES = ("kernel table", "training plans", "collectives")


def _found(path: Path) -> list[tuple[Path, Kind]]:
    files = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else []
    kinds = [KINDS[name] for name in _FILES]
    pairs = ((f, next((k for k in kinds if k.recognizes(f)), None)) for f in files)
    return [(file, kind) for file, kind in pairs if kind is not None]


def _score(path: Path, context: Context) -> None:
    for file, kind in _found(path):
        kind.score(file, context)


KIND = Kind("a folder of such files", lambda path: bool(_found(path)), _score)
