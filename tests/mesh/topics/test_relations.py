"""The relations of patterns, against every topic of a small alphabet."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.topics import check_pattern, covers, matches, meet, overlaps

TOPICS = [
    ".".join([first, *rest])
    for first in ("a", "b", "c", "$s")
    for length in range(4)
    for rest in product("abc", repeat=length)
]
"""No pattern below has the token ``c``, so it stands for all others."""

tokens = st.lists(st.sampled_from(["a", "b", "*"]), min_size=0, max_size=3)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    parts = draw(tokens)
    if draw(st.booleans()) or not parts:
        parts = [*parts[:2], "#"]
    if draw(st.integers(0, 4)) == 0 and parts != ["#"]:
        parts[0] = "$s"
    return check_pattern(".".join(parts))


def matched(pattern: str) -> set[str]:
    return {topic for topic in TOPICS if matches(pattern, topic)}


@given(patterns(), patterns())
def test_relations_are_those_of_the_topics_that_match(one: str, other: str) -> None:
    assert covers(one, other) is (matched(one) >= matched(other))
    assert overlaps(one, other) is bool(matched(one) & matched(other))
    both = meet(one, other)
    assert both == meet(other, one)
    assert (matched(check_pattern(both)) if both else set()) == matched(one) & matched(other)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a.#", "*.b.#", "a.b.#"),
        ("a.#", "a", "a"),
        ("#", "#", "#"),
        ("#", "*", "*"),
        ("*.b", "a.*", "a.b"),
        ("a.*", "a", None),
        ("#", "$sys.status", None),
        ("$sys.#", "$sys.status", "$sys.status"),
    ],
)
def test_the_meet_of_two_patterns_is_the_pattern_of_common_topics(
    one: str, other: str, both: str | None
) -> None:
    assert meet(one, other) == both


def test_a_pattern_that_would_be_longer_than_any_topic_matches_nothing() -> None:
    long = "x" * 200
    assert meet(f"{long}.*", f"*.{long}") is None
