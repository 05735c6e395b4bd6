"""The cost of a look-up among patterns with many stars, in nodes, and the patterns that replace them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.topics import STARS_MAX, TOKENS_MAX, check_pattern, is_starred, matches, trie, widened
from mesh.topics.routing import Router
from mesh.wire.session_frames import Role

MOST = 3213
"""Nodes, of paths of up to 16 tokens with up to three stars."""
TOKEN = st.sampled_from("ab*")
PATTERN = st.builds(
    lambda tokens, rest: ".".join([*tokens, *rest]),
    st.lists(TOKEN, min_size=1, max_size=TOKENS_MAX - 1),
    st.sampled_from([[], ["#"]]),
)
TOPIC = st.lists(st.sampled_from("ab"), min_size=1, max_size=TOKENS_MAX).map(".".join)


class CountedNode:
    visited = 0

    def __init__(self) -> None:
        self._children: dict[str, CountedNode] = {}
        self.values: dict[Any, None] = {}

    @property
    def children(self) -> dict[str, CountedNode]:
        CountedNode.visited += 1
        return self._children


def mixes(size: int) -> list[str]:
    """Every mix of ``a`` and ``*`` over so many tokens, and a last token that no topic below has."""
    return [".".join(tokens) + ".end" for tokens in itertools.product("a*", repeat=size)]


def test_a_pattern_with_few_stars_stays_and_one_with_more_keeps_the_first() -> None:
    for pattern in ("a", "*", "*.*.*", "*.*.*.#", "$a.*.#", ".".join("a" * 16)):
        assert widened(pattern) == pattern and not is_starred(pattern)
    assert is_starred("*.a.*.b.*.c.*")
    assert widened("*.a.*.b.*.c.*") == widened("*.a.*.b.*.*.#") == "*.a.*.b.*.#"
    assert widened("$a.*.*.*.b.*") == "$a.*.*.*.#"


@given(PATTERN, TOPIC)
def test_a_widened_pattern_has_few_stars_and_matches_at_least_the_same_topics(
    pattern: str, topic: str
) -> None:
    wide = check_pattern(widened(pattern))
    assert not is_starred(wide)
    assert matches(wide, topic) or not matches(pattern, topic)


def test_a_look_up_follows_few_nodes_for_any_patterns_of_other_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It visited 65 535 of them for every new topic without a match: 39 ms each time."""
    monkeypatch.setattr(trie, "_Node", CountedNode)
    router: Router[str, int] = Router()
    patterns = mixes(13)
    for member in range(2):
        router.change_remote(member, [(pattern, Role.LISTEN) for pattern in patterns], ())
    CountedNode.visited = 0
    route = router.route(".".join("a" * 14).encode())
    assert 500 < CountedNode.visited < MOST
    assert route.remote == (0, 1), "it may be sent what it does not want"
    router.change_remote(0, (), patterns)
    assert router.route(".".join("a" * 14).encode()).remote == (1,)
    router.change_remote(1, (), patterns)
    assert not router._wanted and not len(router._remote)


def test_a_widened_pattern_is_removed_with_the_last_pattern_that_it_replaces_by_role() -> None:
    router: Router[str, str] = Router()
    first, second, itself = "*.*.*.a.*", "*.*.*.b.*", "*.*.*.#"

    def roles() -> tuple[int, int]:
        route = router.route(b"x.x.x.x")
        return len(route.remote), len(route.remote_answers)

    router.change_remote("far", [(first, Role.LISTEN), (second, Role.ANSWERS)], ())
    assert roles() == (1, 1)
    router.change_remote("far", [(itself, Role.LISTEN)], [second])
    assert roles() == (1, 0)
    router.change_remote("far", [(first, Role.ANSWERS)], [itself])
    assert roles() == (1, 1)
    wanted = router.forget_remote("far")
    assert wanted is not None and roles() == (0, 0)
    assert not router.discard(wanted, 10) and not wanted.widened
    assert len(router._remote) == len(router._remote_answers) == 0


def test_no_mix_of_tokens_and_few_stars_makes_a_look_up_follow_more_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trie, "_Node", CountedNode)
    tree: trie.PatternTrie[int] = trie.PatternTrie()
    for tokens in itertools.product("a*", repeat=TOKENS_MAX):
        if tokens.count("*") <= STARS_MAX:
            tree.add(".".join(tokens), 1)
    CountedNode.visited = 0
    assert tree.match(".".join("a" * TOKENS_MAX)) == [1]
    assert CountedNode.visited == MOST
