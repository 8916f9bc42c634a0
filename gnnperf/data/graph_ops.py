"""Ops of labelled models as rows of their own: what the prior is fitted to beside kernel tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnperf.analytic import roofline_rule
from gnnperf.data.model_graphs import ModelGraph, Pass
from gnnperf.data.samples import SHORT_US
from gnnperf.features import Measurement, find_variant, make_rows, variant_name
from gnnperf.hardware import Hardware
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.model import ModelConfig

F64 = NDArray[np.float64]
LEAST_SHARE = 0.2
"""share of its op's time below which a piece tells nothing"""


@dataclass(frozen=True, eq=False)
class FittedRows:
    """[n] measured rows that the prior is fitted to."""

    x: Inputs
    log_time: Tensor
    """[n] log of us"""
    weight: Tensor
    """[n] how often a row is drawn"""

    def joined(self, others: "Sequence[FittedRows]") -> "FittedRows":
        """These and others."""
        parts = [self, *others]
        return FittedRows(
            Inputs.join([part.x for part in parts]),
            torch.cat([part.log_time for part in parts]),
            torch.cat([part.weight for part in parts]),
        )


def model_ops(
    config: ModelConfig, graphs: Sequence[tuple[ModelGraph, Hardware]]
) -> list[FittedRows]:
    """Pieces of labelled ops, forward and backward, of the devices that a network is trained on.

    An op of several pieces of work (the backward of a linear layer) gives each the share of its
    time that the roofline rule gives it. Every family and pass of a device is drawn as often as
    the square root of its rows, short ones less, as the cells of kernel tables are.
    """
    found: list[tuple[FittedRows, tuple[str, ...]]] = []
    for graph, hardware in graphs:
        if hardware.name not in config.devices:
            continue
        pieces, time_us = _timed_pieces(graph, hardware)
        if not len(pieces):
            continue
        n = len(pieces)
        variant = find_variant(config.variants, variant_name(graph.meta.source, "pytorch"))
        how = replace(
            Measurement.same(n, launch_included=False, in_model=True, variant=variant),
            launch_included=np.isin(pieces, graph.main_work()),
        )
        rows = make_rows(graph.batch.take(pieces), [hardware], np.zeros(n, np.int64), how)
        x = Inputs.of(rows, np.array([config.devices.index(hardware.name)]))
        time = torch.from_numpy(time_us.astype(np.float32))
        owner = graph.owner[pieces].tolist()
        cells = tuple(f"{hardware.name}/{graph.labels[node]}" for node in owner)
        found.append((FittedRows(x, torch.log(time), time / (time + SHORT_US)), cells))
    return _balanced(found)


def _balanced(parts: list[tuple[FittedRows, tuple[str, ...]]]) -> list[FittedRows]:
    if not parts:
        return []
    cells = np.array([cell for _, names in parts for cell in names])
    _, place, count = np.unique(cells, return_inverse=True, return_counts=True)
    share = torch.from_numpy((1 / np.sqrt(count[place])).astype(np.float32))
    whole = parts[0][0].joined([part for part, _ in parts[1:]])
    return [FittedRows(whole.x, whole.log_time, whole.weight * share)]


def _timed_pieces(graph: ModelGraph, hardware: Hardware) -> tuple[NDArray[np.int64], F64]:
    """Pieces of measured and labelled nodes that make up most of their node, and their time."""
    rule = roofline_rule(graph.batch, hardware)
    share = rule / graph.sum_by_node(rule)[graph.owner]
    labelled = np.array([label != "" for label in graph.labels], np.bool_)
    measured = np.nan_to_num(graph.duration_us) > 0
    usable = labelled & measured & (graph.kind != Pass.ACCUMULATION)
    pieces = np.flatnonzero(usable[graph.owner] & (share >= LEAST_SHARE))
    return pieces, share[pieces] * graph.duration_us[graph.owner[pieces]]
