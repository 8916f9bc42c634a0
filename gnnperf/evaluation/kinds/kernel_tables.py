"""Kernel tables in one file: gnnperf's own, and the tidy ones of aiconfigurator and pipeweave."""

from pathlib import Path

from gnnperf.data.importers import IMPORTERS, ImportReport
from gnnperf.data.importers.aiconfigurator import is_tidy as is_aiconfigurator
from gnnperf.data.importers.pipeweave import is_tidy as is_pipeweave
from gnnperf.data.tables import is_table
from gnnperf.errors import InputError
from gnnperf.evaluation.context import Context
from gnnperf.evaluation.kinds.base import Kind
from gnnperf.evaluation.tables import own_parts, score_tables


def _layout(path: Path) -> str:
    """gnnperf, pipeweave, aiconfigurator, or "" for another file."""
    if not path.is_file() or not path.name.endswith((".parquet", ".csv", ".csv.gz")):
        return ""
    if is_table(path):
        return "gnnperf"
    try:
        if is_pipeweave(path):
            return "pipeweave"
        return "aiconfigurator" if is_aiconfigurator(path) else ""
    except InputError:
        return ""


def _score(path: Path, context: Context) -> None:
    layout = _layout(path)
    report = ImportReport(path.name)
    if layout == "gnnperf":
        score_tables(own_parts(path, report), report, context)
    else:
        score_tables(IMPORTERS[layout](path, report), report, context)


KIND = Kind(
    "a kernel table (gnnperf's parquet, or a tidy table of aiconfigurator or pipeweave)",
    lambda path: bool(_layout(path)),
    _score,
)
