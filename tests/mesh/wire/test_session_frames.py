"""Session frames are read strictly; credit and keepalive keep their rules."""

from __future__ import annotations

import os
import subprocess
import sys

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import CreditExceeded, SessionError
from mesh.wire.durable_frames import BACK_OFF, KIND_MAX, KIND_MIN, Durable, Kept
from mesh.wire.session_frames import (
    ADDED,
    AGAIN,
    BODY_MAX,
    DATA_SIZE,
    LAYOUTS,
    Keepalive,
    Kind,
    Leaving,
    ReceiveWindow,
    Role,
    SendCredit,
    Status,
    data_head,
    decode,
    encode,
    kind_of,
    read_data,
)

GOOD: dict[Kind | Durable, tuple[object, ...]] = {
    Kind.HELLO: (1, 2, 3, "me", 5000),
    Kind.WELCOME: (1, 2, "alpha", "mangrove", 3, 100, 200),
    Kind.SUBSCRIBE: (1, ["a.#", "b"], Role.ANSWERS, 10, 20),
    Kind.SUBSCRIBED: (1, ["beta"]),
    Kind.UNSUBSCRIBE: (1,),
    Kind.CREDIT: (0, 5, 6),
    Kind.ACK: (1, [[1, 4], [9, 9]], [], ["alpha"]),
    Kind.REFUSED: ([[1, 4]], "leaving"),
    Kind.REQUEST: (1, "add", b"body", b"", 1000),
    Kind.REPLY: (1, Status.OK, b"3", b"", "alpha", "me"),
    Kind.SURVEY: (1, "add", b"body", b"\x80", 1000),
    Kind.SURVEYED: (1, 4, ["beta"]),
    Kind.ASK: (1, 7, 0, "add", b"body", b"", 1000),
    Kind.ANSWER: (7, Status.DROPPED, b"no", b""),
    Kind.EXTEND: (7, 100),
    Kind.PING: (1,),
    Kind.PONG: (1,),
    Kind.ERROR: ("SessionError", "a sentence"),
    Kind.BYE: ("closed",),
    Kind.PATTERNS: (1, ["a.#", "b"]),
    Kind.UNSUBSCRIBED: (1, "too many"),
    Kind.INTERRUPTED: (),
    Kind.ADDRESSES: (["tcp://10.0.0.2:7770"],),
    Kind.FORWARD: (7, 1, "add", b"body", b"", 1000),
    Kind.ASKED: (7, ["me"]),
    Kind.RETURN: (7, 0, Status.OK, b"3", b"", "me"),
    Kind.LONGER: (7, 100),
    Kind.RECEIVED: (1 << 40,),
    Kind.CHALLENGE: (b"n" * 32, 7, "alpha", "mangrove"),
    Kind.PROVE: (b"p" * 64,),
    Kind.LEAVING: (Leaving.GOAWAY, 10_000, "broker alpha leaves"),
    Durable.ATTACH: (1, "mail", ["jobs.#"], 256, 1 << 20),
    Durable.ATTACHED: (1, 10_000_000, ["beta"]),
    Durable.DETACH: (1,),
    Durable.DETACHED: (1, "held_elsewhere", "it is held by alpha", "tcp://10.0.0.1:7770"),
    Durable.DONE: (1, [[7, 0, b"\xff\x01"], [8, 64, b"\x01"]]),
    Durable.RETRY: (1, 7, 3, BACK_OFF),
    Durable.DROP: (1, 7, 3, "cannot be read"),
    Durable.PENDING: (1, 4096, ["alpha"], ["beta"]),
    Durable.PAST: (1, 4096, ["alpha"]),
    Durable.LOWEST: ((1 << 64) - 1, 1 << 62, 9),
    Durable.KEPT: ([[(1 << 64) - 1, 1 << 62, 1, 4096, 0, Kept.REFUSED, "the disk is full"]],),
}

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.text(max_size=4)
    | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def test_every_kind_has_an_example_here_and_a_layout() -> None:
    assert set(GOOD) == set(LAYOUTS) == (set(Kind) | set(Durable)) - {Kind.DATA, Durable.WORK}
    assert all(kind < 32 for kind in Kind)
    assert all(KIND_MIN <= kind <= KIND_MAX for kind in Durable)


@pytest.mark.parametrize("kind", list(GOOD))
def test_a_good_frame_is_read_as_it_was_written(kind: Kind | Durable) -> None:
    frame = encode(kind, *GOOD[kind])
    assert kind_of(frame) == kind
    assert decode(b"\x80\0\0\1" + frame, 4) == [kind, *GOOD[kind]]


@pytest.mark.parametrize("kind", list(GOOD))
def test_missing_fields_are_refused_and_those_of_later_versions_ignored(kind: Kind | Durable) -> None:
    if LAYOUTS[kind] and kind not in ADDED:
        with pytest.raises(SessionError, match="fields"):
            decode(encode(kind, *GOOD[kind][:-1]))
    opening = kind in (Kind.HELLO, Kind.WELCOME)
    for more in (1, [1, "x"], b"bytes"):
        assert decode(encode(kind, *GOOD[kind], more)) == [kind, *GOOD[kind], *([more] if opening else [])]


def test_a_field_that_a_later_version_added_may_be_missing() -> None:
    """Version 2 began without the homes in ACK."""
    assert decode(encode(Kind.ACK, 1, [[1, 4]], ["beta"])) == [Kind.ACK, 1, [[1, 4]], ["beta"], []]
    with pytest.raises(SessionError, match="homes"):
        decode(encode(Kind.ACK, 1, [[1, 4]], ["beta"], "alpha"))


@given(st.sampled_from([kind for kind in GOOD if LAYOUTS[kind]]), st.data())
def test_a_field_of_another_type_is_refused_by_its_name_or_fits(
    kind: Kind | Durable, data: st.DataObject
) -> None:
    fields = list(GOOD[kind])
    index = data.draw(st.integers(0, len(fields) - 1))
    fields[index] = data.draw(ANYTHING)
    try:
        decode(encode(kind, *fields))
    except SessionError as error:
        names = [name for name, _ in LAYOUTS[kind]] + ([ADDED[kind][0]] if kind in ADDED else [])
        assert names[index] in str(error) or "msgpack" in str(error)
    else:
        assert type(fields[index]) is type(GOOD[kind][index]) or isinstance(fields[index], int)


@given(st.binary(max_size=60))
def test_garbage_ends_in_a_session_error_and_nothing_else(data: bytes) -> None:
    for read in (decode, read_data):
        for frame in (data, b"\x93\x05" + data, b"\x96\x00" + data):
            try:
                read(frame)
            except SessionError:
                pass


def test_limits_hold_before_anything_is_built() -> None:
    big = BODY_MAX + 1
    for frame in (
        encode(Kind.REQUEST, 1, "a", bytes(big), b"", 1),
        encode(Kind.REQUEST, 1, "a", b"", bytes(9000), 1),
        encode(Kind.BYE, "x" * 300),
        encode(Kind.SUBSCRIBED, 1, ["a"] * 70_000),
        msgpack.packb([int(Kind.BYE), {"a": 1}]),
        msgpack.packb([int(Kind.BYE), msgpack.ExtType(1, b"")]),
        b"\x92\x13" + b"\x91" * 2000,
        b"\x92\x13\xc1",
        b"\x91\x20",
        b"",
        b"\x90",
        b"hello",
    ):
        with pytest.raises(SessionError):
            decode(frame)


# --- DATA


def test_a_data_head_is_valid_msgpack_around_the_block() -> None:
    frame = data_head(3, AGAIN, 7, 9, 5) + b"block"
    kind, head, block = msgpack.unpackb(frame)
    assert (kind, block) == (Kind.DATA, b"block")
    assert head.hex() == "03010000000000070000000000000009"
    assert read_data(b"\x80\0\0\1" + frame, 4) == (3, AGAIN, 7, 9)
    assert len(frame) == DATA_SIZE + 5


@pytest.mark.parametrize("at", [0, 1, 2, 3, 5, 6, 7, 20, 21, 24])
def test_a_changed_constant_in_a_data_head_is_refused(at: int) -> None:
    frame = bytearray(data_head(0, 0, 1, 1, 5) + b"block")
    frame[at] ^= 0x40
    with pytest.raises(SessionError):
        read_data(bytes(frame))


# --- credit


def test_one_block_may_overdraw_and_the_next_may_not() -> None:
    window, credit = ReceiveWindow(10, 1000), SendCredit(10, 1000)
    credit.spend(9, 100)
    window.arrive(9, 100)
    assert credit.open
    credit.spend(50, 2000)
    window.arrive(50, 2000)
    assert not credit.open
    with pytest.raises(CreditExceeded, match="-49 messages"):
        window.arrive(1, 1)


def test_credit_goes_back_by_the_quarter_window() -> None:
    window = ReceiveWindow(100, 1 << 20)
    window.arrive(30, 300)
    assert not window.settle(24, 240)
    assert window.settle(1, 10)
    assert window.grant() == (25, 250)
    assert window.messages_left == 95
    assert ReceiveWindow(1000, 400).settle(1, 100), "bytes count as well"


def test_absurd_credit_is_an_error() -> None:
    credit = SendCredit()
    with pytest.raises(SessionError, match="above the limits"):
        credit.grant(1 << 31, 0)
        credit.grant(1 << 31, 0)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 300), st.booleans()), max_size=80))
def test_both_ends_agree_on_credit_and_it_never_runs_out_permanently(
    steps: list[tuple[int, int, bool]],
) -> None:
    window, credit = ReceiveWindow(100, 1000), SendCredit(100, 1000)
    under_way: list[tuple[int, int]] = []
    for messages, size, consume in steps:
        if credit.open:
            credit.spend(messages, size)
            window.arrive(messages, size)
            under_way.append((messages, size))
        if consume and under_way and window.settle(*under_way.pop(0)):
            credit.grant(*window.grant())
        assert (credit.messages, credit.bytes) == (window.messages_left, window.bytes_left)
    for block in under_way:
        if window.settle(*block):
            credit.grant(*window.grant())
    assert credit.open


# --- keepalive


def test_a_session_lapses_after_three_silent_intervals() -> None:
    keepalive = Keepalive(2.0, 10.0)
    assert not keepalive.lapsed(16.0)
    assert keepalive.lapsed(16.1)
    keepalive.heard_at = 16.0
    assert not keepalive.lapsed(20.0)
    assert not Keepalive(0.0, 0.0).lapsed(1e9), "0 is no keepalive"


def test_a_late_timer_ends_no_session() -> None:
    keepalive = Keepalive(1.0, 0.0)
    assert not keepalive.lapsed(100.0, late_s=90.0)
    assert not keepalive.lapsed(101.0)
    assert keepalive.lapsed(103.0)


def test_a_frame_that_cannot_be_packed_leaves_nothing_behind() -> None:
    """The packer is kept from one frame to the next."""
    before = encode(5, b"x", 3)
    with pytest.raises((TypeError, OverflowError)):
        encode(5, b"y", object())
    with pytest.raises((TypeError, OverflowError)):
        encode(5, b"y", 1 << 70)
    assert encode(5, b"x", 3) == before


PACKERS = """
import sys, threading, msgpack
from mesh.wire import link_frames as link, session_frames as session
sys.setswitchinterval(1e-6)
wrong = []
def pack(encode, name):
    for number in range(10_000):
        try:
            if msgpack.unpackb(encode(7, name, number, b"x" * 20)) != [7, name, number, b"x" * 20]:
                raise ValueError("mixed with another thread's")
        except Exception as error:
            wrong.append(repr(error))
threads = [threading.Thread(target=pack, args=(encode, str(n)))
           for n in range(3) for encode in (link.encode, session.encode)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(wrong), wrong[:1])
"""


@pytest.mark.process
def test_threads_do_not_share_a_packer() -> None:
    """Blocking clients in several threads pack at once. Pure-Python msgpack, used where there is no wheel,
    showed the fault."""
    environment = {**os.environ, "MSGPACK_PUREPYTHON": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PACKERS], env=environment, capture_output=True, text=True, timeout=40
    )
    assert (done.stdout.strip(), done.stderr) == ("0 []", "")
