"""The arguments of both clients' calls, and the errors for bad ones."""

from __future__ import annotations

from collections import UserDict
from fractions import Fraction

import pytest

from mesh.clients.arguments import (
    by_topic,
    checked_bodies,
    checked_body,
    checked_name,
    checked_seconds,
    level_number,
    packed,
)
from mesh.errors import TopicError
from mesh.wire import blocks
from mesh.wire.blocks import BODY_MAX, HeaderValue, unpack_headers
from mesh.wire.session_frames import NAME_MAX


def test_levels_are_those_of_blocks_and_no_others() -> None:
    known = [blocks.SENT, blocks.ACCEPTED, blocks.STORED]
    assert [level_number(level) for level in ("sent", "accepted", "stored")] == known
    with pytest.raises(ValueError, match="level 'kept' is not known; levels are 'sent', 'accepted', 'stored"):
        level_number("kept")
    for wrong in (5, None, ["sent"]):
        with pytest.raises(ValueError, match="is not known; levels are"):
            level_number(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not known; levels are 'sent', 'accepted'") as caught:
        level_number("x" * 1_000_000)
    assert len(str(caught.value)) < 150


def test_a_key_travels_as_the_header_of_that_name() -> None:
    assert packed(None, None) == packed({}, None) == b""
    assert unpack_headers(packed(None, "k")) == {"key": "k"}
    given: dict[str, HeaderValue] = {"n": 1, "key": "old"}
    assert unpack_headers(packed(given, "new")) == {"n": 1, "key": "new"}
    assert given == {"n": 1, "key": "old"}, "what the caller gave is the caller's"


def test_messages_are_a_topic_and_bodies_or_pairs_of_both() -> None:
    assert by_topic("a", (b"1", b"23")) == [("a", [b"1", b"23"], 3)]
    assert by_topic("a", []) == by_topic([], None) == []
    pairs = [("b", b"1"), ("a", b"22"), ("b", b"333")]
    assert by_topic(pairs, None) == [("b", [b"1", b"333"], 4), ("a", [b"22"], 2)]
    for messages, bodies, word in (
        ("a", None, "needs the list"),
        (pairs, [b""], "or pairs of both, not"),
    ):
        with pytest.raises(TypeError, match=word):
            by_topic(messages, bodies)
    with pytest.raises(TypeError, match="encode it first"):
        by_topic([("a", "text")], None)  # type: ignore[list-item]


def test_bad_messages_are_refused_with_an_error_that_shows_the_argument() -> None:
    for messages, bodies, sentence in (
        (5, None, "a topic and bodies, or pairs of both, not 5"),
        (5, [b""], "a topic and bodies, or pairs of both, not 5"),
        (b"a", [b""], "a topic and bodies, or pairs of both, not b'a'"),
        ([5], None, "pairs of a topic and a body, not 5"),
        ([("a",)], None, r"pairs of a topic and a body, not \('a',\)"),
        ([("a", b"", 1)], None, "pairs of a topic and a body, not"),
        ("a", 5, "bodies are a list of bytes, not int"),
        ("a", b"body", "bodies are a list of bytes, not one bytes"),
        ("a", "body", "bodies are a list of bytes, not one str"),
    ):
        with pytest.raises(TypeError, match=sentence):
            by_topic(messages, bodies)  # type: ignore[arg-type]
    with pytest.raises(TopicError, match=r"a topic is a str such as 'news.uk', not \['a'\]"):
        by_topic([(["a"], b"")], None)  # type: ignore[list-item]
    with pytest.raises(TypeError) as caught:
        by_topic(["x" * 1_000_000], None)  # type: ignore[list-item]
    assert len(str(caught.value)) < 150


def test_bodies_are_bytes_of_a_bounded_size() -> None:
    assert checked_body(memoryview(b"ab")) == checked_body(bytearray(b"ab")) == b"ab"
    assert checked_bodies([b"a", bytearray(b"bc")]) == ([b"a", b"bc"], 3)
    assert checked_bodies(iter([b"a"])) == ([b"a"], 1) and checked_bodies([]) == ([], 0)
    given = [b"a", b"bc"]
    assert checked_bodies(given)[0] is given
    for bad in ("text", 5, None):
        with pytest.raises(TypeError, match="bytes"):
            checked_bodies([b"a", bad])
    assert len(checked_body(bytes(BODY_MAX))) == BODY_MAX
    for call in (checked_body, lambda body: checked_bodies([body])):
        with pytest.raises(ValueError, match="limit"):
            call(bytes(BODY_MAX + 1))


def test_headers_are_a_mapping_and_keys_are_text() -> None:
    assert unpack_headers(packed(UserDict({"n": 1}), "k")) == {"n": 1, "key": "k"}
    for headers, key, word in (
        (["x"], None, "headers are a mapping of names to values, not list"),
        (["x"], "k", "headers are a mapping of names to values, not list"),
        ("x", None, "not str"),
        (None, 5, "a key is a str, not int"),
        ({"n": 1}, b"k", "a key is a str, not bytes"),
        ({1: 2}, None, "header names are str, not int"),
    ):
        with pytest.raises(TypeError, match=word):
            packed(headers, key)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is a list, not str") as wrong:
        packed({"k" * 1_000_000: []})  # type: ignore[dict-item]
    assert len(str(wrong.value)) < 150


def test_times_are_seconds_from_0() -> None:
    assert [checked_seconds("timeout", given) for given in (0, 1.5, Fraction(1, 2), float("inf"))] == [
        0.0,
        1.5,
        0.5,
        float("inf"),
    ]
    assert checked_seconds("timeout", 10**400) == float("inf")
    for given in (-1, -0.5, float("nan"), -(10**400)):
        with pytest.raises(ValueError, match="timeout is .*; it is seconds from 0"):
            checked_seconds("timeout", given)
    for wrong in ("1", None, [1], b"1", 1j):
        with pytest.raises(TypeError, match="timeout is .*; it is a number of seconds"):
            checked_seconds("timeout", wrong)


def test_a_clients_name_fits_its_field() -> None:
    assert [checked_name(name) for name in (None, "", "me", "x" * NAME_MAX)] == ["", "", "me", "x" * NAME_MAX]
    with pytest.raises(
        ValueError, match=f"a name of {NAME_MAX + 1} characters is above the limit of {NAME_MAX}"
    ):
        checked_name("x" * (NAME_MAX + 1))
    with pytest.raises(TypeError, match="the name of a client is a str, not bytes"):
        checked_name(b"me")
