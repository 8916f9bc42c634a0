import csv
import math
import os
from pathlib import Path

import numpy as np
import pytest

from gnnperf.analytic.collective_fit import fit, least_squares, pack, unpack
from gnnperf.analytic.collectives import Coefficients, coefficients, evaluate
from gnnperf.analytic.sweeps import Case, read_cases, score_collectives
from gnnperf.errors import InputError

SHARED = Path(os.environ.get("GNNPERF_SHARED", Path(__file__).parents[4] / "shared"))
TABLE = SHARED / "data" / "multigpu" / "collectives.csv"

ROW = {
    "gpu": "H100 SXM",
    "n_gpus": "8",
    "nodes": "1",
    "interconnect": "",
    "collective": "all_reduce",
    "bytes": "1048576",
    "time_us": "25.4",
    "dtype": "half",
    "sweep_id": "7",
}


def test_rows_come_back_in_order_with_reasons() -> None:
    rows = [{**ROW, "gpu": "Frobnicator"}, ROW, {**ROW, "collective": "hum"}, {**ROW, "bytes": ""}]
    scored = score_collectives(rows)
    assert [s.id for s in scored] == ["7", "7+1048576", "7", "7"]
    assert scored[1].low_us < scored[1].predicted_us < scored[1].high_us
    assert scored[1].device == "h100-sxm"
    assert "unknown gpu Frobnicator" in scored[0].why_not
    assert "hum" in scored[2].why_not
    assert "no number" in scored[3].why_not
    assert math.isnan(scored[0].predicted_us)
    _, refused = read_cases(rows)
    assert refused.total() == 3


def test_missing_column_is_named() -> None:
    with pytest.raises(InputError, match="time_us"):
        score_collectives([{k: v for k, v in ROW.items() if k != "time_us"}])


def test_least_squares_finds_a_known_minimum() -> None:
    x = np.linspace(0, 2, 30)
    truth = np.array([0.7, -1.3])
    found = least_squares(lambda p: np.exp(p[0] * x) + p[1] - np.exp(0.7 * x) + 1.3, np.zeros(2))
    assert found == pytest.approx(truth, abs=1e-4)


def test_fit_recovers_the_coefficients_that_made_the_times() -> None:
    sizes = [str(4**k) for k in range(4, 16)]
    rows = [
        {**ROW, "gpu": gpu, "n_gpus": n, "collective": kind, "bytes": size}
        for gpu in ("H100 SXM", "A100 SXM")
        for n in ("2", "4", "8")
        for kind in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "send_recv")
        for size in sizes
    ]
    made = pack(coefficients())
    made[:5] += 0.3  # another latency of each kind
    truth = unpack(made)
    cases, _ = read_cases(rows)
    cases = [
        Case(c.device, c.platform, c.rows, c.terms, c.bytes, evaluate(truth, c.terms))
        for c in cases
    ]
    found: Coefficients = fit(cases)
    for case in cases:
        assert evaluate(found, case.terms) == pytest.approx(case.measured_us, rel=0.06)


@pytest.mark.skipif(not TABLE.exists(), reason=f"no measured sweeps at {TABLE}")
def test_measured_sweeps() -> None:
    with TABLE.open() as file:
        rows = list(csv.DictReader(file))
    scored = [s for s in score_collectives(rows) if not s.why_not]
    assert len(scored) == len(rows)
    measured = np.array([s.measured_us for s in scored])
    inside = [(s.low_us <= s.measured_us <= s.high_us) for s in scored]
    error = np.abs(np.array([s.predicted_us for s in scored]) / measured - 1)
    assert np.median(error) < 0.25
    assert np.mean(inside) > 0.75
