"""A difference counts at two looks in a row, or at the last."""

from __future__ import annotations

import pytest

from simulations.invariants.lasting import Lasting


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ([], []),
        (["", ""], []),
        (["a", "", "b", ""], []),
        (["", "a"], ["a1"]),
        (["a", "a", ""], ["a1"]),
        (["a", "b", ""], []),
        (["ab", "b", "ba"], ["b1", "b2", "a2"]),
    ],
)
def test_news_in_flight_is_no_difference(looks: list[str], said: list[str]) -> None:
    lasting: Lasting[str] = Lasting()
    for number, wrong in enumerate(looks):
        lasting.look({each: f"{each}{number}" for each in wrong})
    assert lasting.said() == said and lasting.moments == len(looks)
