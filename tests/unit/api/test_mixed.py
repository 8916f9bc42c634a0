from pathlib import Path

import pytest

from gnnperf.api import mixed
from gnnperf.api.engines import AnalyticEngine, NetworkEngine, over_links
from gnnperf.api.jobs import chosen_step
from gnnperf.api.mixed import MixedEngine
from gnnperf.api.predictor import Predictor
from gnnperf.hardware import get_hardware
from gnnperf.ops import describe


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor.load()


def test_kernels_of_trained_kinds_take_the_geometric_mean(
    trace: Path, predictor: Predictor
) -> None:
    assert predictor.model is not None
    graph, a100 = chosen_step([trace]).graphs[0], get_hardware("a100-sxm-80gb")
    described = describe(graph)
    engine = MixedEngine(NetworkEngine(predictor.model))
    found, network = (e.times(graph, described, a100) for e in (engine, engine.network))
    formulas = AnalyticEngine().times(graph, described, a100)
    trained = predictor.model.trained_on(described.batch, a100)
    assert trained.tolist() == [True, False]  # a product, and an op of unknown family
    mean = network.time_us[0] ** 0.35 * formulas.time_us[0] ** 0.65
    assert found.time_us.tolist() == pytest.approx([mean, formulas.time_us[1]])
    # the interval is the network's, moved
    assert found.low_us[0] / mean == pytest.approx(network.low_us[0] / network.time_us[0])
    assert found.high_us[1] == formulas.high_us[1]
    assert any("1 kernels" in w and "by formulas alone" in w for w in found.warnings)
    assert not any("the analytic prior's" in w for w in found.warnings)


def test_long_products_are_the_networks(
    trace: Path, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixed, "LONG_US", 1.0)
    assert predictor.model is not None
    graph, a100 = chosen_step([trace]).graphs[0], get_hardware("a100-sxm-80gb")
    engine = MixedEngine(NetworkEngine(predictor.model))
    found, network = (e.times(graph, describe(graph), a100) for e in (engine, engine.network))
    assert found.time_us[0] == pytest.approx(network.time_us[0])


def test_links_are_formulas_and_not_told(trace: Path, predictor: Predictor) -> None:
    text = trace.read_text().replace('"my_kernel"', '"ncclDevKernel_AllReduce_Sum_bf16"')
    trace.write_text(text)
    graph, a100 = chosen_step([trace]).graphs[0], get_hardware("a100-sxm-80gb")
    described = describe(graph)
    assert over_links(described).tolist() == [False, True]
    assert predictor.engine is not None
    found = predictor.engine.times(graph, described, a100)
    formulas = AnalyticEngine().times(graph, described, a100)
    assert found.time_us[1] == formulas.time_us[1]
    assert found.warnings == ()
