"""WORK has a head of fixed width; settlements and answers of homes are read strictly."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import SessionError
from mesh.wire.durable_frames import (
    AFTER_MAX_MS,
    BACK_OFF,
    BITMAP_MAX,
    REDELIVERED,
    SENTENCE_MAX,
    SUSPECT,
    WORK_SIZE,
    Durable,
    read_work,
    work_head,
)
from mesh.wire.session_frames import decode, encode

PREFIX = b"\x80\0\0\1"
MOST = (1 << 64) - 1


@given(
    st.integers(0, (1 << 32) - 1),
    st.integers(1, MOST >> 1),
    st.integers(0, 4095),
    st.integers(1, 0xFFFF),
    st.sampled_from([0, REDELIVERED, REDELIVERED | SUSPECT]),
    st.binary(max_size=20),
)
def test_a_work_head_is_valid_msgpack_around_the_block(
    number: int, row: int, first: int, attempt: int, flags: int, block: bytes
) -> None:
    frame = work_head(number, row, first, attempt, flags, len(block)) + block
    kind, head, carried = msgpack.unpackb(frame)
    assert (kind, carried, len(frame)) == (Durable.WORK, block, WORK_SIZE + len(block))
    assert head[:4] == number.to_bytes(4, "big")
    assert read_work(PREFIX + frame, 4) == (number, row, first, attempt, flags)


@pytest.mark.parametrize(("after_ms", "right"), [(AFTER_MAX_MS, True), (AFTER_MAX_MS + 1, False)])
def test_a_retry_is_within_seven_days_or_when_the_home_chooses(after_ms: int, right: bool) -> None:
    """A longer time was cut silently."""
    assert decode(encode(Durable.RETRY, 1, 7, 0, BACK_OFF))[-1] == BACK_OFF
    frame = encode(Durable.RETRY, 1, 7, 0, after_ms)
    if right:
        assert decode(frame)[-1] == after_ms
    else:
        with pytest.raises(SessionError, match=rf"after_ms is {after_ms}, expected .*0 to 604800000"):
            decode(frame)


@given(st.binary(max_size=60))
def test_garbage_is_no_work(data: bytes) -> None:
    for frame in (data, b"\x93\x44\xc4\x11" + data):
        try:
            read_work(frame)
        except SessionError:
            pass


def test_work_that_is_cut_or_has_unknown_flags_is_refused() -> None:
    frame = work_head(1, 7, 0, 1, 0, 5) + b"block"
    for wrong, why in (
        (frame[:-1], "announces a block of 5 bytes and has 4"),
        (frame[: WORK_SIZE - 1], "shorter than its head"),
        (work_head(1, 7, 0, 1, 8, 0), "unknown flags 0x8"),
        (b"\x93\x05" + frame[2:], "fixed form"),
        (work_head(1, 0, 0, 1, 0, 0), "row 0, message 0 and attempt 1"),  # DONE could not name it
        (work_head(1, 1 << 63, 0, 1, 0, 0), "row 9223372036854775808"),
        (work_head(1, 7, 4096, 1, 0, 0), "message 4096"),
        (work_head(1, 7, 0, 0, 0, 0), "attempt 0"),
    ):
        with pytest.raises(SessionError, match=why):
            read_work(wrong)


def test_an_attempt_beyond_the_field_is_shown_as_the_most() -> None:
    assert read_work(work_head(1, 7, 0, 1 << 20, 0, 0))[3] == 0xFFFF


@pytest.mark.parametrize(
    "settled",
    [
        [0, 0, b""],
        [True, 0, b""],
        [1, -1, b""],
        [1, 1 << 16, b""],
        [1, 0, bytes(BITMAP_MAX + 1)],
        [1, 0, "text"],
        [1, 0],
        (1,),
        7,
    ],
)
def test_settlements_are_read_strictly(settled: object) -> None:
    with pytest.raises(SessionError, match="settled"):
        decode(encode(Durable.DONE, 1, [settled]))


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, -1),
        (2, 5),
        (3, 1 << 63),
        (4, -1),
        (5, 7),
        (5, True),
        (6, "x" * (SENTENCE_MAX + 1)),
        (6, b""),
    ],
)
def test_answers_of_homes_are_read_strictly(index: int, value: object) -> None:
    answer: list[object] = [MOST, MOST, 1, 4, 0, 0, ""]
    assert decode(encode(Durable.KEPT, [answer])) == [Durable.KEPT, [answer]]
    answer[index] = value
    with pytest.raises(SessionError, match="blocks|msgpack|out of range"):
        decode(encode(Durable.KEPT, [answer]))


def test_a_reason_is_one_of_those_known() -> None:
    with pytest.raises(SessionError, match="expected one of held_elsewhere, other_patterns"):
        decode(encode(Durable.DETACHED, 1, "because", "", ""))
