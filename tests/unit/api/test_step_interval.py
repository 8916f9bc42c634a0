"""How far the errors of a step's ops go together."""

import numpy as np
import pytest

from gnnperf.api.step import CORRELATION, together


def test_one_op_errs_by_all_of_its_interval_and_many_by_their_common_part() -> None:
    assert together(np.array([7.0])) == 1.0
    assert together(np.array([0.0, 3.0, 0.0])) == 1.0
    assert together(np.zeros(2)) == 1.0
    many = together(np.ones(100_000))
    assert many == pytest.approx(np.sqrt(CORRELATION), rel=1e-3)


def test_the_sum_of_correlated_errors_has_that_deviation() -> None:
    generator = np.random.default_rng(0)
    deviation = np.array([1.0, 2.0, 0.5, 4.0])
    common = generator.standard_normal((200_000, 1))
    own = generator.standard_normal((200_000, 4))
    errors = deviation * (np.sqrt(CORRELATION) * common + np.sqrt(1 - CORRELATION) * own)
    expected = errors.sum(1).std() / deviation.sum()
    assert together(deviation) == pytest.approx(expected, rel=0.01)
