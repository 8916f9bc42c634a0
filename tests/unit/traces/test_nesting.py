from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.traces.nesting import enclosing, nearest_marked

Row = tuple[int, float, float]


def brute_parents(rows: list[tuple[int, float, float]]) -> list[int]:
    """Innermost interval that was open, by a stack, of rows in the order of their starts."""
    parents: list[int] = []
    stacks: dict[int, list[int]] = {}
    for i, (lane, start, _) in enumerate(rows):
        stack = stacks.setdefault(lane, [])
        while stack and rows[stack[-1]][2] <= start:
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(i)
    return parents


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, float, float]]:
    rows: list[tuple[int, float, float]] = []

    def fill(lane: int, start: float, end: float, depth: int) -> None:
        cuts = sorted(draw(st.sets(st.integers(int(start) + 1, int(end) - 1), max_size=6)))
        for low, high in zip(cuts[::2], cuts[1::2], strict=False):
            rows.append((lane, float(low), float(high)))
            if depth and high - low > 3:
                fill(lane, low, high, depth - 1)

    for lane in range(draw(st.integers(1, 3))):
        fill(lane, 0, 60, 3)
    return sorted(rows, key=lambda r: (r[1], -r[2]))


@settings(max_examples=200, deadline=None)
@given(nested(), st.randoms(use_true_random=False))
def test_parents_equal_a_stack(rows: list[Row], random: Random) -> None:
    expected = brute_parents(rows)
    order = list(range(len(rows)))
    random.shuffle(order)
    lane, start, end = (
        np.array([rows[i][k] for i in order], np.int32 if k == 0 else np.float64) for k in range(3)
    )
    parent, _ = enclosing(lane, start, end, np.zeros(len(rows), np.int64), 0.0)
    found = {order[i]: (order[p] if p >= 0 else -1) for i, p in enumerate(parent.tolist())}
    assert [found[i] for i in range(len(rows))] == expected


def parents(
    *rows: tuple[float, float], tie: list[int] | None = None, tolerance: float = 0.0
) -> list[int]:
    start, end = np.array(rows, np.float64).T
    ties = np.array(tie if tie else [0] * len(rows), np.int64)
    return enclosing(np.zeros(len(rows), np.int32), start, end, ties, tolerance)[0].tolist()


def test_hundred_thousand_nested_calls() -> None:
    n = 100_000
    start = np.arange(n, dtype=np.float64)
    parent, depth = enclosing(
        np.zeros(n, np.int32), start, 2.0 * n - start, np.zeros(n, np.int64), 0.0
    )
    assert parent.tolist() == list(range(-1, n - 1))
    assert depth[-1] == n - 1


def test_neighbours_that_touch_are_not_nested() -> None:
    assert parents((0, 5), (5, 9)) == [-1, -1]


def test_rounding_does_not_nest_neighbours() -> None:
    assert parents((0, 5.001), (5, 9), (6, 7), tolerance=0.002) == [-1, -1, 1]


def test_a_child_may_end_late_by_rounding() -> None:
    assert parents((0, 5), (1, 5.001), (5.0005, 9), tolerance=0.002) == [-1, 0, -1]


def test_instant_at_the_end_of_another_lies_in_it() -> None:
    assert parents((0, 5), (5, 5)) == [-1, 0]


def test_instants_at_the_start_lie_in_what_was_called_before_them() -> None:
    assert parents((5, 9), (5, 5), (5, 7), tie=[1, 2, 3]) == [-1, 0, 0]


def test_same_interval_is_nested_in_order_of_calls() -> None:
    assert parents((0, 5), (0, 5), tie=[2, 1]) == [1, -1]


def test_nearest_marked_ancestor() -> None:
    parent = np.array([-1, 0, 1, 2, -1, 4], np.int32)
    marked = np.array([True, False, True, False, False, False])
    assert nearest_marked(parent, marked).tolist() == [0, 0, 2, 2, -1, -1]
