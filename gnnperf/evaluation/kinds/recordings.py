"""Own recordings: a folder (or a folder of folders) with a manifest.json."""

from pathlib import Path

from gnnperf.api.jobs import chosen_step
from gnnperf.data.importers import ImportReport
from gnnperf.errors import InputError
from gnnperf.evaluation.context import Context
from gnnperf.evaluation.kinds.base import Kind
from gnnperf.evaluation.kinds.traces import score_job
from gnnperf.evaluation.tables import own_parts, score_tables
from gnnperf.recording.manifest import NAME, read_manifest


def manifests(path: Path) -> list[Path]:
    """The folders of recordings: the one given, or those in it."""
    candidates = [path, *sorted(path.iterdir())] if path.is_dir() else []
    found = []
    for folder in candidates:
        if (folder / NAME).is_file():
            try:
                read_manifest(folder)
            except InputError:
                continue
            found.append(folder)
    return found


def _score(path: Path, context: Context) -> None:
    for folder in manifests(path):
        manifest = read_manifest(folder)
        for recording in manifest.recordings:
            traces = [folder / f.file for f in recording.files if f.kind == "kineto"]
            name = f"{folder.name}/{recording.name}"
            try:
                job = chosen_step(traces)
                score_job(job, name, recording.measured.median_us, "recordings", context)
            except InputError as why:
                context.unscored[str(why)] += 1
            context.tell("recordings", 1)
        for table in manifest.tables:
            report = ImportReport(f"{folder.name}/{table.file}")
            score_tables(own_parts(folder / table.file, report), report, context)


KIND = Kind(
    "a folder of own recordings (manifest.json)",
    lambda path: bool(manifests(path)),
    _score,
)
