"""Parts from states and from silences of pairs, in times so small that the limits can be counted: the period
is 10. So a state counts if it is longer than 22, a mesh may heal for 50, and join for 150."""

from __future__ import annotations

import pytest

from mesh.analysis.silence.apart import State
from mesh.analysis.silence.sweep import Part, Silence, _complete, limits, parts

Told = tuple[int, int, str]
"""From, to, and sides: ``01|23``."""


def sides(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, side)) for side in text.split("|"))


def text(part: Part) -> Told:
    return part.start, part.end or 0, "|".join("".join(map(str, side)) for side in part.sides)


@pytest.mark.parametrize(
    ("states", "found"),
    [
        (
            [(100, 200, "345|12|0"), (200, 240, "012|345")],
            [(100, 200, "345|12|0")],
        ),
        (
            [(100, 200, "345|12|0"), (200, 260, "012|345")],
            [(100, 200, "345|12|0"), (200, 260, "012|345")],
        ),
        (
            [(100, 200, "012|345"), (200, 240, "12345|0")],
            [(100, 200, "012|345"), (200, 240, "12345|0")],
        ),
        (
            [(100, 200, "345|12|0"), (200, 210, "01234|5"), (210, 250, "012|345")],
            [(100, 200, "345|12|0"), (210, 250, "012|345")],
        ),
        (
            [(100, 120, "01|23"), (120, 140, "01|2")],
            [(100, 140, "01|23")],
        ),
        (
            [(100, 120, "01|23"), (121, 140, "01|23")],
            [],
        ),
        (
            [(100, 200, "01|23"), (200, 210, "23|0|1"), (210, 300, "01|23")],
            [(100, 300, "01|23")],
        ),
        (
            [(100, 200, "01|23"), (200, 210, "02|13"), (210, 300, "01|23")],
            [(100, 200, "01|23"), (210, 300, "01|23")],
        ),
        (
            [(100, 200, "01|23"), (200, 230, "23|0|1")],
            [(100, 200, "01|23"), (200, 230, "23|0|1")],
        ),
    ],
    ids=[
        "fewer sides for a short time: it only heals",
        "fewer sides that last",
        "other sides are no healing",
        "fewer sides after others are no healing",
        "one part while a broker dies",
        "but not if the mesh was whole between",
        "a short state in which its sides were apart belongs to it",
        "one in which they were joined ends it",
        "a finer state that lasts is another part",
    ],
)
def test_complete_parts_from_states(states: list[Told], found: list[Told]) -> None:
    raw = [State(start, end, sides(told)) for start, end, told in states]
    assert [text(part) for part in _complete(raw, limits(10), 1000)] == found


def test_a_state_too_short_for_a_part_is_nothing_to_heal_from() -> None:
    """Where two cuts overlap for a moment, the truth has that moment as a part. The second cut was shorter
    than a mesh may heal, and was taken for its healing."""
    raw = [
        State(start, end, sides(told))
        for start, end, told in [(100, 200, "123|0"), (200, 206, "23|0|1"), (206, 250, "01|23")]
    ]
    made = _complete(raw, limits(10)._replace(least=0), 1000)
    assert [text(part) for part in made] == [(100, 206, "123|0"), (200, 206, "23|0|1"), (200, 250, "01|23")]


def lost(pairs: str, start: int, end: int, *, ways: int = 2, fresh: bool = False) -> list[Silence]:
    """Silences of pairs ``01 23``. One-way: the first was not heard by the second."""
    links = [(int(one), int(other)) for one, other in pairs.split()]
    links += [(other, one) for one, other in links if ways == 2]
    return [Silence(src, dst, start, end, fresh=fresh) for src, dst in links]


def found(*silences: list[Silence], brokers: int = 5, ties: dict[int, set[int]] | None = None) -> list[Told]:
    presence = {node: [(0, 1000)] for node in range(brokers)}
    every = [each for some in silences for each in some]
    return [text(part) for part in parts(presence, every, ties, limits(10), 1000)]


def test_silence_between_brokers_that_are_no_neighbours_is_no_part() -> None:
    ring = {node: {(node + 1) % 5, (node - 1) % 5} for node in range(5)}
    assert found(lost("01", 100, 200), ties=ring) == [(100, 200, "0|1")]
    assert found(lost("02", 100, 200), ties=ring) == []


def test_one_direction_may_heal_after_the_other() -> None:
    both = lost("01", 100, 200)
    assert found(both, lost("01", 200, 250, ways=1)) == [(100, 200, "0|1")]
    assert found(both, lost("01", 200, 251, ways=1)) == [(100, 200, "0|1"), (200, 251, "1|0")]


def test_pairs_that_went_silent_together_may_heal_one_after_another() -> None:
    first = lost("01", 100, 200)
    assert found(first, lost("02", 100, 250)) == [(100, 200, "12|0")]
    assert found(first, lost("02", 100, 251)) == [(100, 200, "12|0"), (200, 251, "0|2")]


def test_a_pair_that_was_silent_with_others_for_too_short_is_not_with_them() -> None:
    last = lost("02", 110, 200)
    assert found(lost("01", 100, 133), last) == [(110, 133, "12|0"), (133, 200, "0|2")]
    assert found(lost("01", 100, 132), last) == [(110, 200, "0|2")]


def test_pairs_go_silent_together_within_a_period_and_a_quarter() -> None:
    first = lost("01", 100, 200)
    assert found(first, lost("02", 112, 200)) == [(112, 200, "12|0")]
    assert found(first, lost("02", 113, 200)) == [(100, 200, "0|1"), (113, 200, "0|2")]


def test_a_silence_of_one_direction_counts_after_a_period_and_a_half() -> None:
    assert found(lost("01", 100, 115, ways=1)) == []
    assert found(lost("01", 100, 116, ways=1)) == [(100, 116, "1|0")]


def test_two_unheard_brokers_are_one_side_though_one_of_them_is_heard_by_some() -> None:
    assert found(lost("01 02 31", 100, 200, ways=1)) == [(100, 200, "12|03")]


def test_two_that_never_heard_each_other_may_join_for_fifteen_periods() -> None:
    assert found(lost("01", 100, 250, fresh=True)) == found(lost("01", 100, 250, ways=1, fresh=True)) == []
    assert found(lost("01", 100, 251, fresh=True)) == [(100, 251, "0|1")]
    assert found(lost("01", 100, 251, ways=1, fresh=True)) == [(100, 251, "1|0")]
