"""A folder in aiconfigurator's public layout: kernels, and NCCL's sweeps."""

from pathlib import Path

from gnnperf.data.importers import IMPORTERS, ImportReport
from gnnperf.data.importers.aiconfigurator import public_files, read_collectives
from gnnperf.evaluation.context import Context
from gnnperf.evaluation.kinds.base import Kind
from gnnperf.evaluation.kinds.collectives import score_rows
from gnnperf.evaluation.tables import score_tables


def _score(path: Path, context: Context) -> None:
    report = ImportReport("aiconfigurator")
    score_tables(IMPORTERS["aiconfigurator"](path, report), report, context)
    score_rows(read_collectives(path), "aiconfigurator", context)


KIND = Kind(
    "a folder in aiconfigurator's public layout",
    lambda path: bool(public_files(path)),
    _score,
)
