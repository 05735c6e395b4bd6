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


def test_a_single_line_is_written_once_and_nothing_follows() -> None:
    repeats = Repeats()
    assert repeats.passes(LINE, 0.0)
    assert repeats.ended(HELD_S) == []
    assert repeats.passes(LINE, HELD_S)


def test_a_line_that_repeats_without_end_is_reported_periodically() -> None:
    repeats = Repeats()
    repeats.passes(LINE, 0.0)
    told = []
    for now in range(1, 3600):
        repeats.passes(LINE, float(now))
        told += repeats.ended(float(now))
    assert len(told) == int(3600 / (TOLD_S + 1)) and all(each.times == TOLD_S for each in told)


def test_remembered_lines_are_bounded_and_every_count_is_reported() -> None:
    repeats = Repeats()
    seen = 0
    for number in range(3 * LINES_MAX):
        for _ in range(2):
            repeats.passes(("mesh", 30, f"line {number}"), 0.0)
        seen += sum(each.times for each in repeats.ended(0.0))
        assert len(repeats._lines) <= LINES_MAX
    seen += sum(each.times for each in repeats.rest())
    assert seen == 3 * LINES_MAX


def test_a_clock_that_is_set_back_delays_no_report_forever() -> None:
    repeats = Repeats()
    repeats.passes(LINE, 1000.0)
    repeats.passes(LINE, 1001.0)
    assert repeats.ended(0.0) == [Repeated(LINE, 1, pytest.approx(1.0))]  # type: ignore[arg-type]
