"""The grammar of topics and patterns, and the trie against the obvious way to match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import TopicError
from mesh.topics import PatternTrie, check_pattern, check_public_topic, check_topic, is_system, matches

TOKEN = st.sampled_from(["a", "b", "c", "A-1", "_"])
TOPIC = st.builds(
    lambda system, tokens: ("$" if system else "") + ".".join(tokens),
    st.booleans(),
    st.lists(TOKEN, min_size=1, max_size=5),
)
PATTERN = st.builds(
    lambda tokens, rest: ".".join([*tokens, *rest]),
    st.lists(st.one_of(TOKEN, st.just("*")), min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
) | st.sampled_from(["#", "$a.#", "$a.*", "$b", "$a"])


@pytest.mark.parametrize("topic", ["a", "news.uk", "A-Z_0.x", "$sys.status", ".".join("a" * 16), "x" * 255])
def test_topics_of_the_grammar_pass(topic: str) -> None:
    assert check_topic(topic) == topic.encode()


@pytest.mark.parametrize(
    ("topic", "word"),
    [
        ("", "at least one token"),
        ("a..b", "empty token at position 2"),
        (".a", "empty token"),
        ("a.", "empty token"),
        ("a.*", "wildcard"),
        ("a.#", "wildcard"),
        ("a b", "token 'a b'"),
        ("a.b$c", "token 'b$c'"),
        ("a.$b", "token '$b'"),
        ("$", "token '$'"),
        ("æ", "token"),
        ("x" * 256, "256 characters, the limit is 255"),
        (".".join("a" * 17), "17 tokens, the limit is 16"),
        ("a\n", "token"),
    ],
)
def test_a_bad_topic_is_refused_with_the_reason(topic: str, word: str) -> None:
    with pytest.raises(TopicError, match=word.replace("$", r"\$")) as caught:
        check_topic(topic)
    assert "\n" not in str(caught.value)


def test_a_topic_of_bytes_is_refused() -> None:
    with pytest.raises(TopicError, match="bytes"):
        check_topic(b"news")  # type: ignore[arg-type]


def test_programs_may_not_publish_to_the_systems_topics() -> None:
    assert check_public_topic("a.b") == b"a.b"
    with pytest.raises(TopicError, match="mesh's own"):
        check_public_topic("$sys.status")


@pytest.mark.parametrize("pattern", ["#", "*", "a.#", "*.b.*", "$sys.#", "a"])
def test_patterns_of_the_grammar_pass(pattern: str) -> None:
    assert check_pattern(pattern) == pattern


@pytest.mark.parametrize("pattern", ["", "a.#.b", "#.a", "a*", "a.**", ">", "$*", "$#"])
def test_a_bad_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(TopicError):
        check_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "topic", "wanted"),
    [
        ("news.*", "news.uk", True),
        ("news.*", "news", False),
        ("news.*", "news.uk.london", False),
        ("news.#", "news", True),
        ("news.#", "news.uk.london", True),
        ("#", "anything.at.all", True),
        ("*.uk", "news.uk", True),
        ("#", "$sys.status", False),
        ("*.status", "$sys.status", False),
        ("$sys.#", "$sys.status", True),
        ("$sys.*", "sys.status", False),
    ],
)
def test_a_pattern_matches_its_topics(pattern: str, topic: str, wanted: bool) -> None:
    trie: PatternTrie[int] = PatternTrie()
    trie.add(pattern, 1)
    assert matches(pattern, topic) is wanted
    assert trie.match(topic) == ([1] if wanted else [])


@given(
    st.lists(st.tuples(PATTERN, st.integers(0, 3), st.booleans()), max_size=30), st.lists(TOPIC, max_size=10)
)
def test_the_trie_agrees_with_matching_each_pattern(
    steps: list[tuple[str, int, bool]], topics: list[str]
) -> None:
    trie: PatternTrie[int] = PatternTrie()
    pairs: dict[tuple[str, int], None] = {}
    for pattern, value, add in steps:
        if add:
            trie.add(pattern, value)
            pairs[pattern, value] = None
        else:
            trie.discard(pattern, value)
            pairs.pop((pattern, value), None)
    assert len(trie) == len(pairs)
    for topic in topics:
        assert is_system(topic) == topic.startswith("$")
        found = trie.match(topic)
        assert sorted(found) == sorted({value for pattern, value in pairs if matches(pattern, topic)})
        assert len(found) == len(set(found))


def test_an_emptied_trie_keeps_no_nodes() -> None:
    trie: PatternTrie[int] = PatternTrie()
    trie.add("a.b.#", 1)
    trie.add("a.b", 1)
    trie.discard("a.b.#", 1)
    trie.discard("a.b", 1)
    trie.discard("a.b", 1)
    assert not trie._root.children
