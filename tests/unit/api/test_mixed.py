from pathlib import Path

import numpy as np
import pytest

from gnnperf.api import mixed
from gnnperf.api.engines import AnalyticEngine, NetworkEngine
from gnnperf.api.jobs import chosen_step
from gnnperf.api.predictor import Predictor
from gnnperf.hardware import get_hardware
from gnnperf.ops import describe


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor.load()


def test_short_kernels_are_timed_by_formulas_and_said_to_be(
    trace: Path, predictor: Predictor
) -> None:
    job, a100 = chosen_step([trace]), get_hardware("a100-sxm-80gb")
    graph = job.graphs[0]
    described = describe(graph)
    assert predictor.engine is not None
    found = predictor.engine.times(graph, described, a100)
    formulas = AnalyticEngine().times(graph, described, a100)
    assert formulas.time_us[0] < mixed.SHORT_US
    assert np.array_equal(found.time_us, formulas.time_us)
    assert any("2 kernels" in w and "by formulas" in w for w in found.warnings)


def test_long_kernels_of_trained_kinds_are_the_networks(
    trace: Path, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixed, "SHORT_US", 0.0)
    assert predictor.model is not None
    graph, a100 = chosen_step([trace]).graphs[0], get_hardware("a100-sxm-80gb")
    described = describe(graph)
    engine = mixed.MixedEngine(NetworkEngine(predictor.model))
    found, network = (e.times(graph, described, a100) for e in (engine, engine.network))
    formulas = AnalyticEngine().times(graph, described, a100)
    trained = predictor.model.trained_on(described.batch, a100)
    assert trained.tolist() == [True, False]  # a product, and an op of unknown family
    assert found.time_us.tolist() == [network.time_us[0], formulas.time_us[1]]
    assert not any("the analytic prior's" in w for w in found.warnings)
