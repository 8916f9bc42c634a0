"""Files, folders and archives to the trace files inside of them, unpacked, one at a time."""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from gnnperf.errors import InputError

LIMIT_VARIABLE = "GNNPERF_MAX_TRACE_GB"
"""Environment variable that raises the limit on the unpacked size of one file."""
DEFAULT_LIMIT_GB = 8.0

_GZIP = b"\x1f\x8b"
_SKIPPED = (".csv", ".md", ".txt", ".py", ".yaml", ".html", ".png", ".parquet")
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Source:
    """One trace file, unpacked."""

    name: str
    """path or, inside of an archive, archive:member"""
    data: bytes
    sha256: str
    """of the file as it lies on disk (of the member, inside of an archive)"""
    found: bool = False
    """in a folder or an archive, not named by the user"""

    @property
    def label(self) -> str:
        """Name of the file without its folders; inside of an archive, archive:member."""
        if Path(self.name).exists():
            return Path(self.name).name
        archive, _, member = self.name.rpartition(":")
        return f"{Path(archive).name}:{member}"


def limit_bytes() -> int:
    """Most bytes that one file may unpack to.

    Raises:
        InputError: The environment variable is no positive number.
    """
    text = os.environ.get(LIMIT_VARIABLE, str(DEFAULT_LIMIT_GB))
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not limit > 0:
        raise InputError(
            f"{text!r} is no positive number of gigabytes",
            field=LIMIT_VARIABLE,
            remedy="unset it or give a number such as 16",
        )
    return int(limit * 1e9)


def open_sources(paths: Sequence[str | Path]) -> Iterator[Source]:
    """Every trace file of files, folders and archives, in the order of their names.

    Raises:
        InputError: A path does not exist, cannot be read, or unpacks to more than the limit.
    """
    for path in paths:
        given = Path(path)
        if given.is_dir():
            inside = sorted(p for p in given.rglob("*") if p.is_file() and _may_be_trace(p.name))
            if not inside:
                raise InputError("the folder holds no trace file", path=given)
            for file in inside:
                for source in _open_file(file):
                    yield replace(source, found=True)
        else:
            yield from _open_file(given)


def _may_be_trace(name: str) -> bool:
    base = PurePosixPath(name).name
    return not base.startswith(".") and not base.lower().endswith(_SKIPPED)


def _open_file(path: Path) -> Iterator[Source]:
    try:
        raw = path.read_bytes()
    except OSError as why:
        raise InputError(
            f"cannot be read ({why.strerror})", path=path, remedy="check the path"
        ) from why
    if not raw:
        raise InputError("the file is empty", path=path, remedy="record it again")
    digest = hashlib.sha256(raw).hexdigest()
    if raw[:2] == _GZIP:
        raw = unpack_gzip(raw, path)
    if _is_tar(raw):
        yield from _members(raw, path)
    else:
        yield Source(str(path), raw, digest)


def unpack_gzip(raw: bytes, path: str | Path) -> bytes:
    """The bytes inside, refused as soon as they exceed the limit."""
    limit = limit_bytes()
    whole = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
            while part := stream.read(_BLOCK):
                whole.write(part)
                if whole.tell() > limit:
                    raise InputError(
                        f"unpacks to more than the limit of {limit / 1e9:g} GB",
                        path=path,
                        remedy=f"set {LIMIT_VARIABLE} to raise it, if you trust the file",
                    )
    except (EOFError, zlib.error, gzip.BadGzipFile) as why:
        raise InputError(
            f"truncated or damaged gzip ({why})", path=path, remedy="copy it again"
        ) from why
    return whole.getvalue()


def _is_tar(data: bytes) -> bool:
    return data[257:262] == b"ustar"


def _members(data: bytes, path: Path) -> Iterator[Source]:
    found = False
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = [m for m in archive if m.isfile() and _may_be_trace(m.name)]
            for member in sorted(members, key=lambda m: m.name):
                stream = archive.extractfile(member)
                content = stream.read() if stream else b""
                digest = hashlib.sha256(content).hexdigest()
                if content[:2] == _GZIP:
                    content = unpack_gzip(content, f"{path}:{member.name}")
                found = True
                yield Source(f"{path}:{member.name}", content, digest, found=True)
    except tarfile.TarError as why:
        raise InputError(f"damaged tar archive ({why})", path=path) from why
    if not found:
        raise InputError("the archive holds no trace file", path=path)
