"""Intervals, pass@k and paired differences, against numbers worked out elsewhere."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest

from engine.recipes.evaluation.estimates import (
    TaskScore,
    difference,
    interval,
    pass_at,
    score,
    t_quantile,
)

#: Two-sided 95 % quantiles of Student's t, from the printed tables.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 29: 2.045, 120: 1.980}


@pytest.mark.parametrize(("freedom", "value"), TABLE.items())
def test_quantiles_are_those_of_the_tables(freedom: int, value: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(value, rel=2e-3)


def test_an_interval_is_that_of_the_tasks_scores() -> None:
    found = interval([0.0, 0.5, 1.0, 0.5])
    assert found is not None
    half = 3.182 * statistics.stdev([0.0, 0.5, 1.0, 0.5]) / 2
    assert found.mean == 0.5
    assert found.low == pytest.approx(0.5 - half, abs=2e-3)
    assert found.high == pytest.approx(0.5 + half, abs=2e-3)


def test_one_task_has_a_mean_and_no_interval() -> None:
    found = interval([0.25])
    assert found is not None
    assert (found.mean, found.low, found.high) == (0.25, None, None)
    assert interval([]) is None


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Tasks of unequal difficulty, few of them, four attempts each: what an evaluation looks like."""
    rng = random.Random(4)
    held = 0
    for _ in range(2000):
        means = []
        for _ in range(12):
            chance = rng.betavariate(2, 2)
            means.append(statistics.fmean(rng.random() < chance for _ in range(4)))
        found = interval(means)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.5 <= found.high
    assert 0.93 <= held / 2000 <= 0.97


def test_pass_at_k_is_the_chance_that_k_drawn_attempts_hold_a_pass() -> None:
    """Chen et al. 2021, equation 1, is that chance; here it is counted over all draws."""
    passed = [True, True, False, False, False]
    found = pass_at([TaskScore(0.4, 5, 2)], 5)
    for k in range(1, 6):
        draws = list(itertools.combinations(passed, k))
        assert found[str(k)] == pytest.approx(statistics.fmean(any(draw) for draw in draws))


def test_pass_at_k_takes_the_tasks_with_enough_graded_attempts() -> None:
    found = pass_at([TaskScore(1.0, 2, 2), TaskScore(0.0, 4, 0), TaskScore(0.0, 1, 0)], 4)
    assert found == {"1": pytest.approx(1 / 3), "2": 0.5, "3": 0.0, "4": 0.0}
    assert pass_at([], 3) == {}


def test_a_task_s_score() -> None:
    assert score([], 1.0) is None
    assert score([0.5, 1.0, 0.25, 1.0], 0.5) == TaskScore(0.6875, 4, 3)


def test_a_difference_is_paired_by_task() -> None:
    """Every task is better by 0.1, however hard it is: the pairing sees that with certainty."""
    before = {"a": 0.0, "b": 0.9, "c": 0.4, "gone": 1.0}
    after = {"a": 0.1, "b": 1.0, "c": 0.5, "new": 0.0}
    found = difference(before, after)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert math.isclose(found.mean, 0.1)
    assert found.high - found.low < 1e-9
    assert difference(before, {"other": 1.0}) is None
