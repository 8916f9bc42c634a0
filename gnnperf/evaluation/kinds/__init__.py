"""Kinds of measured data that `evaluate` recognizes by content, one file each.

To add one: a module with a `KIND`, and its line in the table below, in the order of trial.
"""

from gnnperf.evaluation.kinds import (
    aiconfigurator,
    collectives,
    folder,
    kernel_tables,
    neusight,
    recordings,
    traces,
    train_iter,
)
from gnnperf.evaluation.kinds.base import KINDS, Kind, kind_of

for _name, _module in {
    "kernel table": kernel_tables,
    "training plans": train_iter,
    "collectives": collectives,
    "neusight": neusight,
    "aiconfigurator": aiconfigurator,
    "recordings": recordings,
    "traces": traces,
    "folder": folder,
}.items():
    KINDS.register(_name)(_module.KIND)

__all__ = ["KINDS", "Kind", "kind_of"]
