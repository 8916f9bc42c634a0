"""An import from start to end: a public layout in, files of gnnperf's own formats out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnperf.data.importers import IMPORTERS, ImportReport
from gnnperf.data.importers.neusight_models import read_models
from gnnperf.data.model_graphs import save_graphs
from gnnperf.data.tables import TableWriter
from gnnperf.errors import InputError

PEERS = {"pipeweave": ("pipeweave", "pipeweave q80")}
"""predictors whose columns an importer fills"""


@dataclass(frozen=True)
class ImportResult:
    """What was written and what was left out."""

    files: tuple[Path, ...]
    reports: tuple[ImportReport, ...]

    @property
    def lines(self) -> list[str]:
        """The reports as lines."""
        return [line for report in self.reports for line in report.lines()]

    def to_json(self) -> dict[str, Any]:
        """Files, rows, and rows left out by reason with the place of the first one."""
        return {
            "files": [str(path) for path in self.files],
            "reports": [
                {
                    "source": r.source,
                    "read": r.rows,
                    "what": r.what,
                    "left_out": {
                        reason: {"count": fault.count, "first": fault.first}
                        for reason, fault in r.faults.items()
                    },
                    "notes": r.notes,
                }
                for r in self.reports
            ],
        }


def import_tables(
    source: str, path: Path, out: Path, tell: Callable[[int], None] = lambda rows: None
) -> ImportResult:
    """Read a public layout and write its kernel table (and NeuSight's labelled models).

    Args:
        source: Name of the importer.
        path: Folder or table as it was published.
        out: Folder to write to; made if it is not there.
        tell: Called with the number of rows of each part that was read.

    Raises:
        InputError: The source is no such layout, or `out` cannot be written.
    """
    if not path.exists():
        raise InputError("no such file or folder", path=path, remedy="check the path")
    report = ImportReport(source)
    parts = IMPORTERS[source](path, report)
    target = out / f"{source}.parquet"
    partial = target.with_suffix(".partial")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TableWriter(partial, PEERS.get(source, ())) as writer:
            for part in parts:
                writer.write(part)
                tell(len(part))
        partial.replace(target)
    except OSError as why:
        raise InputError(f"cannot write ({why.strerror})", path=out) from why
    finally:
        partial.unlink(missing_ok=True)
    if source != "neusight":
        return ImportResult((target,), (report,))
    models = ImportReport("neusight", "models")
    graphs = save_graphs(list(read_models(path, models)), out / "neusight-models.npz")
    return ImportResult((target, graphs), (report, models))
