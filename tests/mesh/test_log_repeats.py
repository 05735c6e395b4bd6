"""Repeated lines are written once and reported with their count when they end."""

from __future__ import annotations

import pytest

from mesh.log_repeats import HELD_S, LINES_MAX, QUIET_S, TOLD_S, Repeated, Repeats

LINE, OTHER = ("mesh", 30, "no link"), ("mesh", 30, "no disk")


def test_a_line_that_repeats_is_written_once_and_counted_until_it_is_quiet() -> None:
    repeats = Repeats()
    assert repeats.passes(LINE, 0.0)
    assert not any(repeats.passes(LINE, float(now)) for now in range(1, 21))
    assert repeats.passes(OTHER, 20.0), "another line is another fact"
    assert repeats.ended(20.0 + QUIET_S - 1) == []
    assert repeats.ended(20.0 + QUIET_S) == [Repeated(LINE, 20, 20.0)]
    assert repeats.passes(LINE, 40.0), "it begins anew"


def test_a_line_that_comes_alone_is_told_once_and_nothing_follows() -> None:
    repeats = Repeats()
    assert repeats.passes(LINE, 0.0)
    assert repeats.ended(HELD_S) == []
    assert repeats.passes(LINE, HELD_S)


def test_a_line_that_never_ends_is_told_now_and_then() -> None:
    repeats = Repeats()
    repeats.passes(LINE, 0.0)
    told = []
    for now in range(1, 3600):
        repeats.passes(LINE, float(now))
        told += repeats.ended(float(now))
    assert len(told) == int(3600 / (TOLD_S + 1)) and all(each.times == TOLD_S for each in told)


def test_lines_remembered_are_bounded_and_none_is_untold() -> None:
    repeats = Repeats()
    seen = 0
    for number in range(3 * LINES_MAX):
        for _ in range(2):
            repeats.passes(("mesh", 30, f"line {number}"), 0.0)
        seen += sum(each.times for each in repeats.ended(0.0))
        assert len(repeats._lines) <= LINES_MAX
    seen += sum(each.times for each in repeats.rest())
    assert seen == 3 * LINES_MAX


def test_a_clock_that_is_set_back_holds_nothing_for_ever() -> None:
    repeats = Repeats()
    repeats.passes(LINE, 1000.0)
    repeats.passes(LINE, 1001.0)
    assert repeats.ended(0.0) == [Repeated(LINE, 1, pytest.approx(1.0))]  # type: ignore[arg-type]
