"""Figures against hand-computed ones."""

import numpy as np
import pytest

from gnnperf.api.predictor import Predictor
from gnnperf.data.importers import ImportReport
from gnnperf.data.model_graphs import PieceEdges
from gnnperf.data.tables import KERNEL_TABLE, KernelTable, Names, family_dims, make_table
from gnnperf.evaluation.context import Context, Settings
from gnnperf.evaluation.kernel_models import How, Predicted
from gnnperf.evaluation.run import kernel_entries
from gnnperf.evaluation.scores import IterationScore, iteration_figures
from gnnperf.evaluation.tables import score_tables
from gnnperf.hardware import Hardware
from gnnperf.ops import OpBatch


class Fixed:
    """Says that everything takes 100 us, give or take 20, and notes how it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, How]] = []

    def predict(
        self, batch: OpBatch, hardware: Hardware, how: How, edges: PieceEdges | None = None
    ) -> Predicted:
        self.asked.append((hardware.name, len(batch), how))
        times = np.full(len(batch), 100.0)
        return Predicted(times, times - 20, times + 20)


def table(durations: list[float], **columns: object) -> KernelTable:
    rows = len(durations)
    given = {
        "device": "l4",
        "raw_device": "NVIDIA L4",
        "family": "softmax",
        "label": "softmax",
        "dtype": "float32",
        "source": "neusight",
        "launch_included": False,
        "row": np.arange(rows),
        "origin": KERNEL_TABLE,
    }
    return make_table(
        np.array(durations),
        family_dims("softmax", rows, rows=4096, cols=1024),
        **({"peers": {}} | given | columns),
    )


def scored(*parts: KernelTable, **settings: object) -> tuple[Context, Fixed]:
    fixed = Fixed()
    formulas = Predictor.of_engine("analytic")
    context = Context(Settings("analytic", **settings), lambda hardware: formulas, fixed)
    score_tables(parts, ImportReport("test"), context)
    return context, fixed


def test_figures_of_an_entry_are_those_computed_by_hand() -> None:
    # predicted 100: errors +100 %, 0, -20 %, -50 %
    context, _ = scored(
        table([50.0, 100, 125, 200], peers={"li": np.array([75, np.nan, 125, 100])})
    )
    (entry,) = kernel_entries(context)
    assert entry["n"] == 4
    assert entry["mape"] == pytest.approx((100 + 0 + 20 + 50) / 4)
    assert entry["median_ape"] == pytest.approx((20 + 50) / 2)
    assert entry["bias"] == pytest.approx((100 + 0 - 20 - 50) / 4)
    assert entry["coverage"] == 25  # only 100 lies between 80 and 120
    # the peer: +50 %, none, 0, -50 %
    assert entry["peers"]["li"] == {
        "n": 3,
        "mape": pytest.approx(100 / 3, abs=1e-3),
        "median_ape": 50,
    }
    assert entry["analytic_mape"] > 0
    assert entry["rule_mape"] > 0
    assert entry["mlp_mape"] is None
    assert (entry["device"], entry["source"], entry["data"]) == ("l4", "kernel table", "neusight")


def test_rows_that_show_the_host_are_left_out_and_counted() -> None:
    context, _ = scored(table([10.0, 49, 50], launch_included=True), table([10.0]))
    assert len(context.scores) == 2
    assert sum(context.scores.left_out.values()) == 2
    on_the_host, _ = scored(table([10.0, 49, 50], launch_included=True, device="cpu"))
    assert len(on_the_host.scores) == 3
    everything, _ = scored(table([10.0, 49, 50], launch_included=True), min_us=0)
    assert len(everything.scores) == 3


def test_unknown_devices_are_counted_and_named_and_the_rest_is_scored() -> None:
    rows = table([100.0] * 3, device=Names.of(["l4", "NVIDIA X9", "NVIDIA X9"]))
    context, _ = scored(rows)
    assert dict(context.scores.unknown_devices) == {"NVIDIA X9": 2}
    assert len(context.scores) == 1


def test_each_row_is_predicted_as_it_was_measured() -> None:
    _, fixed = scored(
        table([100.0, 100], launch_included=np.array([True, False])),
        table([100.0], framework="sglang", kernel_source="fa3", source="aiconfigurator"),
    )
    hows = {
        (name, how.source, how.kernel_source, how.launch_included) for name, _, how in fixed.asked
    }
    assert hows == {
        ("l4", "neusight", "", True),
        ("l4", "neusight", "", False),
        ("l4", "aiconfigurator", "fa3", False),
    }


def test_a_group_left_out_is_all_that_is_scored() -> None:
    rows = table([100.0] * 3, device=Names.of(["l4", "a100-sxm-80gb", "a100-pcie-40gb"]))
    context, _ = scored(rows, leave_out="a100")
    assert {key.device for key in context.scores.parts} == {"a100-sxm-80gb", "a100-pcie-40gb"}


def test_a_limit_draws_the_same_rows_every_time() -> None:
    rows = table(list(np.linspace(60, 900, 500)))
    first, second = (kernel_entries(scored(rows, limit=50)[0]) for _ in range(2))
    assert first == second
    assert first[0]["n"] == 50


def test_unknown_families_are_no_part_of_the_score() -> None:
    rows = table([100.0, 100], dtype=Names.of(["float32", "posit8"]))
    context, _ = scored(rows)
    assert len(context.scores) == 1
    assert context.scores.left_out["family or type not known"] == 1


def test_figures_of_iterations() -> None:
    steps = [
        IterationScore("a", "l4", 100, 110, 90, 120, 150, peers_us={"li": 50}),
        IterationScore("b", "l4", 100, 70, 60, 80, 100, parts_us={"forward": (40, 50)}),
    ]
    figures = iteration_figures(steps)
    assert figures["mape"] == figures["median_ape"] == pytest.approx(20)
    assert figures["max_ape"] == pytest.approx(30)
    assert figures["geomean_ape"] == pytest.approx(300**0.5, abs=1e-3)  # of 10 and 30
    assert figures["bias"] == pytest.approx(-10)
    assert figures["coverage"] == 50
    assert figures["analytic_mape"] == pytest.approx(25)
    assert figures["peers"]["li"]["mape"] == pytest.approx(50)
    assert figures["peers"]["li"]["mape_of_gnnperf_on_the_same"] == pytest.approx(10)
    assert figures["parts"]["forward"]["mape"] == pytest.approx(25)
    entry = steps[0].to_json()
    assert entry["ape"] == pytest.approx(10)
    assert IterationScore("c", "l4", 1, 1, 1, 1, float("nan")).to_json()["analytic_us"] is None


def test_formulas_refitted_without_the_group_by_hand() -> None:
    """Formulas are twice too fast on T4 and right on L4: refitted, half and twice the time."""
    steps = [
        IterationScore("a", "t4", 200.0, 200.0, 150.0, 250.0, 100.0, "x"),
        IterationScore("b", "l4", 100.0, 100.0, 50.0, 150.0, 100.0, "x"),
    ]
    assert iteration_figures(steps)["analytic_refitted_mape"] == pytest.approx((50 + 100) / 2)
    assert iteration_figures(steps[:1])["analytic_refitted_mape"] is None
