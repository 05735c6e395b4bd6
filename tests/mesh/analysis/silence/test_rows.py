"""The tables of a run whose brokers have names, from rows of facts."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from mesh.analysis.silence.rows import Tables, tables
from tests.mesh.analysis.silence.story import us

END = us(60)
RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "a")]


def silent(src: str, dst: str, start: float, end: float) -> tuple[Any, ...]:
    return (src, dst, us(start), us(end), us(start), us(end), 0.0)


def both(one: str, other: str, start: float, end: float) -> list[tuple[Any, ...]]:
    return [silent(one, other, start, end), silent(other, one, start, end)]


def of(names: str, **facts: Any) -> Tables:
    """Brokers that ran for a minute, heard each other from the first moment, and kept their logs."""
    usual: dict[str, Any] = {
        "lives": [(name, "up", 0, END, "boot", 0) for name in names],
        "gaps": [],
        "joined": [(name, 0) for name in names],
        "periods": [(name, 1.0) for name in names],
        "ties": None,
        "closed": [],
        "logs": [(name, 0, END) for name in names],
        "holes": [],
        "beyond": [],
    }
    return tables(**{**usual, **facts})


def test_a_pair_that_never_heard_each_other_is_apart_where_all_others_did() -> None:
    met = [pair for pair in combinations("abcde", 2) if pair != ("a", "c")]
    found = of("abcde", ties=met)
    assert [(no, kind) for no, _, _, kind, _ in found.parts] == [(1, "partial")]
    assert found.sides == [(1, "a", 0), (1, "c", 1)]


def test_a_pair_that_never_heard_each_other_is_no_part_among_neighbours() -> None:
    assert of("abcde", ties=RING).parts == []


@pytest.mark.parametrize(("closed", "expected"), [([], True), ([("a", "b", us(20.3))], False)])
def test_a_link_of_neighbours_that_was_closed_was_not_missed(
    closed: list[tuple[str, str, int]], expected: bool
) -> None:
    found = of("abcde", ties=RING, gaps=[silent("a", "b", 20, 30)], closed=closed)
    assert [row[4] for row in found.outages] == [expected]


def test_a_neighbour_that_only_one_of_two_ever_heard_is_one() -> None:
    found = of("abcde", ties=RING, gaps=both("a", "e", 20, 30))
    assert found.sides == [(1, "a", 0), (1, "e", 1)]


@pytest.mark.parametrize(("periods", "rows"), [([1.0], 2), ([1.0, 4.0], 0), ([4.0, 1.0], 0)])
def test_the_longest_period_of_a_broker_counts(periods: list[float], rows: int) -> None:
    """It was restarted with another one. A silence of five seconds is shorter than 2.2 times four."""
    told = [("a", 1.0), *(("b", each) for each in periods)]
    assert len(of("ab", periods=told, gaps=both("a", "b", 20, 25)).outages) == rows


def test_a_broker_whose_log_is_lost_may_have_the_longest_period_of_the_others() -> None:
    found = of("abc", periods=[("a", 1.0), ("b", 4.0)], gaps=[silent("c", "a", 20, 25)])
    assert found.outages == []


@pytest.mark.parametrize(
    ("beyond", "kind"),
    [([], "complete"), ([("b", "a", us(5), us(35)), ("c", "a", us(5), us(35))], "one-way")],
)
def test_rows_after_a_log_lost_some_tell_that_a_broker_was_not_deaf(
    beyond: list[tuple[str, str, int, int]], kind: str
) -> None:
    """Nobody hears broker a from 20 to 30 s, and its log tells of single windows from 10 s on."""
    logs = [("a", 0, us(10)), ("b", 0, END), ("c", 0, END)]
    found = of("abc", gaps=[silent("a", dst, 20, 30) for dst in "bc"], logs=logs, beyond=beyond)
    assert [row[3] for row in found.parts] == [kind]
