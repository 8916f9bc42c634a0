"""Importers of public layouts of measurements: one file each, found by name."""

from gnnperf.data.importers import aiconfigurator, neusight, pipeweave
from gnnperf.data.importers.base import IMPORTERS, ImportReport

__all__ = ["IMPORTERS", "ImportReport", "aiconfigurator", "neusight", "pipeweave"]
