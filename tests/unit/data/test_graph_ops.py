"""Which ops of labelled models the prior is fitted to."""

import numpy as np
import pytest
import torch

from gnnperf.analytic import roofline_rule
from gnnperf.data.graph_ops import FittedRows, model_ops
from gnnperf.data.model_graphs import ModelGraph, ModelMeta, Pass
from gnnperf.graph import dtype_index
from gnnperf.hardware import get_hardware
from gnnperf.nn.model import ModelConfig
from gnnperf.ops import MAX_DIMS, OpBatch, family_index

NEUSIGHT = "neusight:pytorch:any"


def graph() -> ModelGraph:
    """Four softmax ops: forward, backward, forward of two pieces, forward that was not timed."""
    pieces = 5
    dims = np.zeros((pieces, MAX_DIMS))
    dims[:, 0], dims[:, 1] = np.arange(pieces) + 1, 64
    batch = OpBatch(
        np.full(pieces, family_index("softmax"), np.int16),
        dims,
        np.full(pieces, dtype_index("float32"), np.int8),
        np.ones(pieces, np.bool_),
    )
    none = np.zeros(0, np.int32)
    kinds = [Pass.FORWARD, Pass.BACKWARD, Pass.FORWARD, Pass.FORWARD]
    return ModelGraph(
        batch=batch,
        owner=np.array([0, 1, 2, 2, 3], np.int32),
        names=("a", "b", "c", "d"),
        labels=("softmax", "softmax backward", "softmax", "softmax"),
        kind=np.array(kinds, np.int8),
        duration_us=np.array([20.0, 30.0, 40.0, np.nan]),
        repeat=np.ones(4, np.int32),
        src=none,
        dst=none,
        span=np.zeros(0, np.int8),
        meta=ModelMeta("x", "m", "inf", 8, 1, "", "t4", "Tesla T4"),
    )


def test_pieces_of_timed_ops_share_its_time_on_devices_that_are_trained_on() -> None:
    config = ModelConfig(("t4",), (NEUSIGHT,), ())
    t4, l4 = get_hardware("t4"), get_hardware("l4")
    (found,) = model_ops(config, [(graph(), t4), (graph(), l4)])
    rule = roofline_rule(graph().batch, t4)
    third = 40.0 * rule[2] / (rule[2] + rule[3])
    assert found.x.dims[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert torch.exp(found.log_time).tolist() == pytest.approx([20.0, 30.0, third, 40.0 - third])
    assert found.x.launch_included.tolist() == [1.0, 1.0, 1.0, 0.0]
    assert found.weight[:2].tolist() == pytest.approx([0.5 / 3**0.5, 0.6])
    assert (found.x.in_model == 1).all()
    assert found.x.device.tolist() == [0] * 4
    assert found.x.variant.tolist() == [0] * 4


def test_a_small_piece_of_an_op_tells_nothing() -> None:
    config = ModelConfig(("t4",), (NEUSIGHT,), ())
    given = graph()
    given.batch.dims[2, 0] = 100_000
    (found,) = model_ops(config, [(given, get_hardware("t4"))])
    assert found.x.dims[:, 0].tolist() == [1.0, 2.0, 100_000.0]


def test_no_op_of_a_trained_device_gives_nothing_to_join() -> None:
    config = ModelConfig(("t4",), (NEUSIGHT,), ())
    (own,) = model_ops(config, [(graph(), get_hardware("t4"))])
    joined = own.joined(model_ops(config, [(graph(), get_hardware("l4"))]))
    assert isinstance(joined, FittedRows)
    assert len(joined.log_time) == 4
