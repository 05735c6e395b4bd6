"""When a process was stopped, told by its silence and the lateness of its loop afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.analysis.lives.evidence import Evidence
from mesh.analysis.lives.telling import tell
from tests.mesh.analysis.lives.test_telling import END, boot, late, of, us

Written = list[tuple[float, float]]


def paused(written: Written, *rows: tuple[float, float]) -> list[tuple[float, float]]:
    """The pauses of a boot, from the times in which it wrote, and its rows: when, and how late."""
    known = of(
        boots=[boot("1", 0, 100)],
        awake=[("1", us(first), us(last)) for first, last in written],
        late=[late("1", at, late_s) for at, late_s in rows],
    )
    return pauses_of(known)


def pauses_of(known: Evidence) -> list[tuple[float, float]]:
    return [(told.start / us(1), told.end / us(1)) for told in tell(known) if told.state == "paused"]


def test_a_pause_is_longer_than_its_lateness_by_up_to_a_sample() -> None:
    assert paused([(0, 40), (42.2, 100)], (43, 2.1)) == [(40.1, 42.2)]
    assert paused([(0, 40), (42.2, 100)], (43, 2.0)) == []


def test_a_silence_may_be_shorter_by_a_slot_than_the_pause_in_it() -> None:
    assert paused([(0, 40), (46, 100)], (47, 6.2)) == [(40, 46)]
    assert paused([(0, 40), (46, 100)], (47, 6.3)) == []
    assert paused([(0, 40), (42, 100)], (43, 2.2)) == [(40, 42)]
    assert paused([(0, 40), (41.9, 100)], (43, 2.1)) == []


def test_a_row_of_lateness_covers_the_time_since_the_row_before() -> None:
    """Rows come every five seconds while the loop runs."""
    wrote: Written = [(0, 40), (42.5, 100)]
    assert paused(wrote, (47.5, 2.5)) == [(40, 42.5)]
    assert paused(wrote, (60, 2.5)) == []
    assert paused(wrote, (39, 2.5)) == []


def test_the_shortest_silence_that_holds_the_lateness_is_the_pause() -> None:
    """Before it, the broker was cut off for longer."""
    assert paused([(0, 30), (40, 41), (44, 100)], (44.5, 3)) == [(41, 44)]


def test_a_silence_that_ends_with_a_row_of_lateness_is_its_own() -> None:
    assert paused([(0, 40)], (46, 5.9), (51, 0), (56, 0)) == [(40.1, 46)]


def test_two_rows_of_one_pause_tell_it_once() -> None:
    """The second one covers the first."""
    assert paused([(0, 40), (46, 100)], (46.2, 5.9), (48, 4)) == [(40.1, 46)]


@pytest.mark.parametrize("later", [(61, 1.0), (62, 3.0)])
def test_the_time_between_two_boots_is_no_pause(later: tuple[float, float]) -> None:
    """The loop of the second boot was late as it started."""
    known = of(
        boots=[boot("1", 0, 50), boot("2", 60, 100)],
        awake=[("1", 0, us(50)), ("2", us(60), END)],
        late=[late("1", 45, 0), late("2", *later)],
    )
    assert pauses_of(known) == []


def test_lateness_of_the_next_boot_tells_no_pause_of_this_one() -> None:
    known = of(
        boots=[boot("1", 0, 50), boot("2", 52, 100)],
        awake=[("1", 0, us(44)), ("1", us(48), us(50)), ("2", us(52), END)],
    )
    assert pauses_of(replace(known, late=[late("1", 48.2, 3.9)])) == [(44.1, 48)]
    assert pauses_of(replace(known, late=[late("2", 52.2, 3.9)])) == []


def test_a_pause_that_went_on_to_the_end_of_a_life_is_none() -> None:
    """It left before the silence was over: others heard its goodbye."""
    known = of(boots=[boot("1", 0, 60, left=us(45))], awake=[("1", 0, us(40)), ("1", us(50), us(60))])
    assert pauses_of(replace(known, late=[late("1", 50.2, 9.9)])) == []
