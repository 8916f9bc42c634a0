"""Graphs labelled by the analytic simulator with noise: to try a pipeline, or to pretrain.

Their labels know nothing that the simulator does not; a network trained on them alone learns the
simulator. Figures on real measurements never come from them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnnperf.analytic import device_time
from gnnperf.data.model_graphs import ModelGraph, ModelMeta, Pass, Span
from gnnperf.graph import dtype_index
from gnnperf.hardware import Hardware
from gnnperf.ops import MAX_DIMS, OpBatch, dim_index, family_index

F64 = NDArray[np.float64]
OP_NOISE, FAMILY_NOISE = 0.03, 0.1
"""deviation of the log time of each op, and of a factor that a device's family shares"""
_Op = tuple[str, str, dict[str, float], tuple[int, ...]]
"""label, family, dimensions, places of the ops whose outputs it reads"""


def synthetic_graphs(
    devices: Sequence[Hardware], count: int, seed: int = 0, dtype: str = "float32"
) -> list[ModelGraph]:
    """Transformer layers of random size on random devices.

    Args:
        devices: To draw from.
        count: Graphs.
        seed: The same seed gives the same graphs.
        dtype: Element type of all tensors.
    """
    generator = np.random.default_rng(seed)
    factors: dict[tuple[str, int], float] = {}
    graphs = []
    for number in range(count):
        device = devices[int(generator.integers(len(devices)))]
        ops = _layer(generator)
        batch = _batch(ops, dtype)
        time = device_time(batch, device).total_us
        for family in np.unique(batch.family).tolist():
            key = (device.name, family)
            if key not in factors:
                factors[key] = float(np.exp(generator.normal(0, FAMILY_NOISE)))
            time = np.where(batch.family == family, time * factors[key], time)
        time = time * np.exp(generator.normal(0, OP_NOISE, len(ops)))
        graphs.append(_graph(ops, batch, time, f"synthetic-{seed}-{number}", device))
    return graphs


def _layer(generator: np.random.Generator) -> list[_Op]:
    """Pre-norm attention and MLP."""
    tokens_in_sequence = int(2 ** generator.integers(6, 12))
    sequences = int(2 ** generator.integers(0, 5))
    heads, head = int(2 ** generator.integers(2, 6)), int(2 ** generator.integers(5, 8))
    hidden, tokens, groups = heads * head, tokens_in_sequence * sequences, heads * sequences
    numel, element = tokens * hidden, 4

    def linear(n: float, k: float) -> dict[str, float]:
        shape = {"batch": 1, "m": tokens, "n": n, "k": k}
        return {**shape, "bias": 1, "b_transposed": 1, "variant": 1}

    def pointwise(size: float, inputs: int, special: int = 0) -> dict[str, float]:
        read = inputs * size * element
        sizes = {"numel": size, "bytes_read": read, "bytes_written": size * element}
        return {**sizes, "flops_per_element": 1, "inputs": inputs, "special": special}

    s = float(tokens_in_sequence)
    scores = {"batch": groups, "m": s, "n": s, "k": head, "variant": 2}
    context = {"batch": groups, "m": s, "n": head, "k": s, "variant": 2}
    norm = {"rows": float(tokens), "cols": float(hidden), "affine": 1.0}
    return [
        ("layer_norm", "norm", norm, ()),
        ("linear", "gemm", linear(3 * hidden, hidden), (0,)),
        ("bmm", "gemm", scores, (1,)),
        ("softmax", "softmax", {"rows": groups * s, "cols": s}, (2,)),
        ("bmm", "gemm", context, (3, 1)),
        ("linear", "gemm", linear(hidden, hidden), (4,)),
        ("elementwise", "elementwise", pointwise(numel, 2), (5,)),
        ("layer_norm", "norm", norm, (6,)),
        ("linear", "gemm", linear(4 * hidden, hidden), (7,)),
        ("elementwise", "elementwise", pointwise(4 * numel, 1, special=1), (8,)),
        ("linear", "gemm", linear(hidden, 4 * hidden), (9,)),
        ("elementwise", "elementwise", pointwise(numel, 2), (10, 6)),
    ]


def _batch(ops: Sequence[_Op], dtype: str) -> OpBatch:
    dims = np.zeros((len(ops), MAX_DIMS))
    for row, (_, family, values, _) in enumerate(ops):
        for name, value in values.items():
            dims[row, dim_index(family, name)] = value
    families = np.array([family_index(op[1]) for op in ops], np.int16)
    types = np.full(len(ops), dtype_index(dtype), np.int8)
    return OpBatch(families, dims, types, np.ones(len(ops), np.bool_))


def _graph(
    ops: Sequence[_Op], batch: OpBatch, time: F64, name: str, device: Hardware
) -> ModelGraph:
    n = len(ops)
    edges = [(source, place) for place, op in enumerate(ops) for source in op[3]]
    ends = np.array(edges, np.int32).reshape(-1, 2)
    meta = ModelMeta(name, "layer", "inf", 0, 0, "", device.name, device.name, source="synthetic")
    return ModelGraph(
        batch=batch,
        owner=np.arange(n, dtype=np.int32),
        names=tuple(f"{op[0]}_{place}" for place, op in enumerate(ops)),
        labels=tuple(op[0] for op in ops),
        kind=np.full(n, Pass.FORWARD, np.int8),
        duration_us=time,
        repeat=np.ones(n, np.int32),
        src=ends[:, 0].copy(),
        dst=ends[:, 1].copy(),
        span=np.full(len(ends), Span.SAME, np.int8),
        meta=meta,
    )
