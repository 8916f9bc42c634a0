"""Contention: its invariants, and slowdowns that others have measured."""

from time import process_time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.graph import Job
from gnnperf.graph.model import F64
from gnnperf.timeline.contention import Demand, Works, contend, fill, overlaps, slowdowns, stretched
from gnnperf.timeline.replay import run, schedule_of

Load = tuple[float, float, float, float, bool, float, float, bool]
BASE = 100.0
GEMM: Load = (90.0, 30.0, 0.0, 132.0, True, 0.0, 0.0, False)
COPY_LIKE: Load = (5.0, 95.0, 0.0, 132.0, False, 0.0, 0.0, False)
COLLECTIVE: Load = (0.0, 20.0, 0.0, 0.0, False, 24.0, 1.0, False)

loads = st.tuples(
    st.floats(0, 100),
    st.floats(0, 100),
    st.floats(0, 20),
    st.floats(1, 2000),
    st.booleans(),
    st.just(0.0),
    st.just(0.0),
    st.just(False),
)


def with_channels(load: Load, channels: float, memory_us: float = 20.0) -> Load:
    return (load[0], memory_us, *load[2:5], channels, *load[6:])


def demand(*rows: Load) -> Demand:
    return Demand(*(np.array(column) for column in zip(*rows, strict=True)))


def together(rows: list[Load], sm_count: int, base_us: F64 | None = None) -> F64:
    """Slowdowns of works that all run and move at once."""
    which = np.arange(len(rows))[None]
    base = np.full(which.shape, BASE) if base_us is None else base_us[None]
    on = np.ones(which.shape, np.bool_)
    return slowdowns(demand(*rows).take(which), base, on, on, sm_count)[0]


def event_by_event(works: Works, base: F64, rows: list[Load], sm_count: int) -> F64:
    """Durations by a simulation from event to event: the judge of `stretched`.

    Works of one stream wait for the one before; `works.duration_us` is not looked at.
    """
    n = len(base)
    left, begin, duration = base.copy(), works.start_us.copy(), np.full(n, np.nan)
    done, time = np.zeros(n, np.bool_), -np.inf
    while not done.all():
        first = [
            i
            for i in range(n)
            if not done[i]
            and not any(
                not done[j]
                and j != i
                and works.lane[j] == works.lane[i]
                and (works.start_us[j], j) < (works.start_us[i], i)
                for j in range(n)
            )
        ]
        on = [i for i in first if begin[i] <= time]
        slow = (
            dict(zip(on, together([rows[i] for i in on], sm_count, base[on]), strict=True))
            if on
            else {}
        )
        ends = {i: time + left[i] * slow[i] for i in on}
        coming = [begin[i] for i in first if begin[i] > time]
        upcoming = min([*ends.values(), *coming])
        for i in on:
            left[i] = 0.0 if ends[i] == upcoming else left[i] - (upcoming - time) / slow[i]
            if ends[i] == upcoming:
                duration[i], done[i] = upcoming - begin[i], True
                for j in range(n):
                    if not done[j] and works.lane[j] == works.lane[i]:
                        begin[j] = max(begin[j], upcoming)
        time = upcoming
    return duration


def settle(works: Works, base: F64, load: Demand, sm_count: int) -> F64:
    """Durations of works whose streams run in order, made consistent with their starts."""
    duration = base.copy()
    for _ in range(200):
        start = works.start_us.copy()
        for lane in np.unique(works.lane):
            free = -np.inf
            for i in np.flatnonzero(works.lane == lane)[
                np.argsort(works.start_us[works.lane == lane], kind="stable")
            ]:
                start[i] = max(start[i], free)
                free = start[i] + duration[i]
        now = Works(works.lane, start, start, duration)
        longer = stretched(now, base, load, sm_count, np.inf)
        if np.allclose(longer, duration, rtol=1e-13, atol=1e-10):
            return duration
        duration = longer
    raise AssertionError("does not settle")


def test_a_gemm_of_one_wave_beside_a_collective_takes_twice_as_long() -> None:
    # Measured on H100 (132 SMs): a 132-block GEMM beside a 24-block all-gather, about 2x
    # (forums.developer.nvidia.com, topic 337991).
    assert together([GEMM, COLLECTIVE], 132)[0] == pytest.approx(2.0)


def test_gemms_beside_collectives_slow_down_by_the_published_mean() -> None:
    # Mean 1.19, most 1.40 over GPT and LLaMA training on A100, H100, MI210, MI250
    # (arXiv 2507.03114); 16 to 24 channels, output tiles of 128 x 128 of transformer layers.
    sizes = [(1024, 1024), (2048, 4096), (4096, 4096), (4096, 12288), (8192, 8192), (8192, 28672)]
    found = []
    for m, n in sizes:
        for channels in (16.0, 20.0, 24.0):
            blocks = float(np.ceil(m / 128) * np.ceil(n / 128))
            gemm = (*GEMM[:3], blocks, *GEMM[4:])
            found.append(together([gemm, with_channels(COLLECTIVE, channels)], 132)[0])
    assert 1.1 <= np.mean(found) <= 1.3
    assert max(found) < 1.6


def test_kernels_bound_by_memory_feel_the_memory_and_not_the_sms() -> None:
    quiet = with_channels(COLLECTIVE, 24.0, 0.0)
    assert together([COPY_LIKE, quiet], 132)[0] == pytest.approx(1.0)
    # Two works that each want 95 % of the memory get half of it.
    assert together([COPY_LIKE, COPY_LIKE], 264) == pytest.approx([1.9, 1.9])


def test_the_latency_of_a_kernel_is_not_stretched() -> None:
    half = (45.0, 0.0, 50.0, *GEMM[3:])
    # 50 of 100 us are latency, the other 50 take twice as long.
    assert together([half, COLLECTIVE], 132)[0] == pytest.approx(1.5)


def test_measured_durations_slow_others_and_not_themselves() -> None:
    measured = (*GEMM[:7], True)
    assert together([measured, COLLECTIVE], 132)[0] == 1.0
    assert together([COPY_LIKE, (*COPY_LIKE[:7], True)], 264) == pytest.approx([1.9, 1.0])


def test_collectives_share_their_links() -> None:
    assert together([COLLECTIVE, COLLECTIVE], 132) == pytest.approx([2.0, 2.0])


def test_a_collective_that_waits_holds_its_sms_and_moves_nothing() -> None:
    rows = demand(GEMM, COPY_LIKE, COLLECTIVE).take(np.arange(3)[None])
    on = np.ones((1, 3), np.bool_)
    waiting = np.array([[True, True, False]])
    found = slowdowns(rows, np.full((1, 3), BASE), on, waiting, 264)[0]
    # 240 SMs are enough for 2 x 132 wishes but for 24; memory: 0.3 + 0.95 of 1, nothing else.
    assert found[1] == pytest.approx(0.95 / 0.7)
    assert found[2] == 1.0


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), st.floats(0.1, 20))
def test_water_filling_is_fair_and_wastes_nothing(wanted: list[float], available: float) -> None:
    shares = fill(np.array([wanted]), np.array([available]))[0]
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
    least = together([*kernels, with_channels(COLLECTIVE, low, 0.0)], 132)
    most = together([*kernels, with_channels(COLLECTIVE, high, 0.0)], 132)
    if low > 0:
        assert all(1.0 <= a <= b + 1e-9 for a, b in zip(least[:-1], most[:-1], strict=True))
    assert together(kernels[:1], 132).tolist() == [1.0]


def test_a_collective_without_bytes_or_channels_is_free() -> None:
    nothing: Load = (0.0, 0.0, 0.0, 0.0, False, 0.0, 0.0, False)
    assert together([GEMM, nothing], 132).tolist() == [1.0, 1.0]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_settles_is_what_a_simulation_from_event_to_event_gives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 10))
    base = rng.uniform(5, 100, n)
    rows: list[Load] = [
        (
            float(rng.uniform(0, b)),
            float(rng.uniform(0, b)),
            float(rng.uniform(0, b / 4)),
            float(rng.integers(1, 600)),
            bool(rng.random() < 0.5),
            0.0,
            0.0,
            bool(rng.random() < 0.2),
        )
        for b in base
    ]
    start = np.sort(rng.uniform(0, 300, n))
    works = Works(rng.integers(0, 3, n), start, start, base)
    judge = event_by_event(works, base, rows, 132)
    np.testing.assert_allclose(settle(works, base, demand(*rows), 132), judge, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_work_is_conserved_and_the_makespan_bounded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    lane = rng.integers(0, 3, n)
    start = np.sort(rng.uniform(0, 300, n))
    base = rng.uniform(5, 100, n)
    rows: list[Load] = [(0.0, float(b), 0.0, 132.0, False, 0.0, 0.0, False) for b in base]
    # All bound by memory: together they move exactly one unit per time.
    duration = settle(Works(lane, start, start, base), base, demand(*rows), 132)
    assert (duration >= base - 1e-9).all()
    finish: dict[int, float] = {}
    total = -np.inf
    for i in range(n):
        begin = max(start[i], finish.get(int(lane[i]), -np.inf))
        finish[int(lane[i])] = begin + duration[i]
        total = max(total, start[i]) + base[i]
    # The memory is one server that never idles while there is work.
    assert max(finish.values()) == pytest.approx(total, rel=1e-6)


def everywhere(nodes: int, load: Load) -> Demand:
    return demand(*[load] * nodes)


def test_without_overlap_a_step_is_exactly_the_plain_one(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    program = [make("launch", 30.0), make("gap", 60.0), make("launch", 9.0, 20), make("gap", 9.0)]
    graph = programs.record(program)
    step = schedule_of(Job((graph,)))
    plain = run(step)
    shared = contend(plain, [everywhere(graph.num_nodes, GEMM)], [132])
    assert not overlaps(plain)
    np.testing.assert_array_equal(plain.times[-1].event_us, shared.result.times[-1].event_us)
    assert shared.added_us == 0.0
    assert (shared.factor[0] == 1.0).all()


def test_overlapping_streams_slow_each_other_down(programs: SimpleNamespace) -> None:
    make = programs.Instruction
    graph = programs.record([make("launch", 300.0), make("launch", 300.0, 20), make("gap", 900.0)])
    step = schedule_of(Job((graph,)))
    busy = everywhere(graph.num_nodes, (0.0, 300.0, 0.0, 60.0, False, 0.0, 0.0, False))
    shared = contend(run(step), [busy], [132])
    start, end = shared.result.node_times(0)
    # The second begins 8 later; both together need 600 of the memory's time.
    assert np.nanmax(end[2:]) == pytest.approx(600.0)
    assert (end - start)[2:] == pytest.approx([592.0, 592.0])
    assert shared.factor[0][2:] == pytest.approx([592 / 300, 592 / 300])


def test_works_that_hang_over_the_end_of_a_step_meet_the_next_one(
    programs: SimpleNamespace,
) -> None:
    # 266 us of host per step; the second stream's 200 us hang over into the next step, where they
    # meet its first 100 us. Both want the whole memory, which serves 300 us of work per step: the
    # second stream never rests but for the queue's gap, and the first one always runs beside it.
    make = programs.Instruction
    program = [make("launch", 100.0), make("gap", 150.0), make("launch", 200.0, 20)]
    graph = programs.record([*program, make("gap", 100.0)])
    step = schedule_of(Job((graph,)))
    busy = everywhere(graph.num_nodes, (0.0, 1e3, 0.0, 60.0, False, 0.0, 0.0, False))
    shared = contend(run(step), [busy], [132])
    assert shared.alone_us == pytest.approx(266.0)
    assert shared.result.iteration_us == pytest.approx(300.0, abs=3.0)
    assert shared.factor[0][2:] == pytest.approx([2.0, 1.5], abs=0.02)
    assert shared.rest_us <= 0.05


def test_a_step_of_ten_thousand_nodes_takes_a_fraction_of_a_second(
    programs: SimpleNamespace,
) -> None:
    rng = np.random.default_rng(0)
    make = programs.Instruction
    program = []
    for stream in rng.choice([7, 7, 7, 20, 22], 5000).tolist():
        program.append(make("launch", float(rng.exponential(15.0)), stream))
        if rng.random() < 0.02:
            program.append(make("hold", 0.0, int(rng.choice([7, 20]))))
    graph = programs.record(program, steps=3)
    plain = run(schedule_of(Job((graph,))))
    rows = [
        (float(c), float(m), 1.0, float(b), bool(w), 0.0, 0.0, False)
        for c, m, b, w in zip(
            rng.uniform(0, 10, graph.num_nodes),
            rng.uniform(0, 10, graph.num_nodes),
            rng.integers(1, 600, graph.num_nodes),
            rng.random(graph.num_nodes) < 0.5,
            strict=True,
        )
    ]
    before = process_time()
    shared = contend(plain, [demand(*rows)], [108])
    assert process_time() - before < 1.0  # 0.2 s on a core of 2024
    assert shared.added_us > 1000.0
    assert shared.rest_us < 1e-3 * shared.result.iteration_us
