"""Ops of labelled models as rows of their own: what the prior is fitted to beside kernel tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnperf.data.model_graphs import ModelGraph, Pass
from gnnperf.data.samples import SHORT_US
from gnnperf.features import Measurement, find_variant, make_rows, variant_name
from gnnperf.hardware import Hardware
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.model import ModelConfig


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


def ops_alone(
    config: ModelConfig, graphs: Sequence[tuple[ModelGraph, Hardware]]
) -> list[FittedRows]:
    """Forward ops that are one piece of work, of the devices that a network is trained on.

    Every family of a device is drawn as often as the square root of its rows, short ones less, as
    the cells of kernel tables are.
    """
    found: list[tuple[FittedRows, tuple[str, ...]]] = []
    for graph, hardware in graphs:
        nodes = _single(graph)
        if hardware.name not in config.devices or not len(nodes):
            continue
        place = np.searchsorted(graph.owner, nodes)
        variant = find_variant(config.variants, variant_name(graph.meta.source, "pytorch"))
        how = Measurement.same(len(nodes), launch_included=True, in_model=True, variant=variant)
        batch, device = graph.batch.take(place), np.zeros(len(nodes), np.int64)
        rows = make_rows(batch, [hardware], device, how)
        x = Inputs.of(rows, np.array([config.devices.index(hardware.name)]))
        time = torch.from_numpy(graph.duration_us[nodes].astype(np.float32))
        cells = tuple(f"{hardware.name}/{graph.labels[n]}" for n in nodes.tolist())
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


def _single(graph: ModelGraph) -> NDArray[np.int64]:
    """Measured and labelled forward nodes of one piece of work."""
    pieces = np.bincount(graph.owner, minlength=len(graph))
    labelled = np.array([label != "" for label in graph.labels], np.bool_)
    measured = np.nan_to_num(graph.duration_us) > 0
    return np.flatnonzero(labelled & measured & (pieces == 1) & (graph.kind == Pass.FORWARD))
