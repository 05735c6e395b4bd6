"""Outages and presence: each condition, by a mesh of a few brokers in which it decides."""

from __future__ import annotations

import pytest

from mesh.analysis.silence.deciding import decide
from mesh.analysis.silence.outages import Gap, Lived, joinings, ran
from tests.mesh.analysis.silence.story import Story, us

# --- when a broker ran


def test_a_pause_is_within_a_process_and_another_boot_is_another_process() -> None:
    lives = [
        Lived(0, "up", 0, 20, "1"),
        Lived(0, "paused", 20, 25, "1"),
        Lived(0, "up", 25, 40, "1"),
        Lived(0, "up", 40, 60, "2"),
    ]
    assert ran(lives, {}).stays == ran(lives[::-1], {}).stays == {0: [(0, 40), (40, 60)]}


def test_a_broker_that_resumes_has_joined() -> None:
    """It had heard others before its pause, and that counts for the cut after it."""
    (part,) = Story(5, lives=[(0, "paused", 10, 14)]).cut(20, 30, (0, 1), (2, 3, 4)).parts()
    assert part.sides == ((2, 3, 4), (0, 1))


@pytest.mark.parametrize(
    ("heard_at", "log_ends", "met", "joined_at"),
    [
        ([6], 12, 20, [6]),
        ([], 30, 8, []),
        ([], 12, 20, [20]),
        ([], 12, 8, [12]),
        ([], 12, None, []),
        ([2], 12, 20, [2, 20]),
    ],
    ids=[
        "it heard another",
        "its log tells that it heard nobody",
        "it was heard after its log ends",
        "it was heard before its log ends, and perhaps later",
        "it was not heard",
        "only the process before it heard another",
    ],
)
def test_a_process_joined_when_it_heard_another_or_when_it_was_heard_after_its_log(
    heard_at: list[int], log_ends: int, met: int | None, joined_at: list[int]
) -> None:
    process = Lived(0, "up", 5, 30, "2", met)
    assert joinings([process], {0: heard_at}, {0: [(5, log_ends)]}) == {0: joined_at}


# --- what a gap is


def test_a_silence_at_the_end_of_a_log_does_not_go_on_in_the_next_process() -> None:
    """Its log ends a second before it, as a kill leaves it. The next process follows at once."""
    facts = Story(4).facts()
    lives = [*facts.lives[:3], Lived(3, "up", 0, us(20), "1"), Lived(3, "up", us(20), us(60), "2")]
    torn = Gap(0, 3, us(18), None, us(18), us(19), 0.0)
    known = facts._replace(lives=lives, gaps=[torn], joined_at={**facts.joined_at, 3: [us(0.5), us(20)]})
    assert decide(known).outages == []


@pytest.mark.parametrize(("end", "rows"), [(22.2, 0), (22.201, 2)])
def test_a_silence_longer_than_2_2_periods_is_an_outage(end: float, rows: int) -> None:
    gaps = [Gap(src, dst, us(20), us(end), us(20), us(end), 0.0) for src, dst in ((0, 1), (1, 0))]
    assert len(decide(Story(2).facts()._replace(gaps=gaps)).outages) == rows


@pytest.mark.parametrize("slow", [0, 1])
def test_a_silence_is_as_long_as_the_slower_of_both_allows(slow: int) -> None:
    """One asks every four seconds, the other each second."""
    assert decide(Story(2, period_s={slow: 4.0}).cut(20, 25, (0,), (1,)).facts()).outages == []


def test_a_short_hole_does_not_cut_a_silence_in_two() -> None:
    whole = Story(5).cut(20, 24, (2, 3, 4), (0, 1), ways=1)
    damaged = Story(5, holes={0: (22, 22.5)}).cut(20, 24, (2, 3, 4), (0, 1), ways=1)
    assert [part.sides for part in whole.parts()] == [((0, 1), (2, 3, 4))]
    assert decide(damaged.facts()) == decide(whole.facts())


def test_a_hole_of_two_periods_is_no_silence() -> None:
    assert decide(Story(5, holes={0: (20, 22.4)}).facts()).outages == []


def test_what_remains_of_a_silence_beside_a_hole_counts_if_the_other_side_was_silent_for_long() -> None:
    """Broker 0 did not hear the other side for a second before the hole in its log, and for one after it."""
    (part,) = Story(5, holes={0: (22, 34)}).cut(21, 35, (0, 1), (2, 3, 4)).parts()
    assert part.sides == ((2, 3, 4), (0, 1))
    assert part.start <= us(21) and us(35) <= (part.end or 0)


def test_a_silence_that_goes_on_after_a_hole_is_not_that_of_a_broker_that_joins() -> None:
    """The rest after the hole lasts fourteen seconds, and joining takes up to fifteen."""
    found = Story(5, holes={0: (20, 26)}).cut(15, 39, (3,), (0,), ways=1).parts()
    assert [(part.kind, part.sides) for part in found] == [("one-way", ((0,), (3,)))] * 2


# --- neighbours


def test_a_link_to_a_neighbour_that_did_not_exist_yet_was_not_missed() -> None:
    near = {node: {(node + 1) % 6, (node - 1) % 6} for node in range(6)}
    near[0] |= {3}
    near[3] |= {0}
    found = decide(Story(6, neighbours=near).cut(0, 30, (0,), (3,)).facts())
    assert {(row.src, row.dst, row.expected) for row in found.outages} == {(0, 3, False), (3, 0, False)}
    assert found.parts == []


# --- causes


def test_the_cause_of_an_outage_is_the_state_that_lasted_longest() -> None:
    story = Story(3, lives=[(0, "paused", 20, 22), (0, "down", 22, 40)])
    assert {row.cause for row in decide(story.facts()).outages if row.src == 0} == {"down"}


def test_a_broker_that_did_not_exist_yet_caused_no_outage() -> None:
    assert decide(Story(4, lives=[(3, "up", 30, 60)]).facts()).outages == []


def test_two_that_never_heard_each_other_have_an_outage_only_while_both_ran() -> None:
    """Broker 0 ran twice. Broker 1 was down in the first of these times."""
    lives = [(1, "up", 0, 5), (1, "down", 5, 30), (1, "up", 30, 60)]
    story = Story(3, lives=[(0, "up", 10, 25), (0, "down", 25, 30), (0, "up", 30, 60), *lives])
    facts = story.cut(0, 60, (0,), (1,)).facts()
    gaps = [gap for gap in facts.gaps if {gap.src, gap.dst} != {0, 1}]
    found = decide(facts._replace(gaps=gaps, unheard=[(0, 1)])).outages
    assert [(row.src, row.dst, row.cause) for row in found if row.src < 2 and row.dst < 2] == [
        (0, 1, "cut"),
        (1, 0, "cut"),
    ]
