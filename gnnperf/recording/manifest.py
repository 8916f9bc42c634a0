"""The manifest of a set of recordings: what was run, on what, and how long it really took."""

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from gnnperf.errors import InputError

FORMAT = 1
"""Number of the manifest's layout; a reader refuses a newer one."""
NAME = "manifest.json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """Iteration times without a profiler, microseconds; of several ranks those of the slowest."""

    median_us: float
    p10_us: float
    p90_us: float
    iterations: int
    rounds_us: tuple[float, ...]
    """median of each round: some before the profiled run, some after it"""
    cpu_share: float | None = None
    """CPU seconds per second and thread: below 1 where other programs held the cores; one rank"""

    @property
    def spread(self) -> float:
        """Half of the 10 % to 90 % range, relative to the median."""
        return (self.p90_us - self.p10_us) / 2 / self.median_us


@dataclass(frozen=True)
class RecordedFile:
    """One trace of one rank."""

    file: str
    """path relative to the manifest"""
    kind: str
    """kineto or et"""
    rank: int
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Recording:
    """One workload as it was run."""

    name: str
    family: str
    """mlp, cnn, bert, gpt, dlrm, ddp, inference, ..."""
    description: str
    seed: int
    ranks: int
    threads: int
    """threads of an op, in each rank; between ops: 1"""
    profiled_steps: int
    profiled_us: float
    """median step under the profiler with shapes; microseconds"""
    measured: Measured
    files: tuple[RecordedFile, ...]


@dataclass(frozen=True)
class RecordedTable:
    """A kernel table of single ops."""

    file: str
    """path relative to the manifest"""
    sha256: str
    rows: int
    left_out: int
    """cases that were timed but are other than one known op"""
    threads: int
    seed: int
    method: str


@dataclass(frozen=True)
class Machine:
    """Where it was run."""

    device: str
    """cpu or cuda"""
    device_name: str
    """name of the GPU, or the CPU's model"""
    cpu_model: str
    cores: int
    memory_gib: float
    system: str
    versions: dict[str, str]
    """of python, torch, gnnperf, and of CUDA or HIP"""


@dataclass(frozen=True)
class Manifest:
    """A set of recordings."""

    format: int
    machine: Machine
    method: str
    recordings: tuple[Recording, ...]
    tables: tuple[RecordedTable, ...] = ()


def write_manifest(manifest: Manifest, folder: str | Path) -> Path:
    """Write `manifest.json` into a folder; returns its path."""
    path = Path(folder) / NAME
    path.write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")
    return path


def read_manifest(path: str | Path) -> Manifest:
    """The manifest at a path, or in a folder.

    Raises:
        InputError: Absent, not JSON, not of this layout, or of a newer format.
    """
    path = Path(path)
    path = path / NAME if path.is_dir() else path
    try:
        data = path.read_bytes()
        number = msgspec.json.decode(data, type=_Header).format
        if number > FORMAT:
            raise InputError(f"format {number} is newer than {FORMAT}", path=path)
        return msgspec.json.decode(data, type=Manifest)
    except OSError as why:
        raise InputError(why.strerror or str(why), path=path) from why
    except msgspec.MsgspecError as why:
        raise InputError(
            f"no manifest of recordings ({why})", path=path, remedy="record the set again"
        ) from why


def measured_of(trace: str | Path) -> Measured | None:
    """The unprofiled iteration time of a recorded trace (a file, or the folder of its ranks).

    None where no manifest lists the path. A file that differs from the one recorded is not
    trusted: None, and a warning says so.
    """
    path = Path(trace)
    for folder in (path.parent, path.parent.parent):
        if (folder / NAME).is_file():
            return _look_up(folder, path)
    return None


def verify(folder: str | Path) -> list[str]:
    """The files of a set that are missing or differ from their sha256; empty if all is well."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    files: list[RecordedFile | RecordedTable] = list(manifest.tables)
    files += [file for recording in manifest.recordings for file in recording.files]
    return [f.file for f in files if sha256_of(folder / f.file) != f.sha256]


def sha256_of(path: Path) -> str:
    """Hex digest of a file; "" where there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class _Header:
    format: int


def _look_up(folder: Path, path: Path) -> Measured | None:
    try:
        manifest = read_manifest(folder)
    except InputError:
        return None
    relative = path.relative_to(folder).as_posix()
    for recording in manifest.recordings:
        if relative == recording.name:
            return recording.measured
        for file in recording.files:
            if file.file == relative:
                if sha256_of(path) == file.sha256:
                    return recording.measured
                _log.warning("%s: differs from the recording, its measured time is unknown", path)
                return None
    return None
