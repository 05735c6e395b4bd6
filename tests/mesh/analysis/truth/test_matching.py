"""Parts that were made and parts that were found, matched one to one."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.silence.sweep import Part, limits
from mesh.analysis.truth.effects import Row, effects
from mesh.analysis.truth.matching import Match, best_pairs, match_parts
from mesh.analysis.truth.parts import Made, Noted, made_parts

S = 1_000_000
NAMES = ("a", "b", "c", "d")
HALVES = ((0, 1), (2, 3))
ALONE = ((1, 2, 3), (0,))


def part(
    start: float, end: float | None, sides: tuple[tuple[int, ...], ...] = HALVES, kind: str = "complete"
) -> Part:
    until = None if end is None else round(end * S)
    return Part(round(start * S), until, kind, False, sides)  # type: ignore[arg-type]


def made(
    start: float, end: float, sides: tuple[tuple[int, ...], ...] = HALVES, kind: str = "complete"
) -> Made:
    return Made(part(start, end + 0.5, sides, kind), round(end * S), round((end - start) * S), sides)


def verdicts(rows: list[Match]) -> list[str]:
    return [row.verdict for row in rows]


def match(
    truth: list[Made], found: list[Part], strained: dict[tuple[int, int], list[tuple[int, int]]] | None = None
) -> list[Match]:
    return match_parts(truth, found, strained or {}, S, 100 * S)


def test_a_part_that_was_found_with_its_lags() -> None:
    (row,) = match([made(10, 20)], [part(9.5, 20.5)])
    assert (row.verdict, row.start_lag, row.end_lag) == ("tp", -S // 2, S // 2)


def test_parts_without_a_counterpart_are_misses_or_false() -> None:
    assert verdicts(match([made(10, 20)], [])) == ["fn"]
    assert verdicts(match([], [part(10, 20)])) == ["fp"]
    assert verdicts(match([made(10, 13)], [])) == ["below resolution"]
    assert verdicts(match([], [part(10, 13)])) == ["below resolution"]
    assert verdicts(match([], [part(50, None)])) == ["fp"]


def test_a_part_that_no_log_could_tell_of_was_not_missed() -> None:
    assert verdicts(match([made(10, 20)._replace(seen=3 * S)], [])) == ["not observable"]
    assert verdicts(match([made(10, 20)._replace(seen=4 * S)], [])) == ["fn"]
    assert verdicts(match([made(10, 13)._replace(seen=3 * S)], [])) == ["below resolution"]
    assert verdicts(match([made(10, 20)._replace(seen=0)], [part(10, 20)])) == ["tp"]


def test_a_one_way_part_in_the_other_direction_is_another() -> None:
    """Only the brokers on both sides were compared."""
    cut = made(10, 20, ((0,), (1, 2, 3)), "one-way")
    assert verdicts(match([cut], [part(10, 20, ((0,), (1, 2, 3)), "one-way")])) == ["tp"]
    assert verdicts(match([cut], [part(10, 20, ((1, 2, 3), (0,)), "one-way")])) == ["fn", "fp"]


def test_a_link_of_which_no_log_tells_may_lack_in_a_finding() -> None:
    whole = made(10, 20, ((1, 2), (0,)), "one-way")
    assert verdicts(match([whole], [part(10, 20, ((1,), (0,)))])) == ["fn", "fp"]
    assert verdicts(match([whole._replace(told=((1,), (0,)))], [part(10, 20, ((1,), (0,)))])) == ["tp"]
    assert verdicts(match([whole._replace(told=((1,), (0,)))], [part(10, 20, ((1, 2), (0,)))])) == ["tp"]


def test_sides_of_single_links_lack_brokers_of_whose_links_no_log_tells() -> None:
    cut = (row(10, "cut_one_way", "a", "bc"), row(20, "end", "a", "bc", of="cut_one_way"))
    assert [each.told for each in make(*cut)] == [((1, 2), (0,))]
    assert [each.told for each in make(*cut, lost="c")] == [((1,), (0,))]
    assert [each.told for each in make(*cut, lost="bc")] == [((1, 2), (0,))]
    assert [each.told for each in make(*cut, c=[(0, 12 * S)])] == [((1,), (0,))], "2 s are no silence"


def test_sides_of_a_complete_part_have_all_brokers() -> None:
    cut = (row(10, "cut", "ab", "cd", of="partition"), row(20, "end", "ab", "cd", of="partition"))
    assert [each.told for each in make(*cut, lost="d", unseen="d")] == [HALVES]


def test_silence_within_a_side_shows_nothing_of_a_part() -> None:
    """Broker d was cut off, and a from b. No log tells of d."""
    cuts = [
        row(at, op, *sides, of="partition")
        for at, op in ((10, "cut"), (20, "end"))
        for sides in ("ab", ("d", "abc"))
    ]
    seen = {each.part.kind: each.seen for each in make(*cuts, lost="d", unseen="d")}
    assert seen == {"complete": 0, "partial": 10 * S}


def test_silence_of_a_broker_on_no_side_shows_nothing_of_a_part() -> None:
    """Brokers a and b were cut off from each other, and a did not hear d. No log tells of b."""
    cuts = [row(10, "cut", "a", "b", of="partition"), row(10, "cut_one_way", "d", "a")]
    seen = {each.part.kind: each.seen for each in make(*cuts, lost="b", unseen="b")}
    assert seen == {"partial": 0, "one-way": 90 * S}


def test_other_sides_or_another_time_are_another_part() -> None:
    assert verdicts(match([made(10, 20)], [part(10, 20, ALONE)])) == ["fn", "fp"]
    assert verdicts(match([made(10, 20)], [part(30, 40)])) == ["fn", "fp"]
    assert verdicts(match([made(10, 20)], [part(10, 20, kind="partial")])) == ["fn", "fp"]


def test_each_is_matched_once() -> None:
    assert sorted(verdicts(match([made(10, 30)], [part(10, 18), part(22, 30)]))) == ["fp", "tp"]


def test_a_one_way_cut_and_the_silence_both_ways_that_follows_are_one() -> None:
    found = [part(9.9, 12, ALONE, "one-way"), part(12.4, 20.5, ALONE)]
    (row,) = match([made(10, 20, ALONE, "one-way")], found)
    assert row.verdict == "tp"
    assert row.found is not None
    assert row.found.numbers == (0, 1)
    assert verdicts(match([made(10, 20, ALONE)], found)) == ["fp", "fn"]


def test_two_findings_of_the_same_sides_are_two_unless_the_links_of_a_one_way_cut_were_given_up() -> None:
    late = [part(10, 20, ALONE, "one-way"), part(23.1, 40, ALONE)]
    again = [part(10, 20, ALONE, "one-way"), part(20, 30, ALONE, "one-way")]
    other = [part(10, 20, ALONE, "one-way"), part(20, 30, ((0, 2, 3), (1,)))]
    other_way = [part(10, 20, ALONE), part(20, 30, ALONE, "partial")]
    for found in (late, again, other, other_way):
        assert verdicts(match([], found)) == ["fp", "fp"]


def test_strained_links_carry_by_chance() -> None:
    both = [(0, 1), (0, 2), (0, 3)]
    whole = {link: [(0, 100 * S)] for link in both}
    assert verdicts(match([], [part(10, 20, ALONE)], whole)) == ["below resolution"]
    assert verdicts(match([], [part(10, 20, ALONE)], {both[0]: [(0, 100 * S)]})) == ["fp"]
    assert verdicts(match([], [part(10, 20, ALONE)], {link: [(0, 5 * S)] for link in both})) == ["fp"]


def test_the_best_pairing_is_not_the_greedy_one() -> None:
    """The first two match best, but that would leave the others alone."""
    worth = {(0, 0): 10, (0, 1): 8, (1, 0): 9, (1, 1): 0}
    assert best_pairs([0, 1], [0, 1], lambda one, other: worth[one, other]) == [(0, 1), (1, 0)]


@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=4, max_size=4))
def test_no_pairing_is_worth_more(worth: list[list[int]]) -> None:
    pairs = best_pairs(range(4), range(4), lambda one, other: worth[one][other])
    assert len({one for one, _ in pairs}) == len({other for _, other in pairs}) == len(pairs)
    best = max(sum(worth[one][other] for one, other in enumerate(order)) for order in permutations(range(4)))
    assert sum(worth[one][other] for one, other in pairs) == best


def row(at_s: float, op: str, a: str = "", b: str = "", of: str | None = None) -> Row:
    return Row(round(at_s * S), op, of or op, tuple(a), tuple(b), None, None, {})


def make(
    *rows: Row,
    silent: dict[tuple[str, str], list[tuple[int, int]]] | None = None,
    joined: int = 0,
    lost: str = "",
    unseen: str = "",
    **logged: list[tuple[int, int]],
) -> list[Made]:
    """``logged``: the times of which a log tells, if not of all. ``unseen``: no log shows that they ran."""
    followed = effects([row(0, "start", "abcd"), *rows], NAMES, 100 * S)
    always = {name: [(0, 100 * S)] for name in NAMES}
    told = {name: times for name, times in (always | logged).items() if name not in lost}
    ran = {name: times for name, times in always.items() if name not in unseen}
    noted = Noted({name: [joined] for name in NAMES}, silent or {}, told, ran, 100 * S)
    return made_parts(followed, noted, NAMES, limits(S))


def test_two_cuts_that_overlap_make_the_parts_they_make() -> None:
    found = make(
        row(10, "isolate", "a"),
        row(15, "isolate", "b"),
        row(20, "end", "a", of="isolate"),
        row(30, "end", "b", of="isolate"),
    )
    assert [(each.part.start // S, each.mended // S, each.part.sides) for each in found] == [
        (10, 15, ((1, 2, 3), (0,))),
        (15, 20, ((2, 3), (0,), (1,))),
        (20, 30, ((0, 2, 3), (1,))),
    ]
    assert [each.seen // S for each in found] == [5, 5, 10]


def test_a_part_lasts_until_a_listener_noted_the_first_heartbeat() -> None:
    links = [(one, other) for one in "ab" for other in "cd"]
    silent = {
        pair: [(9 * S, 23 * S), (40 * S, 50 * S)]
        for one, other in links
        for pair in ((one, other), (other, one))
    }
    (found,) = make(
        row(10, "cut", "ab", "cd", of="partition"), row(20, "end", "ab", "cd", of="partition"), silent=silent
    )
    assert (found.part.start, found.part.end, found.mended) == (10 * S, 23 * S, 20 * S)


def test_a_part_is_mended_when_its_own_cut_ends() -> None:
    sides = ("ab", "cd")
    ends = (10, "cut"), (20, "end"), (40, "cut"), (50, "end")
    found = make(*(row(at, op, *sides, of="partition") for at, op in ends))
    assert [each.mended for each in found] == [20 * S, 50 * S]


def test_a_part_is_mended_when_one_direction_carries_again() -> None:
    """The first heartbeat came two seconds later."""
    there = [row(at, op, "a", "bcd", of="cut_one_way") for at, op in ((10, "cut_one_way"), (15, "end"))]
    back = [row(at, op, "bcd", "a", of="cut_one_way") for at, op in ((10, "cut_one_way"), (25, "end"))]
    silent = {("a", other): [(9 * S, 17 * S)] for other in "bcd"}
    found = make(*there, *back, silent=silent)
    assert [(each.part.kind, each.mended // S) for each in found] == [("complete", 15), ("one-way", 25)]


def test_parts_of_any_length_were_made() -> None:
    """Whether a finding of it is to be expected is for the match to say."""
    short = (row(10, "cut", "ab", "cd", of="partition"), row(10.5, "end", "ab", "cd", of="partition"))
    one_way = (row(10, "cut_one_way", "a", "bcd"), row(10.5, "end", "a", "bcd", of="cut_one_way"))
    assert [each.part.kind for each in make(*short)] == ["complete"]
    assert [each.part.kind for each in make(*one_way)] == ["one-way"]


def test_a_broker_cut_off_before_it_joined_was_in_no_part() -> None:
    cut = (row(10, "cut", "ab", "cd", of="partition"), row(20, "end", "ab", "cd", of="partition"))
    assert make(*cut, joined=21 * S) == []
    assert len(make(*cut, joined=9 * S)) == 1


def test_a_broker_that_is_down_is_on_no_side() -> None:
    (found,) = make(row(5, "crash", "d"), row(10, "cut", "ab", "cd", of="partition"))
    assert found.part.sides == ((0, 1), (2,))
    assert found.part.end is None
