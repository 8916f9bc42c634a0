"""Own recordings: a folder (or a folder of folders) with a manifest.json."""

from pathlib import Path

from gnnperf.api.jobs import chosen_step
from gnnperf.api.predictor import Predictor
from gnnperf.data.importers import ImportReport
from gnnperf.data.splits import WORKLOAD, workload_group
from gnnperf.errors import InputError
from gnnperf.evaluation.context import Context
from gnnperf.evaluation.kinds.base import Kind
from gnnperf.evaluation.kinds.traces import score_job
from gnnperf.evaluation.networks import EACH
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
            group = workload_group(recording.name)
            if not _wanted(group, context):
                continue
            traces = [folder / f.file for f in recording.files if f.kind == "kineto"]
            name = f"{folder.name}/{recording.name}"
            try:
                job = chosen_step(traces)
                predictor = _without(group, context)
                measured = recording.measured.median_us
                score_job(job, name, measured, "recordings", context, predictor)
            except InputError as why:
                context.unscored[str(why)] += 1
            context.tell("recordings", 1)
        for table in manifest.tables:
            report = ImportReport(f"{folder.name}/{table.file}")
            score_tables(own_parts(folder / table.file, report), report, context)


def _wanted(group: str, context: Context) -> bool:
    """Whether steps of a workload are scored: not where another workload's alone are."""
    left_out = context.settings.leave_out or ""
    return not left_out.startswith(WORKLOAD) or left_out == group


def _without(group: str, context: Context) -> Predictor | None:
    """The network that never saw a workload, where each group or this one is left out."""
    if context.networks is None or context.settings.leave_out not in (EACH, group):
        return None
    return context.networks.without(group)


KIND = Kind(
    "a folder of own recordings (manifest.json)",
    lambda path: bool(manifests(path)),
    _score,
)
