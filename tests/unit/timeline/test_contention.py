"""Contention: its invariants, and slowdowns that others have measured."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.graph import Job
from gnnperf.timeline.contention import Demand, Load, contend, fill, slowdowns, sweep
from gnnperf.timeline.replay import run, schedule_of

GEMM = Load(100.0, 90.0, 30.0, 132.0, True, 0.0, 0.0)
COPY_LIKE = Load(100.0, 5.0, 95.0, 132.0, False, 0.0, 0.0)
COLLECTIVE = Load(100.0, 0.0, 20.0, 24.0, False, 24.0, 1.0)

loads = st.builds(
    Load,
    base_us=st.just(100.0),
    compute_us=st.floats(0, 100),
    memory_us=st.floats(0, 100),
    blocks=st.floats(1, 2000),
    waves=st.booleans(),
    channels=st.just(0.0),
    link_share=st.just(0.0),
)


def test_a_gemm_of_one_wave_beside_a_collective_takes_twice_as_long() -> None:
    # Measured on H100 (132 SMs): a 132-block GEMM beside a 24-block all-gather, about 2x
    # (forums.developer.nvidia.com, topic 337991).
    assert slowdowns([GEMM, COLLECTIVE], 132)[0] == pytest.approx(2.0)


def test_gemms_beside_collectives_slow_down_by_the_published_mean() -> None:
    # Mean 1.19, most 1.40 over GPT and LLaMA training on A100, H100, MI210, MI250
    # (arXiv 2507.03114); 16 to 24 channels, output tiles of 128 x 128 of transformer layers.
    sizes = [(1024, 1024), (2048, 4096), (4096, 4096), (4096, 12288), (8192, 8192), (8192, 28672)]
    found = []
    for m, n in sizes:
        for channels in (16.0, 20.0, 24.0):
            gemm = replace(GEMM, blocks=float(np.ceil(m / 128) * np.ceil(n / 128)))
            found.append(slowdowns([gemm, replace(COLLECTIVE, channels=channels)], 132)[0])
    assert 1.1 <= np.mean(found) <= 1.3
    assert max(found) < 1.6


def test_kernels_bound_by_memory_feel_the_memory_and_not_the_sms() -> None:
    quiet = replace(COLLECTIVE, memory_us=0.0)
    assert slowdowns([COPY_LIKE, quiet], 132)[0] == pytest.approx(1.0)
    # Two works that each want 95 % of the memory get half of it.
    assert slowdowns([COPY_LIKE, COPY_LIKE], 264) == pytest.approx([1.9, 1.9])


def test_collectives_share_their_links() -> None:
    assert slowdowns([COLLECTIVE, COLLECTIVE], 132) == pytest.approx([2.0, 2.0])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), st.floats(0.1, 20))
def test_water_filling_is_fair_and_wastes_nothing(wanted: list[float], available: float) -> None:
    shares = fill(wanted, available)
    assert all(s <= w + 1e-9 for s, w in zip(shares, wanted, strict=True))
    assert sum(shares) == pytest.approx(min(sum(wanted), available))
    short = [s for s, w in zip(shares, wanted, strict=True) if s < w - 1e-9]
    assert not short or max(shares) <= min(short) + 1e-9


@settings(max_examples=300, deadline=None)
@given(st.lists(loads, min_size=1, max_size=4), st.floats(0, 60), st.floats(0, 60))
def test_slowdowns_are_at_least_one_and_grow_with_channels(
    kernels: list[Load], few: float, more: float
) -> None:
    low, high = sorted((few, more))
    least = slowdowns([*kernels, replace(COLLECTIVE, channels=low, memory_us=0.0)], 132)
    most = slowdowns([*kernels, replace(COLLECTIVE, channels=high, memory_us=0.0)], 132)
    if low > 0:
        assert all(1.0 <= a <= b + 1e-9 for a, b in zip(least[:-1], most[:-1], strict=True))
    assert slowdowns(kernels[:1], 132) == [1.0]


def test_a_collective_without_bytes_or_channels_is_free() -> None:
    nothing = Load(1.0, 0.0, 0.0, 0.0, False, 0.0, 0.0)
    assert slowdowns([GEMM, nothing], 132) == [1.0, 1.0]


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_work_is_conserved_and_the_makespan_bounded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    lane = rng.integers(0, 3, n)
    start = np.sort(rng.uniform(0, 300, n))
    base = rng.uniform(5, 100, n)
    works = [
        Load(float(b), 0.0, float(b), 132.0, False, 0.0, 0.0) for b in base
    ]  # all bound by memory: together they move exactly one unit per time
    duration = sweep(lane, start, start, base, works, 132)
    alone = sweep(np.zeros(n, np.int64), start, start, base, works, 132)
    assert (duration >= base - 1e-9).all()
    np.testing.assert_allclose(alone, base, rtol=1e-12)
    finish: dict[int, float] = {}
    total = 0.0
    for i in range(n):
        begin = max(start[i], finish.get(int(lane[i]), -np.inf))
        finish[int(lane[i])] = begin + duration[i]
        total = (
            max(total + base[i], start[i] + base[i]) if i == 0 else max(total, start[i]) + base[i]
        )
    # The memory is one server that never idles while there is work.
    assert max(finish.values()) == pytest.approx(total, rel=1e-9)


def _demand(nodes: int, load: Load) -> Demand:
    def column(value: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.full(nodes, value)

    return Demand(
        column(load.compute_us),
        column(load.memory_us),
        column(load.blocks),
        np.full(nodes, load.waves),
        column(load.channels),
        column(load.link_share),
        column(load.residual),
    )


def test_without_overlap_a_step_is_exactly_the_plain_one(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    program = [make("launch", 30.0), make("gap", 60.0), make("launch", 9.0, 20), make("gap", 9.0)]
    graph = programs.record(program)
    step = schedule_of(Job((graph,)))
    alone = [graph.nodes.duration_us]
    plain = run(step, alone)
    shared = contend(step, alone, [_demand(graph.num_nodes, GEMM)], [132])
    np.testing.assert_array_equal(plain.times[-1].event_us, shared.times[-1].event_us)


def test_overlapping_streams_slow_each_other_down(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    graph = programs.record([make("launch", 300.0), make("launch", 300.0, 20), make("gap", 900.0)])
    step = schedule_of(Job((graph,)))
    busy = _demand(graph.num_nodes, Load(300.0, 0.0, 300.0, 60.0, False, 0.0, 0.0))
    result = contend(step, [graph.nodes.duration_us], [busy], [132])
    start, end = result.node_times(0)
    # The second begins 8 later; both together need 600 of the memory's time.
    assert np.nanmax(end[2:]) == pytest.approx(600.0)
    assert (end - start)[2:] == pytest.approx([592.0, 592.0])
