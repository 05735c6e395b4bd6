"""The parts found from silence; each rule is tested by a mesh in which it decides."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import pytest

from mesh.analysis.silence import deciding, outages, sweep
from mesh.analysis.silence.apart import State, Ties, Times
from mesh.analysis.silence.deciding import decide, is_full, unknown_links
from mesh.analysis.silence.outages import Gap
from mesh.analysis.silence.sweep import Part, Silence
from tests.mesh.analysis.silence import story as invented
from tests.mesh.analysis.silence.story import SECOND, Story, us

ALL = (0, 1, 2, 3, 4)
SPLIT = [(12, 16), (18, 20)]


def shapes(story: Story) -> list[tuple[str, tuple[tuple[int, ...], ...]]]:
    return [(part.kind, part.sides) for part in story.parts()]


def check_times(part: Part, start: float, end: float, heals_s: float = 1.0) -> None:
    """Begun within a period before the cut, ended within two after it: one to heal, one to the next
    heartbeat."""
    assert start - 1.0 <= part.start / SECOND <= start + 0.01
    assert part.end is not None
    assert end <= part.end / SECOND <= end + heals_s + 1.0


def halves(**options: Any) -> Story:
    return Story(5, **options).cut(20, 30, (0, 1), (2, 3, 4))


def flapping() -> Story:
    return halves().cut(36, 42, (0, 1), (2, 3, 4)).cut(48, 54, (0, 1), (2, 3, 4))


def nested() -> Story:
    return Story(6).cut(10, 50, (0, 1, 2), (3, 4, 5)).cut(20, 30, (3,), (4, 5))


def overlapping() -> Story:
    return Story(5).cut(10, 30, (0,), (1, 2, 3, 4)).cut(20, 40, (1,), (0, 2, 3, 4))


def bridge() -> Story:
    return Story(5).cut(20, 40, (0, 1), (3, 4))


def uneven() -> Story:
    """The last heartbeats that crossed in the two directions are most of a period apart."""
    return Story(4).cut(20, 30, (0, 1), (2, 3), ways=1).cut(20.9, 30, (2, 3), (0, 1), ways=1)


def slow_to_heal() -> Story:
    return Story(6, heals_s=4.0).cut(20, 30, (0, 1, 2), (3, 4, 5))


def three_ways() -> Story:
    return slow_to_heal().cut(20, 30, (0,), (1, 2))


def rolling() -> Story:
    """The next broker is cut off when the one before it is back."""
    return Story(5, heals_s=2.0).cut(10, 25, (0,), (1, 2, 3, 4)).cut(25, 40, (1,), (0, 2, 3, 4))


def bridged_later() -> Story:
    """Two sides; a third hears both, then only one."""
    return Story(5).cut(10, 50, (0, 1), (3, 4)).cut(20, 35, (0, 1), (2,))


def death_on_a_side() -> Story:
    return Story(5, lives=[(4, "down", 25, 60)]).cut(15, 40, (0, 1), (2, 3, 4))


def joiner() -> Story:
    return Story(5, lives=[(4, "up", 25, 60)]).cut(15, 40, (0, 1), (2, 3, 4))


def starts_alone() -> Story:
    return Story(4, lives=[(3, "up", 5, 60)], joins_s={3: 20.0})


def starved() -> Story:
    """Broker 3 hears broker 0 at once, and the others when they have time for it."""
    story = Story(4, lives=[(3, "up", 5, 60)])
    return story.cut(5, 14, (3,), (1,)).cut(5, 16, (3,), (2,))


def unheard() -> Story:
    """No broker hears broker 0. Its links are given up after three seconds, and then it hears no other."""
    story = Story(4).cut(20, 40, (0,), (1, 2, 3), ways=1)
    return story.cut(23.2, 40, (1, 2, 3), (0,), ways=1)


def ring_of_neighbours() -> Story:
    return Story(6, neighbours={node: {(node + 1) % 6, (node - 1) % 6} for node in range(6)})


def given_up_neighbour() -> Story:
    """The overlay closes the link of 0 and 3, which have other neighbours."""
    near = {node: {(node + 1) % 6, (node - 1) % 6} for node in range(6)}
    near[0] |= {3}
    near[3] |= {0}
    story = Story(6, neighbours=near, closed={(0, 3): [20.3], (3, 0): [20.3]})
    return story.cut(20, 60, (0,), (3,))


def unequal_periods() -> Story:
    """The slow one's surveys come every 4 s, and so do answers to it."""
    story = Story(3, period_s={0: 4.0})
    return story.cut(0, 60, (1,), (0,), ways=1)


# --- findings


def test_a_calm_mesh_is_whole() -> None:
    assert Story(5).parts() == []


def test_a_cut_has_two_sides_from_the_last_heartbeat_across_to_the_first_after() -> None:
    (part,) = halves().parts()
    assert (part.kind, part.sides, part.majority) == ("complete", ((2, 3, 4), (0, 1)), True)
    check_times(part, 20, 30)
    across = sorted(
        t for (src, dst), times in halves().heard().items() if (src < 2) != (dst < 2) for t in times
    )
    assert part.start == us(max(t for t in across if t < 20))
    assert part.end == us(min(t for t in across if t > 30))


@pytest.mark.parametrize("length", [3.2, 4.0, 7.7])
@pytest.mark.parametrize("seed", range(20))
def test_cuts_of_over_three_periods_are_found(length: float, seed: int) -> None:
    story = Story(5, seed=seed).cut(20, 20 + length, (0, 1), (2, 3, 4))
    (part,) = story.parts()
    check_times(part, 20, 20 + length)


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_of_less_than_a_period_is_none(seed: int) -> None:
    assert Story(5, seed=seed, heals_s=0.1).cut(20, 20.9, (0, 1), (2, 3, 4)).parts() == []


def test_a_cut_is_not_one_way_because_one_direction_goes_silent_later() -> None:
    assert shapes(uneven()) == [("complete", ((0, 1), (2, 3)))]


def test_equal_sides_are_no_majority() -> None:
    (part,) = Story(4).cut(20, 30, (0, 1), (2, 3)).parts()
    assert (part.sides, part.majority) == (((0, 1), (2, 3)), False)


def test_a_cut_that_flaps_is_a_part_each_time() -> None:
    found = flapping().parts()
    assert [part.sides for part in found] == [((2, 3, 4), (0, 1))] * 3
    for part, (start, end) in zip(found, ((20, 30), (36, 42), (48, 54)), strict=True):
        check_times(part, start, end)


def test_a_single_heartbeat_ends_a_part_and_begins_another() -> None:
    """Two silences that touch were merged, and the part continued over the heartbeat between them."""
    story = Story(2)
    facts = story.facts()
    lost = [Gap(src, dst, us(20.5), us(30.5), us(20.5), us(30.5), 0.0) for src, dst in ((0, 1), (1, 0))]
    lost += [Gap(src, dst, us(30.5), us(40.5), us(30.5), us(40.5), 0.0) for src, dst in ((0, 1), (1, 0))]
    found = decide(facts._replace(gaps=lost)).parts
    assert [(part.start, part.end) for part in found] == [(us(20.5), us(30.5)), (us(30.5), us(40.5))]


def test_a_cut_within_a_side_makes_three_sides_and_then_two_again() -> None:
    assert shapes(nested()) == [
        ("complete", ((0, 1, 2), (3, 4, 5))),
        ("complete", ((0, 1, 2), (4, 5), (3,))),
        ("complete", ((0, 1, 2), (3, 4, 5))),
    ]


def test_cuts_that_overlap_make_the_parts_they_make() -> None:
    found = overlapping().parts()
    assert [part.sides for part in found] == [
        ((1, 2, 3, 4), (0,)),
        ((2, 3, 4), (0,), (1,)),
        ((0, 2, 3, 4), (1,)),
    ]
    assert found[0].end == found[1].start, "the finer one replaces it"
    assert found[1].end == found[2].start
    check_times(found[1], 20, 30)


def test_two_sides_that_a_third_hears_are_partial() -> None:
    (part,) = bridge().parts()
    assert (part.kind, part.sides) == ("partial", ((0, 1), (3, 4)))
    check_times(part, 20, 40)


def test_partial_pairs_within_a_complete_part_are_reported_only_before_and_after_it() -> None:
    assert shapes(bridged_later()) == [
        ("partial", ((0, 1), (3, 4))),
        ("complete", ((2, 3, 4), (0, 1))),
        ("partial", ((0, 1), (3, 4))),
    ]


def test_a_mesh_that_heals_slowly_is_in_no_other_parts() -> None:
    assert shapes(slow_to_heal()) == [("complete", ((0, 1, 2), (3, 4, 5)))]
    assert shapes(three_ways()) == [("complete", ((3, 4, 5), (1, 2), (0,)))]


def test_short_overlaps_of_two_parts_are_no_part_of_their_own() -> None:
    found = rolling().parts()
    assert [part.sides for part in found] == [((1, 2, 3, 4), (0,)), ((0, 2, 3, 4), (1,))]
    check_times(found[0], 10, 25, heals_s=2.0)
    check_times(found[1], 25, 40, heals_s=2.0)


def test_a_broker_that_dies_or_joins_is_on_its_side() -> None:
    for story in (death_on_a_side(), joiner()):
        (part,) = story.parts()
        assert part.sides == ((2, 3, 4), (0, 1))
        check_times(part, 15, 40)


def test_a_log_that_ends_before_its_writer_died_in_a_cut_does_not_end_it() -> None:
    """The time that a killed broker had not written yet was taken for time in which it heard everybody."""
    story = death_on_a_side()
    facts = story.facts()
    lost = us(0.8)
    gaps = [
        gap._replace(until=gap.until - lost) if gap.dst == 4 and gap.next is None else gap
        for gap in facts.gaps
    ]
    (part,) = decide(facts._replace(gaps=gaps)).parts
    check_times(part, 15, 40)


@pytest.mark.parametrize("end", [0.0, 15.0, 25.0])
def test_the_lost_log_of_one_broker_makes_no_single_links_of_a_cut(end: float) -> None:
    """A broker whose log did not tell what it heard counted as one that heard all: the mesh was never apart,
    and the cut was partial and one-way."""
    told = halves(logs_end={0: end}).parts()
    assert [(part.kind, part.sides) for part in told] == [("complete", ((2, 3, 4), (0, 1)))]
    check_times(told[0], 20, 30)


def two_lost_logs() -> Story:
    return halves(logs_end={0: 15, 4: 15})


def lost_and_heard_again() -> Story:
    """The log of broker 4 was lost. Later nobody heard it for four seconds."""
    return halves(lives=[(4, "up", 0, 10), (4, "unknown", 10, 14), (4, "up", 14, 60)], logs_end={4: 5})


def test_a_broker_heard_again_after_its_log_was_lost_is_on_its_side() -> None:
    """It was taken for a broker that had just started and never joined, since its log did not tell."""
    (part,) = lost_and_heard_again().parts()
    assert part.sides == ((2, 3, 4), (0, 1))


def unknown_for_a_while() -> Story:
    return halves(lives=[(4, "up", 0, 10), (4, "unknown", 10, 14), (4, "up", 14, 60)])


def test_a_process_joins_once_even_if_nothing_is_known_of_it_for_a_while() -> None:
    """Its log went on, and it was on no side from then on."""
    (part,) = unknown_for_a_while().parts()
    assert part.sides == ((2, 3, 4), (0, 1))


def test_a_broker_heard_again_in_a_hole_of_its_log_is_on_its_side() -> None:
    lives = [(4, "up", 0.0, 10.0), (4, "unknown", 10.0, 14.0), (4, "up", 14.0, 60.0)]
    (part,) = halves(lives=lives, holes={4: (5, 50)}).parts()
    assert part.sides == ((2, 3, 4), (0, 1))


def lost_from_its_start() -> Story:
    """Broker 4 restarted, and the log of its second process is lost."""
    return halves(lives=[(4, "up", 0, 10), (4, "down", 10, 12), (4, "up", 12, 60)], logs_end={4: 12})


def test_a_broker_whose_log_is_lost_from_its_start_is_on_its_side() -> None:
    (part,) = lost_from_its_start().parts()
    assert part.sides == ((2, 3, 4), (0, 1))


def test_a_process_of_a_few_seconds_without_a_log_joined_when_others_heard_it() -> None:
    """A killed broker that writes summaries loses its first 16 seconds. It was on no side, and the cut was
    missed."""
    (part,) = halves(
        lives=[(4, "up", 0, 17), (4, "down", 17, 18), (4, "up", 18, 26)], logs_end={4: 18}
    ).parts()
    assert part.sides == ((2, 3, 4), (0, 1))


def test_a_process_without_a_log_that_nobody_heard_did_not_join() -> None:
    """It was a side of its own."""
    story = halves(
        lives=[(4, "up", 0, 10), (4, "down", 10, 12), (4, "up", 12, 60)], logs_end={4: 12}, joins_s={4: 60}
    )
    (part,) = story.parts()
    assert part.sides == ((0, 1), (2, 3))


@pytest.mark.parametrize("lost", [(0, 4), (0, 1), (0, 3, 4), (0, 1, 4), (2, 3, 4)])
@pytest.mark.parametrize("end", [0.0, 15.0, 25.0])
def test_the_lost_logs_of_several_brokers_make_no_single_links_of_a_cut(
    lost: tuple[int, ...], end: float
) -> None:
    """The logs of two brokers were lost. Their link was taken to carry, and held the sides together."""
    (part,) = halves(logs_end=dict.fromkeys(lost, end)).parts()
    assert (part.kind, part.sides) == ("complete", ((2, 3, 4), (0, 1)))
    check_times(part, 20, 30)


def test_a_sample_of_listeners_tells_which_links_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "COMPARED_MOST", 3)
    assert shapes(halves(logs_end={0: 15, 4: 15})) == [("complete", ((2, 3, 4), (0, 1)))]


def test_a_broker_is_not_presumed_deaf_after_a_row_tells_what_it_heard() -> None:
    """A log of summaries may tell single windows after the time of which it tells everything. The part ended
    only when others heard the broker."""
    facts = halves().cut(30, 34, (0, 1), (2, 3, 4), ways=1).facts()
    lost = facts._replace(logged={**facts.logged, 0: [(0, us(25))], 1: [(0, us(25))]})
    assert decide(lost).parts[0] == decide(facts).parts[0]


def heard_beyond(story: Story, at: float) -> Any:
    """Facts without what the log of broker 0 tells after a time, except single rows."""
    facts = story.facts()
    beyond: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (src, dst), times in story.heard().items():
        if dst == 0:
            gaps = [(before, after) for before, after in pairwise(times) if after - before > 2.2]
            marks = [times[0], *(moment for gap in gaps for moment in gap), times[-1]]
            spans = zip(marks[::2], marks[1::2], strict=True)
            beyond[src, dst] = [(us(first), us(last)) for first, last in spans if last > at]
    return facts._replace(logged={**facts.logged, 0: [(0, us(at))]}, beyond=beyond)


def test_a_broker_is_not_presumed_deaf_while_rows_tell_that_it_heard() -> None:
    """Its kill lost a summary, but not that of the window before, which was over just then. A one-way cut was
    told as a cut of both ways."""
    story = Story(4).cut(20, 26, (0,), (1, 2, 3), ways=1)
    assert decide(heard_beyond(story, 15)).parts == story.parts()
    assert [part.kind for part in story.parts()] == ["one-way"]


def test_a_broker_is_presumed_deaf_only_after_its_last_heartbeat() -> None:
    story = Story(4).cut(20, 30, (0,), (1, 2, 3), ways=1).cut(24, 30, (1, 2, 3), (0,), ways=1)
    assert decide(heard_beyond(story, 15)).parts == story.parts()
    assert [part.kind for part in story.parts()] == ["one-way", "complete"]


def left_in_a_cut() -> Story:
    """Broker 4 left half a second after its last heartbeat. Its log was lost before."""
    return halves(lives=[(4, "up", 0, 25.5), (4, "away", 25.5, 60)], logs_end={4: 15})


@pytest.mark.parametrize("seed", range(6))
def test_a_broker_that_ends_in_a_cut_is_no_side_after_its_last_heartbeat(seed: int) -> None:
    """Its log was lost. It was presumed deaf from its last heartbeat to its end, and became a side."""
    story = left_in_a_cut()
    story.seed = seed
    assert shapes(story) == [("complete", ((2, 3, 4), (0, 1)))]


def test_brokers_without_logs_are_not_apart_because_nobody_tells_of_their_links() -> None:
    assert Story(5, logs_end=dict.fromkeys(range(4), 10)).parts() == []
    assert Story(5, logs_end=dict.fromkeys(range(5), 10)).parts() == []


def test_a_lost_link_beside_links_of_which_nobody_tells_is_one() -> None:
    """Broker 0 does not hear broker 3, whose log is lost, as is that of broker 4."""
    story = Story(5, logs_end={3: 10, 4: 10}).cut(20, 30, (0,), (3,))
    assert shapes(story) == [("partial", ((0,), (3,)))]


def torn_out(**options: Any) -> Story:
    """A file is missing in the middle of the log of broker 0."""
    return Story(5, holes={0: (22, 34)}, **options)


def test_what_a_broker_heard_in_a_hole_of_its_log_is_unknown() -> None:
    """A missing file was read as silence: the broker heard nobody, and the others were a side of a one-way
    cut."""
    found = decide(torn_out().facts())

    assert found.parts == []
    assert found.outages == []


def test_a_cut_beside_a_hole_is_found() -> None:
    """What is known of the silence is longer than the limit, though nothing is known of the rest."""
    found = decide(torn_out().cut(15, 30, (0, 1), (2, 3, 4)).facts())

    (part,) = found.parts
    assert (part.kind, part.sides) == ("complete", ((2, 3, 4), (0, 1)))
    check_times(part, 15, 30)
    unheard = {(row.src, row.dst) for row in found.outages}
    assert unheard == {(a, b) for a, b in product(ALL, ALL) if (a < 2) != (b < 2)}


def test_a_cut_within_a_hole_is_known_from_the_other_side() -> None:
    found = decide(torn_out().cut(24, 32, (0,), (1, 2, 3, 4)).facts())

    (part,) = found.parts
    assert (part.kind, part.sides) == ("complete", ((1, 2, 3, 4), (0,)))
    check_times(part, 24, 32)
    assert {row.dst for row in found.outages} == {1, 2, 3, 4}


def test_a_cut_that_ends_soon_after_a_hole_lasts_until_then() -> None:
    """The rest of the silence after the hole is too short to be one by itself."""
    found = decide(torn_out().cut(15, 35, (0, 1), (2, 3, 4)).facts())

    (part,) = found.parts
    assert (part.kind, part.sides) == ("complete", ((2, 3, 4), (0, 1)))
    check_times(part, 15, 35)


def test_a_heartbeat_that_is_late_beside_a_hole_is_no_cut() -> None:
    story = torn_out().cut(33, 35, ALL[1:], (0,), ways=1)

    assert decide(story.facts()).parts == []


def test_a_hole_shorter_than_a_period_hides_no_silence() -> None:
    whole = Story(5).cut(15, 30, (0, 1), (2, 3, 4))
    damaged = Story(5, holes={0: (20, 20.5)}).cut(15, 30, (0, 1), (2, 3, 4))

    assert decide(damaged.facts()) == decide(whole.facts())


def test_a_process_that_follows_another_at_once_did_not_listen_before() -> None:
    story = Story(4, lives=[(3, "up", 0, 20), (3, "up", 20, 60)], joins_s={})
    facts = story.facts()
    late = Gap(0, 3, None, us(24), us(20), us(24), 0.0)
    found = decide(facts._replace(gaps=[late], joined_at={**facts.joined_at, 3: [us(0.5), us(20.5)]}))
    assert [(row.src, row.cause) for row in found.outages] == [(0, "cut")]
    assert found.parts == []


def test_the_last_of_a_side_ends_the_part() -> None:
    story = Story(4, lives=[(0, "down", 25, 60)]).cut(15, 40, (0,), (1, 2, 3))
    (part,) = story.parts()
    assert part.sides == ((1, 2, 3), (0,))
    assert part.end == us(25)


@pytest.mark.parametrize("state", ["paused", "down", "away", "unknown"])
def test_a_broker_that_does_not_run_is_on_no_side(state: str) -> None:
    assert Story(4, lives=[(0, state, 20, 40)]).parts() == []


def test_a_broker_paused_during_a_cut_is_on_no_side() -> None:
    story = Story(5, lives=[(0, "paused", 30, 36)]).cut(20, 50, (0, 1), (2, 3, 4))
    (part,) = story.parts()
    assert part.sides == ((2, 3, 4), (0, 1))
    check_times(part, 20, 50)


def test_a_joining_broker_without_heartbeats_is_no_part() -> None:
    assert starts_alone().parts() == []


def test_a_joining_broker_may_need_time_for_all_links() -> None:
    assert starved().parts() == []
    assert shapes(Story(4, lives=[(3, "up", 5, 60)]).cut(5, 40, (3,), (1,))) == [("partial", ((1,), (3,)))]


def test_a_part_that_lasts_has_no_end() -> None:
    (part,) = Story(5).cut(40, 60, (0, 1), (2, 3, 4)).parts()
    assert part.end is None


def test_one_way_then_both() -> None:
    one_way, complete = unheard().parts()
    assert (one_way.kind, one_way.sides) == ("one-way", ((1, 2, 3), (0,)))
    assert (complete.kind, complete.sides) == ("complete", ((1, 2, 3), (0,)))
    assert 19 <= one_way.start / SECOND <= 20
    assert 22.2 <= complete.start / SECOND <= 23.2


def test_a_broker_that_hears_nothing_is_a_one_way_side() -> None:
    story = Story(4).cut(20, 40, (1, 2, 3), (0,), ways=1)
    (part,) = story.parts()
    assert (part.kind, part.sides) == ("one-way", ((0,), (1, 2, 3)))
    check_times(part, 20, 40)


def test_deaf_and_unheard_at_once_are_two_parts() -> None:
    story = Story(4).cut(20, 40, (1, 2, 3), (0,), ways=1).cut(20, 40, (3,), (1, 2), ways=1)
    assert sorted(shapes(story)) == [("one-way", ((0,), (1, 2))), ("one-way", ((0, 1, 2), (3,)))]


def test_brokers_that_each_reach_a_majority_lost_different_ones() -> None:
    story = Story(5)
    for node in ALL:
        story.cut(20, 40, (node,), ((node + 2) % 5,))
    ((kind, sides),) = shapes(story)
    assert (kind, sides) == ("partial", ((0,), (1,), (2,), (3,), (4,)))


def test_single_edges_apart_are_parts_of_their_own() -> None:
    story = Story(6).cut(20, 30, (0,), (1,)).cut(20, 40, (2,), (3,))
    assert sorted(shapes(story)) == [("partial", ((0,), (1,))), ("partial", ((2,), (3,)))]


def test_an_edge_that_heals_before_another_leaves_a_smaller_part() -> None:
    story = Story(5).cut(20, 30, (0,), (1,)).cut(20, 45, (0,), (2,))
    first, second = story.parts()
    assert (first.sides, second.sides) == (((1, 2), (0,)), ((0,), (2,)))
    assert first.end == second.start
    check_times(second, first.end / SECOND if first.end else 0, 45)


def test_a_bounded_overlay_is_no_part() -> None:
    assert ring_of_neighbours().parts() == []
    assert shapes(ring_of_neighbours().cut(20, 40, (0, 1, 2), (3, 4, 5))) == [
        ("complete", ((0, 1, 2), (3, 4, 5)))
    ]


def test_a_link_that_was_closed_was_not_lost() -> None:
    found = decide(given_up_neighbour().facts())
    assert {(row.src, row.dst, row.expected) for row in found.outages} == {(0, 3, False), (3, 0, False)}
    assert found.parts == []


def test_an_edge_of_a_bounded_overlay_that_is_lost_is_partial() -> None:
    story = given_up_neighbour()
    story.closed = {(0, 3): [23.5], (3, 0): [23.2]}
    assert shapes(story) == [("partial", ((0,), (3,)))]


def test_pairs_that_never_heard_each_other_are_apart_in_a_full_mesh() -> None:
    """They ran together only while the mesh was cut."""
    story = Story(4, seconds=40).cut(0, 40, (0, 1), (2, 3))
    facts = story.facts()
    unheard = [(0, 2), (0, 3), (1, 2), (1, 3)]
    gaps = [gap for gap in facts.gaps if gap.last is not None or gap.next is not None]
    found = decide(facts._replace(gaps=gaps, unheard=unheard))
    assert [part.sides for part in found.parts] == [((0, 1), (2, 3))]


STORIES = (flapping, nested, overlapping, bridge, bridged_later, rolling, death_on_a_side, unheard)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("told", STORIES)
def test_reduced_logs_tell_the_same_to_an_eighth_of_a_period(told: Callable[[], Story], seed: int) -> None:
    exact, reduced = told(), told()
    exact.seed = reduced.seed = seed
    reduced.windows = True
    assert shapes(reduced) == shapes(exact)
    for one, other in zip(exact.parts(), reduced.parts(), strict=True):
        assert abs(one.start - other.start) <= us(0.125)
        assert one.end is not None
        assert other.end is not None
        assert abs(one.end - other.end) <= us(0.125)


# --- outages


def test_causes_of_outages() -> None:
    story = Story(
        6, lives=[(0, "down", 20, 40), (1, "paused", 20, 40), (2, "away", 20, 60), (3, "unknown", 20, 60)]
    )
    story.cut(20, 40, (4,), (5,))
    found = {(row.src, row.dst): row for row in decide(story.facts()).outages}
    assert [found[src, 5].cause for src in range(5)] == ["down", "paused", "away", "unknown", "cut"]
    assert all(row.expected for row in found.values())
    assert (0, 1) not in found or found[0, 1].cause == "down"
    assert (5, 1) not in found, "a paused broker does not listen"
    heard = story.heard()
    assert found[4, 5].last == us(max(t for t in heard[4, 5] if t < 20))
    assert found[4, 5].next == us(min(t for t in heard[4, 5] if t > 40))
    assert found[2, 5].next is None


def test_the_longer_of_two_periods_decides_the_length_of_a_silence() -> None:
    assert decide(unequal_periods().facts()).outages != []
    assert all(
        row.next is None or row.last is None or row.next - row.last > us(8.8)
        for row in decide(unequal_periods().facts()).outages
    )


def test_a_mesh_is_full_if_all_connected_brokers_heard_each_other() -> None:
    always = {node: [(0, us(60))] for node in range(8)}
    full = {node: {other for other in always if other != node} for node in always}
    ring = {node: {(node + 1) % 8, (node - 1) % 8} for node in always}
    cut = {
        node: {other for other in always if other != node and (other < 4) == (node < 4)} for node in always
    }
    assert is_full(always, full, us(1))
    assert is_full(always, cut, us(1))
    assert not is_full(always, ring, us(1))
    assert is_full({}, {}, us(1))


def test_a_full_mesh_may_lack_one_pair_and_those_that_ran_together_for_a_moment() -> None:
    """Broker 8 and its like ran for five seconds, and met only broker 0."""
    always = {node: [(0, us(60))] for node in range(8)}
    briefly = {node: [(us(20), us(25))] for node in range(8, 16)}
    heard = {node: set(always) - {node} for node in always} | {node: {0} for node in briefly}
    heard[6] -= {7}
    heard[7] -= {6}
    heard[0] |= set(briefly)
    assert is_full(always | briefly, heard, us(1))
    assert not is_full({node: [(0, us(60))] for node in range(16)}, heard, us(1))


@pytest.mark.parametrize(
    ("silences", "lost", "ties", "times"),
    [
        ([Silence(1, 0, 12, 20)], {1: [(10, 30)], 2: [(10, 30)]}, None, [(12, 20)]),
        ([Silence(1, 0, 12, 20)], {1: [(14, 30)], 2: [(10, 30)]}, None, [(14, 20)]),
        ([Silence(1, 0, 12, 20)], {1: [(10, 30)], 2: [(15, 30)]}, None, [(15, 20)]),
        ([Silence(1, 0, 12, 20), Silence(2, 0, 12, 20)], {1: [(10, 30)], 2: [(10, 30)]}, None, []),
        ([Silence(1, 0, 12, 20), Silence(1, 2, 16, 18)], {1: [(10, 30)], 2: [(10, 30)]}, None, SPLIT),
        ([Silence(1, 0, 12, 20), Silence(2, 1, 16, 18)], {1: [(10, 30)], 2: [(10, 30)]}, None, SPLIT),
        (
            [Silence(1, 0, 12, 20)],
            {1: [(10, 30)], 2: [(10, 30)]},
            {0: {1, 2}, 1: {0, 2}, 2: {0, 1}},
            [(12, 20)],
        ),
        ([Silence(1, 0, 12, 20)], {1: [(10, 30)], 2: [(10, 30)]}, {0: {1, 2}, 1: {0}, 2: {0}}, []),
        ([Silence(1, 0, 12, 20)], {1: [(10, 30)], 2: [(10, 30)]}, {0: {1}, 1: {0, 2}, 2: {1}}, []),
    ],
    ids=[
        "broker 0 hears 2 and not 1",
        "while the log of 1 is lost",
        "while the log of 2 is lost",
        "broker 0 hears neither",
        "not while 2 tells that it does not hear 1",
        "not while 1 tells that it does not hear 2",
        "neighbours",
        "1 and 2 are no neighbours",
        "0 and 2 are no neighbours",
    ],
)
def test_nobody_knows_of_a_link_whose_ends_another_hears_differently(
    silences: list[Silence], lost: dict[int, Times], ties: Ties | None, times: Times
) -> None:
    found = list(unknown_links(silences, lost, ties))
    assert {(each.src, each.dst) for each in found} <= {(1, 2), (2, 1)}
    assert [(each.start, each.end) for each in found if each.src == 1] == times
    assert [(each.start, each.end) for each in found if each.src == 2] == times
    assert not any(each.expected for each in found)


def test_the_last_rows_that_a_kill_lost_hide_no_link() -> None:
    """Broker 3 hears both sides. It and broker 4 are killed, and 1.8 seconds of their logs are lost. That is
    more than 2.2 periods here."""
    story = Story(
        5,
        lives=[(3, "down", 30, 60), (4, "down", 30, 60)],
        logs_end={3: 28.2, 4: 28.2},
        period_s=dict.fromkeys(range(5), 0.5),
    )
    assert shapes(story.cut(15, 60, (0, 1, 2), (4,))) == [("partial", ((0, 1, 2), (4,)))]


# --- each rule switched off


def no_healing(limits: Callable[[int], sweep.Limits]) -> Callable[[int], sweep.Limits]:
    return lambda period: limits(period)._replace(healing=0)


def no_joining(limits: Callable[[int], sweep.Limits]) -> Callable[[int], sweep.Limits]:
    return lambda period: limits(period)._replace(joining=0)


def none_together(limits: Callable[[int], sweep.Limits]) -> Callable[[int], sweep.Limits]:
    return lambda period: limits(period)._replace(together=0)


def any_length(limits: Callable[[int], sweep.Limits]) -> Callable[[int], sweep.Limits]:
    return lambda period: limits(period)._replace(least=0, resolution=0)


def any_one_way(limits: Callable[[int], sweep.Limits]) -> Callable[[int], sweep.Limits]:
    return lambda period: limits(period)._replace(one_way=0)


def slow_one_way(limits: Callable[[int], sweep.Limits]) -> Callable[[int], sweep.Limits]:
    return lambda period: limits(period)._replace(one_way=limits(period).least * 2)


def nothing_beside(_: object) -> Callable[[State, object, int], State]:
    return lambda state, beside, resolution: state


def never(_: object) -> Callable[..., None]:
    return lambda *_: None


def always(_: object) -> Callable[..., bool]:
    return lambda *_: True


def everything_left(without: Callable[..., Any]) -> Callable[..., Any]:
    return lambda times, less: times


def as_the_log_has_it(_: object) -> Callable[..., Any]:
    return lambda gap, stays: gap


def hears_in_holes(listened: Callable[..., Any]) -> Callable[..., Any]:
    return lambda gap, presence, holes: listened(gap, presence, [])


def joined_at_once(_: object) -> Callable[..., Any]:
    return lambda lives, heard_at, logged: {node: [life.start for life in lives] for node in heard_at}


def joined_by_log(joinings: Callable[..., Any]) -> Callable[..., Any]:
    return lambda lives, heard_at, logged: joinings(lives, heard_at, {4: [(0, us(60))]})


def each_alone(_: object) -> Callable[..., Any]:
    return lambda lives: {(life.node, life.start): [life] for life in lives if life.boot is not None}


def links_that_carry(_: object) -> Callable[..., Any]:
    return lambda silences, unknown, ties: []


RULES: list[tuple[str, Any, str, Callable[[Any], Any], Callable[[], Story]]] = [
    ("pairs heal after the first of them", deciding, "limits", no_healing, slow_to_heal),
    ("fewer sides may only be healing", deciding, "limits", no_healing, three_ways),
    ("brokers need time to link with all", deciding, "limits", no_joining, starved),
    ("pairs go silent together within a period", deciding, "limits", none_together, bridge),
    ("a short state is no part", deciding, "limits", any_length, rolling),
    ("a plain cut is not one-way", deciding, "limits", any_one_way, uneven),
    ("a cut that starts one-way is", deciding, "limits", slow_one_way, unheard),
    ("a short state counts for its neighbours", sweep, "_extended", nothing_beside, rolling),
    ("it is one part while nobody changes sides", sweep, "merged_sides", never, death_on_a_side),
    ("a complete part explains its pairs", sweep, "without", everything_left, bridged_later),
    ("a broker without heartbeats joins", invented, "joinings", joined_at_once, starts_alone),
    (
        "others tell when a broker joined whose log is lost",
        invented,
        "joinings",
        joined_by_log,
        lost_from_its_start,
    ),
    ("a process joins once", outages, "_processes", each_alone, unknown_for_a_while),
    ("the last moment of a lost log says nothing", deciding, "limits", any_length, left_in_a_cut),
    ("links that nobody knows join no sides", deciding, "unknown_links", links_that_carry, two_lost_logs),
    ("a hole in a log is no silence", outages, "_listened", hears_in_holes, torn_out),
    ("a link that was closed was not lost", outages, "_ought", always, given_up_neighbour),
]


@pytest.mark.parametrize(
    ("rule", "module", "name", "broken", "story"), RULES, ids=[rule for rule, *_ in RULES]
)
def test_each_rule_decides_something(
    rule: str,
    module: Any,
    name: str,
    broken: Callable[[Any], Any],
    story: Callable[[], Story],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the rule the same mesh gives another result, so that a test above fails."""
    right = decide(story().facts())
    monkeypatch.setattr(module, name, broken(getattr(module, name)))
    assert decide(story().facts()) != right, rule
