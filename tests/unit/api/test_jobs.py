"""Which step of a trace is predicted, and what is said of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from gnnperf.api import simulate
from gnnperf.api.jobs import CHOICE, chosen_step


def choice(trace: Path, step: int | None = None) -> str:
    return dict(chosen_step([trace], step).graphs[0].meta.notes)[CHOICE]


def test_the_first_step_is_left_out_and_that_is_said(trace: Path) -> None:
    # Four steps: the first has the allocations, of the last the period is not known.
    job = chosen_step([trace])
    assert job.graphs[0].meta.step in (1, 2)
    assert choice(trace) == (
        "the median of 2 steady steps of 4; the first, with its allocations, is left out"
    )
    assert simulate(job).provenance["step_choice"] == choice(trace)


def test_a_step_that_was_asked_for(trace: Path) -> None:
    assert choice(trace, 2) == "asked for"
    assert choice(trace, 0) == "asked for, the first: allocations and warm-up are in it"


@pytest.mark.parametrize(("us", "told"), [(50.0, True), (1.0, False)])
def test_allocations_are_told_where_they_matter(trace: Path, us: float, told: bool) -> None:
    data = json.loads(trace.read_text())
    malloc: dict[str, Any] = {
        "ph": "X", "name": "cudaMalloc", "cat": "cuda_runtime", "pid": 1, "tid": 1,
        "ts": 1000.0 + 120, "dur": us, "args": {"correlation": 900},
    }  # fmt: skip
    data["traceEvents"].append(malloc)
    trace.write_text(json.dumps(data))
    warnings = chosen_step([trace], 0).graphs[0].meta.warnings
    found = [w for w in warnings if w.startswith("the step allocates device memory (1 calls, 0.05")]
    assert len(found) == told
    assert not any("allocates" in w for w in chosen_step([trace]).graphs[0].meta.warnings)
