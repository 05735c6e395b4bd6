"""Availability, churn and survival of lives made by hypothesis agree with the oracle's slow count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.analysis.lives.availability import availability
from mesh.analysis.lives.churn import churn
from mesh.analysis.lives.survival import survival
from mesh.analysis.results.tables import Life
from tests.mesh.analysis.oracle import lives_tables as oracle

SECOND = 1_000_000
NEXT: dict[str, list[tuple[str, str]]] = {
    "up": [
        ("crash", "down"),
        ("power_off", "down"),
        ("leave", "away"),
        ("pause", "paused"),
        ("log lost", "unknown"),
    ],
    "paused": [("resume", "up"), ("crash", "down")],
    "down": [("restart", "up")],
    "away": [("start", "up")],
    "unknown": [("heard again", "up"), ("restart", "up")],
}


@st.composite
def lives_of_one(draw: st.DrawFn, node: str) -> list[Life]:
    """A life from its start to second 100. Lengths are whole seconds, so that many events coincide."""
    at, state = draw(st.integers(0, 40)), "up"
    truncated = draw(st.booleans())
    found: list[Life] = []
    while at < 100:
        cause, after = draw(st.sampled_from(NEXT[state]))
        end = min(100, at + draw(st.integers(1, 60)))
        lasts = end == 100
        found.append(
            Life(
                "run",
                node,
                len(found) + 1,
                "b",
                state,  # type: ignore[arg-type]
                at * SECOND,
                end * SECOND,
                None if lasts else cause,  # type: ignore[arg-type]
                truncated and not found,
                lasts,
                0.0,
            )
        )
        at, state = end, after
    return found


@st.composite
def runs(draw: st.DrawFn) -> list[Life]:
    lives = [life for node in "abc" for life in draw(lives_of_one(node))]
    return draw(st.permutations(lives))


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """None equals only None; other numbers agree to 1e-9."""
    assert found.keys() == expected.keys()
    return all(
        found[name] is value if value is None else found[name] == pytest.approx(value, rel=1e-9, abs=1e-12)
        for name, value in expected.items()
    )


@given(lives_of_one("a"))
@settings(max_examples=50, deadline=None)
def test_availability_counts_each_state_once(lives: list[Life]) -> None:
    found = availability(lives)

    assert same(found._asdict(), oracle.availability(lives))
    assert found.up_s + found.down_s + found.away_s + found.unknown_s == pytest.approx(
        100 - min(life.start for life in lives) / SECOND
    )


@given(runs(), st.sampled_from([1.0, 7.0, 60.0]))
@settings(max_examples=30, deadline=None)
def test_churn_agrees_with_looking_at_every_moment(lives: list[Life], window_s: float) -> None:
    found = churn(lives, window_s)

    expected = oracle.churn(lives, window_s)
    assert len(found) == len(expected)
    assert all(same(row._asdict(), window) for row, window in zip(found, expected, strict=True))


@given(runs())
@settings(max_examples=30, deadline=None)
def test_survival_agrees_with_counting_one_by_one(lives: list[Life]) -> None:
    found = survival(lives)

    by_key = {
        (row.of, row.method, row.t_s): {
            name: getattr(row, name) for name in ("at_risk", "ended", "survival", "low", "high")
        }
        for row in found
    }
    assert len(by_key) == len(found)
    expected = oracle.survival(lives)
    assert list(by_key) == list(expected)
    for key, row in expected.items():
        assert same(by_key[key], row), key


def life(node: str, no: int, state: str, start: int, end: int, cause: str | None) -> Life:
    return Life(
        "run",
        node,
        no,
        None,
        state,  # type: ignore[arg-type]
        start * SECOND,
        end * SECOND,
        cause,  # type: ignore[arg-type]
        False,
        cause is None,
        0.0,
    )


def test_events_at_the_same_moment_are_one_change() -> None:
    """Two of four brokers fail together: that is a change of half, not of a fourth and then a third."""
    lives = [
        life("a", 1, "up", 0, 10, "crash"),
        life("b", 1, "up", 0, 10, "crash"),
        life("a", 2, "down", 10, 100, None),
        life("b", 2, "down", 10, 100, None),
        life("c", 1, "up", 0, 100, None),
        life("d", 1, "up", 0, 100, None),
    ]

    (first, second, *_) = churn(lives, 5.0), churn(lives, 5.0)[2]

    assert second.rate == pytest.approx(0.5 / 5.0)
    assert (second.alive, second.failures) == (4, 2)
    assert first[0].joins == 4


def test_unknown_time_is_neither_up_nor_down() -> None:
    """A log lost for nine tenths of the time makes nobody less available."""
    told = availability([life("a", 1, "up", 0, 10, "log lost"), life("a", 2, "unknown", 10, 100, None)])

    assert (told.availability, told.failures, told.mttf_s, told.mttr_s) == (1.0, 0, None, None)


def test_a_repair_is_timed_only_from_the_failure_to_the_restart() -> None:
    """The first one began before the trace, and the last one had not ended when it did."""
    lives = [
        msgspec.structs.replace(life("a", 1, "down", 0, 5, "restart"), truncated=True),
        life("a", 2, "up", 5, 10, "crash"),
        life("a", 3, "down", 10, 17, "restart"),
        life("a", 4, "up", 17, 20, "crash"),
        life("a", 5, "down", 20, 60, None),
    ]
    told = availability(lives)

    assert (told.down_s, told.failures, told.mttr_s) == (52, 2, 7)


def test_a_broker_of_which_nothing_is_known_has_no_availability() -> None:
    assert availability([life("a", 1, "unknown", 0, 10, None)]).availability is None


def test_kaplan_meier_of_freireich_1963() -> None:
    """The remission times of 21 patients on 6-MP (Freireich and others 1963): the standard worked example."""
    ended = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    censored = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    lives = [life(f"e{n}", 1, "up", 0, time, "crash") for n, time in enumerate(ended)]
    lives += [life(f"c{n}", 1, "up", 0, time, None) for n, time in enumerate(censored)]

    curve = {row.t_s: round(row.survival, 3) for row in survival(lives) if row.method == "kaplan-meier"}

    assert curve == {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}


def test_a_clock_that_is_wrong_by_years_makes_no_window_for_each_five_seconds() -> None:
    """One broker without a set clock made 350 million windows, more than any machine holds."""
    years = 1_790_000_000
    lives = [life("a", 1, "up", 0, 60, "crash"), life("b", 1, "up", years, years + 60, None)]
    found = churn(lives, 5.0)
    assert [(row.start // SECOND, row.alive, row.joins, row.failures) for row in found] == [
        (0, 0, 1, 0),
        (60, 1, 0, 1),
        (years, 0, 1, 0),
    ]


def test_an_event_of_the_last_row_counts_even_at_the_end_of_a_window() -> None:
    """A leave at 60.000000 s, with which the logs end, was in no window."""
    found = churn([life("a", 1, "up", 3, 60, "leave")], 5.0)
    assert sum(row.leaves for row in found) == 1
