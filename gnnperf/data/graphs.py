"""Labelled model graphs as training batches: rows with edges, measured times over several rows."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gnnperf.data.model_graphs import SLOW_LABELS, ModelGraph
from gnnperf.data.rows import TrainRows, with_terms
from gnnperf.data.samples import SHORT_US
from gnnperf.features import Measurement, find_variant, make_rows, variant_name
from gnnperf.hardware import Hardware, find_hardware
from gnnperf.nn.inputs import Inputs
from gnnperf.nn.model import Edges, KernelNetwork
from gnnperf.nn.predict import RowEdges
from gnnperf.ops import OpBatch

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def known_graphs(graphs: Sequence[ModelGraph]) -> list[tuple[ModelGraph, Hardware]]:
    """Graphs that can be trained on: measured ops, on a device of the catalogue.

    Those whose ops were timed in a slower state than their model are left out.
    """
    found = []
    for graph in graphs:
        device = find_hardware(graph.meta.device)
        slow = graph.label_ratio() > SLOW_LABELS
        if device is not None and np.isfinite(graph.duration_us).any() and not slow:
            found.append((graph, device))
    return found


def piece_edges(graph: ModelGraph) -> RowEdges:
    """Edges between pieces of work: order on the stream, and tensors between ops."""
    pieces = len(graph.batch)
    order = np.arange(pieces - 1)
    main = graph.main_work().astype(np.int64)
    last = np.searchsorted(graph.owner, np.arange(len(graph)), side="right") - 1
    has_work = np.isin(np.arange(len(graph)), graph.owner)
    place = np.full(len(graph), -1, np.int64)
    place[graph.owner[main]] = main
    flows = has_work[graph.src] & has_work[graph.dst]
    source = last[graph.src[flows]].astype(np.int64)
    destination = place[graph.dst[flows]]
    data = np.concatenate([np.zeros(len(order), np.bool_), np.ones(len(source), np.bool_)])
    return RowEdges(np.concatenate([order, source]), np.concatenate([order + 1, destination]), data)


def graph_rows(
    network: KernelNetwork, graph: ModelGraph, hardware: Hardware, launch_included: bool = True
) -> TrainRows:
    """A labelled graph with the terms of the network's prior; unmeasured ops have weight 0."""
    variant = find_variant(network.config.variants, variant_name(graph.meta.source, "pytorch"))
    how = Measurement.same(len(graph.batch), launch_included, in_model=True, variant=variant)
    time = np.nan_to_num(graph.duration_us, nan=1.0).clip(0.1)
    labelled = np.isfinite(graph.duration_us) & np.isin(np.arange(len(graph)), graph.owner)
    labelled &= np.array([label != "" for label in graph.labels])
    weight = np.where(labelled, time / (time + SHORT_US), 0.0)
    times = (graph.owner.astype(np.int64), time, weight)
    return placed_rows(network, graph.batch, hardware, how, times, piece_edges(graph).tensors())


def placed_rows(
    network: KernelNetwork,
    batch: OpBatch,
    hardware: Hardware,
    how: Measurement,
    times: tuple[I64, F64, F64],
    edges: Edges,
) -> TrainRows:
    """Work on a device with the terms of the network's prior.

    Args:
        network: Its scaling and offsets are fitted.
        batch: [n] the work.
        hardware: The device.
        how: [n] how the times were measured.
        times: [n] owner of each row, [m] measured us > 0, [m] weight.
        edges: Between the rows.
    """
    config = network.config
    rows = make_rows(batch, [hardware], np.zeros(len(batch), np.int64), how)
    known = config.devices.index(hardware.name) if hardware.name in config.devices else -1
    features, slot, log_prior = with_terms(network, rows, Inputs.of(rows, np.array([known])))
    safe = slot.clamp(min=0)
    scaled = torch.where(slot.unsqueeze(1) >= 0, network.standardize(features, safe), 0.0)
    owner, time, weight = times
    return TrainRows(
        scaled,
        safe,
        log_prior,
        torch.from_numpy(owner),
        torch.from_numpy(np.log(time).astype(np.float32)),
        torch.from_numpy(weight.astype(np.float32)),
        edges,
    )
