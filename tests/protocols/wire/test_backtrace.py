"""The stack in front of requests and surveys: where it ends, and when it is too deep or broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import LocalProtocolError
from protocols.wire import backtrace
from protocols.wire.backtrace import END_BIT, MALFORMED, OVER_TTL, split

peer_words = st.integers(1, END_BIT - 1)
id_words = st.integers(END_BIT, 0xFFFFFFFF)


def stack(words: list[int]) -> bytes:
    return b"".join(word.to_bytes(4, "big") for word in words)


@given(st.lists(peer_words, max_size=20), id_words, st.binary(max_size=20))
def test_the_body_begins_behind_the_id(peers: list[int], identifier: int, body: bytes) -> None:
    header = stack([*peers, identifier])
    assert split(header + body) == len(header)
    assert split(header + body, ttl=len(peers) + 1) == len(header)
    assert split(header + body, ttl=len(peers)) == OVER_TTL


def test_hops_count_as_nng_counts_them() -> None:
    """With a ttl of 8, seven peer words and the id pass, eight do not."""
    assert split(stack([1] * 7 + [END_BIT]) + b"body", ttl=8) == 32
    assert split(stack([1] * 8 + [END_BIT]) + b"body", ttl=8) == OVER_TTL


@pytest.mark.parametrize("frame", [b"", b"\x80", b"\x80\x00\x00", stack([1]), stack([1, 2]) + b"\x80\x00"])
def test_a_stack_without_an_end_is_malformed(frame: bytes) -> None:
    assert split(frame, ttl=8) == MALFORMED


def test_too_deep_is_not_malformed_even_if_nothing_follows() -> None:
    assert split(stack([1] * 8), ttl=8) == OVER_TTL
    assert split(stack([1] * 7), ttl=8) == MALFORMED


@given(st.binary(max_size=80), st.integers(1, 255))
def test_any_bytes_have_one_of_three_outcomes(frame: bytes, ttl: int) -> None:
    offset = split(frame, ttl)
    if offset > 0:
        assert offset % 4 == 0
        assert 4 <= offset <= min(len(frame), ttl * 4)
        assert frame[offset - 4] & 0x80
        assert not any(frame[i] & 0x80 for i in range(0, offset - 4, 4))
    else:
        assert offset in (OVER_TTL, MALFORMED)


@given(st.integers(0, 0xFFFFFFFF), st.binary(max_size=20))
def test_pop_undoes_push(word: int, frame: bytes) -> None:
    assert backtrace.pop(backtrace.push(frame, word)) == (word, frame)
    assert backtrace.peek(backtrace.push(frame, word)) == word


def test_pop_of_a_short_frame_is_malformed() -> None:
    assert backtrace.peek(b"abc") == MALFORMED
    assert backtrace.pop(b"abc")[0] == MALFORMED


@pytest.mark.parametrize("word", [-1, 1 << 32])
def test_a_word_that_does_not_fit_is_the_callers_mistake(word: int) -> None:
    with pytest.raises(LocalProtocolError, match="32 bits"):
        backtrace.encode_word(word)
