"""A rate of failures has the bound of Clopper and Pearson."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulations.runs.rate import Rate


@pytest.mark.parametrize(
    ("failures", "trials", "bound"),
    [
        (0, 1, 0.95),
        (0, 10, 0.258_866),
        (0, 660, 0.004_529),
        (1, 10, 0.394_163),
        (5, 660, 0.015_847),
        (9, 10, 0.994_884),
        (10, 10, 1.0),
        (0, 5000, 0.000_598_97),
    ],
)
def test_the_bound_is_that_of_the_tables(failures: int, trials: int, bound: float) -> None:
    assert Rate(failures, trials).upper_bound == pytest.approx(bound, rel=1e-3)


def test_the_bound_without_failures_is_close_to_the_rule_of_three() -> None:
    for trials in (100, 1000, 5000):
        assert Rate(0, trials).upper_bound == pytest.approx(3 / trials, rel=0.02)


@given(st.integers(1, 3000), st.data())
def test_the_bound_lies_above_the_share_and_shrinks_with_more_trials(
    trials: int, data: st.DataObject
) -> None:
    rate = Rate(data.draw(st.integers(0, trials)), trials)
    assert rate.share <= rate.upper_bound <= 1
    more = Rate(2 * rate.failures, 2 * trials)
    assert more.upper_bound <= rate.upper_bound + 1e-12


def test_nineteen_of_twenty_bounds_hold() -> None:
    """For a coin with a chance of one in fifty, thrown 200 times each."""
    rng = random.Random(3)
    held = 0
    for _ in range(400):
        failures = sum(rng.random() < 0.02 for _ in range(200))
        held += Rate(failures, 200).upper_bound >= 0.02
    assert held >= 0.93 * 400


def test_a_rate_without_trials_is_undefined() -> None:
    rate = Rate(0, 0)
    assert math.isnan(rate.share) and rate.upper_bound == 1.0
    assert rate.as_json() == {"failures": 0, "seeds": 0, "rate": None, "upper_bound_95": 1.0}
    assert str(rate) == "no rate: nothing was played"


def test_more_failures_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="3 of 2 cannot have failed"):
        Rate(3, 2)


def test_a_rate_is_printed_in_one_line() -> None:
    assert str(Rate(0, 5000)) == "failure rate 0/5000 = 0 %, at most 0.0599 % with 95 % confidence"
