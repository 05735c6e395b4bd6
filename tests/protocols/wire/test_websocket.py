"""WebSocket frames: byte vectors, broken rules, and two real ends whose bytes are carried by hand."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import HandshakeError, MessageTooLarge
from protocols.wire.handshake import Greeting, ProtocolNumber
from protocols.wire.upgrade import AcceptingUpgrade, DiallingUpgrade, Route
from protocols.wire.websocket import FRAGMENT_SIZE, REASON_MAX, WebSocketCodec

PAIR = Greeting.of(ProtocolNumber.PAIR0, ProtocolNumber.PAIR0)
KEY = b"\x37\xfa\x21\x3d"  # of RFC 6455 section 5.7
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True, bits: int = 0
) -> bytes:
    """One frame, as RFC 6455 section 5.2 draws it."""
    size = len(payload)
    short, extended = (
        (size, b"")
        if size < 126
        else (126, struct.pack(">H", size))
        if size < 65536
        else (127, struct.pack(">Q", size))
    )
    head = bytes([fin << 7 | bits | opcode, masked << 7 | short]) + extended
    if not masked:
        return head + payload
    return head + KEY + bytes(byte ^ KEY[at % 4] for at, byte in enumerate(payload))


def frames_of(data: bytes) -> Iterator[tuple[int, bool, int, bool]]:
    """Opcode, fin, payload size and whether it is masked, of whole frames."""
    position = 0
    while position < len(data):
        first, second = data[position : position + 2]
        assert first & 0x70 == 0, "no reserved bits"
        size, head = second & 0x7F, 2
        if size == 126:
            (size,), head = struct.unpack_from(">H", data, position + 2), 4
        elif size == 127:
            (size,), head = struct.unpack_from(">Q", data, position + 2), 10
        masked = second >= 0x80
        yield first & 15, first >= 0x80, size, masked
        position += head + 4 * masked + size
    assert position == len(data)


class Ends:
    """A dialer and a listener, their handshake complete."""

    def __init__(self, size_max: int = 0) -> None:
        route = Route(PAIR, size_max)
        self.dialer = WebSocketCodec(DiallingUpgrade(PAIR, "h:1", "/", size_max))
        self.listener = WebSocketCodec(AcceptingUpgrade(lambda path: route))
        assert self.listener.begin() == b""
        assert self.listener.receive(self.dialer.begin()) == []
        assert self.dialer.receive(taken(self.listener)) == []
        assert self.dialer.peer == self.listener.peer == ProtocolNumber.PAIR0


def taken(codec: WebSocketCodec) -> bytes:
    """The bytes it owes, cleared as by a connection."""
    reply, codec.reply = codec.reply, b""
    return reply


def listener(size_max: int = 0) -> WebSocketCodec:
    return Ends(size_max).listener


def close_code(data: bytes) -> int:
    """The code in this single close frame."""
    ((opcode, _, size, masked),) = frames_of(data)
    assert (opcode, masked) == (CLOSE, False)
    return int(struct.unpack(">H", data[2:4])[0]) if size else 1005


# --- vectors


def test_a_listener_writes_plain_binary_frames() -> None:
    assert b"".join(listener().encode([b"Hello", b""])) == b"\x82\x05Hello\x82\x00"


def test_a_dialer_writes_masked_binary_frames() -> None:
    (data,) = Ends().dialer.encode([b"Hello"])
    assert data[:2] == b"\x82\x85"
    assert bytes(byte ^ data[2 + at % 4] for at, byte in enumerate(data[6:])) == b"Hello"


def test_masks_differ_from_frame_to_frame() -> None:
    (data,) = Ends().dialer.encode([bytes(4)] * 20)
    assert len({data[at : at + 4] for at in range(2, len(data), 10)}) > 15


def test_the_frame_of_the_rfc_is_read() -> None:
    assert listener().receive(bytes.fromhex("8285 37fa213d 7f9f4d5158")) == [b"Hello"]
    assert Ends().dialer.receive(bytes.fromhex("8205 48656c6c6f")) == [b"Hello"]


@pytest.mark.parametrize(
    ("size", "fragments"),
    [
        (0, [0]),
        (125, [125]),
        (126, [126]),
        (65535, [65535]),
        (65536, [65536]),
        (65537, [65536, 1]),
        (131072, [65536, 65536]),
        (200000, [65536, 65536, 65536, 3392]),
    ],
)
def test_large_messages_go_out_in_fragments_of_64_kib(size: int, fragments: list[int]) -> None:
    ends = Ends()
    for sender, receiver, masked in ((ends.dialer, ends.listener, True), (ends.listener, ends.dialer, False)):
        data = b"".join(sender.encode([bytes(size)]))
        assert list(frames_of(data)) == [
            (BINARY if not at else CONTINUATION, at == len(fragments) - 1, each, masked)
            for at, each in enumerate(fragments)
        ]
        assert receiver.receive(data) == [bytes(size)]


def test_a_large_message_is_encoded_while_it_is_written() -> None:
    ends = Ends()
    message = bytes(16 << 20)
    tracemalloc.start()
    for data in ends.dialer.encode([message]):
        assert len(data) <= FRAGMENT_SIZE + 14
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_goodbye_ends_a_large_message_that_is_being_written() -> None:
    end = listener()
    writing = iter(end.encode([bytes(1 << 20)]))
    assert len(next(writing)) > FRAGMENT_SIZE
    end.receive(frame(PING, b"in between"))
    assert taken(end) == frame(PONG, b"in between", masked=False)
    next(writing)
    end.receive(frame(CLOSE))
    assert list(writing) == []


# --- rules


def test_fragments_are_put_together_around_control_frames() -> None:
    end = listener()
    sent = (
        frame(BINARY, b"a", fin=False)
        + frame(PING, b"between")
        + frame(CONTINUATION, b"", fin=False)
        + frame(CONTINUATION, b"b", fin=False)
        + frame(PONG, b"unasked")
        + frame(CONTINUATION, b"c")
        + frame(BINARY, b"next")
    )
    assert end.receive(sent) == [b"abc", b"next"]
    assert taken(end) == frame(PONG, b"between", masked=False)


def test_a_ping_is_answered_and_several_by_one_pong_to_the_last() -> None:
    end = listener()
    end.receive(frame(PING))
    assert taken(end) == frame(PONG, masked=False)
    end.receive(b"".join(frame(PING, b"%d" % number) for number in range(1000)))
    assert taken(end) == frame(PONG, b"999", masked=False)
    dialer = Ends().dialer
    dialer.receive(frame(PING, b"x", masked=False))
    assert list(frames_of(taken(dialer))) == [(PONG, True, 1, True)]


@pytest.mark.parametrize("payload", [b"", struct.pack(">H", 1000), struct.pack(">H", 4000) + b"enough"])
def test_a_close_is_answered_with_its_code_and_ends_the_stream(payload: bytes) -> None:
    end = listener()
    assert end.receive(frame(BINARY, b"last") + frame(CLOSE, payload) + frame(BINARY, b"late")) == [b"last"]
    assert end.ended and end.failure is None and not end.inside_frame
    assert close_code(taken(end)) == (int.from_bytes(payload[:2]) if payload else 1005)
    assert end.receive(frame(BINARY, b"later")) == [] and taken(end) == b""
    assert list(end.encode([b"too late"])) == [] and end.end() == b""


def test_our_own_close_has_code_normal_and_its_echo_is_no_fault() -> None:
    ends = Ends()
    goodbye = ends.listener.end()
    assert close_code(goodbye) == 1000
    assert ends.dialer.receive(goodbye) == [] and ends.dialer.ended
    assert ends.listener.receive(taken(ends.dialer)) == []
    assert ends.listener.ended and ends.listener.failure is None and taken(ends.listener) == b""


def test_a_ping_behind_our_own_close_is_not_answered() -> None:
    end = listener()
    end.end()
    end.receive(frame(PING, b"still there?"))
    assert taken(end) == b"" and end.failure is None


@pytest.mark.parametrize(
    ("sent", "code", "reason"),
    [
        (frame(TEXT, b"hello"), 1003, "text message"),
        (frame(TEXT, b"hel", fin=False), 1003, "text message"),
        (frame(BINARY, b"plain", masked=False), 1002, "bad frame"),
        (frame(BINARY, bits=0x40), 1002, "bad frame"),
        (frame(BINARY, bits=0x20), 1002, "bad frame"),
        (frame(BINARY, bits=0x10), 1002, "bad frame"),
        (frame(PING, bits=0x40), 1002, "bad frame"),
        (frame(3), 1002, "bad frame"),
        (frame(11), 1002, "bad frame"),
        (frame(CONTINUATION, b"of nothing"), 1002, "bad frame"),
        (frame(BINARY, fin=False) + frame(BINARY), 1002, "bad frame"),
        (frame(PING, fin=False), 1002, "bad frame"),
        (frame(PING, bytes(126)), 1002, "bad frame"),
        (frame(CLOSE, b"x"), 1002, "bad frame"),
        (frame(CLOSE, struct.pack(">H", 999)), 1002, "bad frame"),
        (frame(CLOSE, struct.pack(">H", 1005)), 1002, "bad frame"),
        (frame(CLOSE, struct.pack(">H", 1000) + b"\xff"), 1007, "bad frame"),
        (b"\x82\xfe\x00\x05", 1002, "bad frame"),
        (b"\x82\xff" + struct.pack(">Q", 5), 1002, "bad frame"),
        (b"\x82\xff" + struct.pack(">Q", 1 << 63), 1002, "bad frame"),
    ],
)
def test_a_broken_rule_costs_the_stream_after_a_close_frame(sent: bytes, code: int, reason: str) -> None:
    for size_max in (0, 1000):
        end = listener(size_max)
        assert end.receive(frame(BINARY, b"before") + sent + frame(BINARY, b"behind")) == [b"before"]
        assert end.failure is not None and not isinstance(end.failure, HandshakeError)
        assert end.failure.reason == reason
        assert close_code(taken(end)) == code
        assert end.receive(frame(BINARY, b"later")) == [] and end.end() == b""


def test_a_listener_may_not_mask() -> None:
    dialer = Ends().dialer
    assert dialer.receive(frame(BINARY, b"x")) == []
    assert dialer.failure is not None and CLOSE == next(frames_of(taken(dialer)))[0]


@pytest.mark.parametrize(
    ("sent", "size"),
    [
        (b"\x82\xff" + struct.pack(">Q", (1 << 63) - 1), (1 << 63) - 1),
        (b"\x82\xfe" + struct.pack(">H", 1001), 1001),
        (frame(BINARY, bytes(600), fin=False) + b"\x00\xfe" + struct.pack(">H", 401), 1001),
        (frame(BINARY, bytes(1000), fin=False) + frame(PING) + frame(CONTINUATION, b"x"), 1001),
    ],
)
def test_a_message_above_the_limit_is_refused_by_the_head_of_the_frame_that_exceeds_it(
    sent: bytes, size: int
) -> None:
    end = listener(1000)
    assert end.receive(sent) == []
    assert isinstance(end.failure, MessageTooLarge) and end.failure.size == size
    said = taken(end)
    assert close_code(said) == 1009
    assert said[4:].decode() == str(end.failure), "the peer learns the limit"


def test_the_end_that_sent_too_much_learns_the_limit() -> None:
    ends = Ends(1000)
    (sent,) = ends.dialer.encode([bytes(1001)])
    ends.listener.receive(sent)
    assert ends.dialer.receive(taken(ends.listener)) == []
    assert ends.dialer.ended
    assert ends.dialer.last_words == (
        "1009 a message of 1001 bytes is above the limit of 1000 (recv_size_max)"
    )


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", ""),
        (struct.pack(">H", 1000) + b"bye", ""),
        (struct.pack(">H", 1001), ""),
        (struct.pack(">H", 1009), "1009 message too big"),
        (struct.pack(">H", 3000), "3000"),
        (struct.pack(">H", 1011) + "\x1b[2Jschön".encode(), "1011 ?[2Jschön"),
        (struct.pack(">H", 4999) + b"x" * 123, "4999 " + "x" * 123),
    ],
)
def test_the_reason_of_a_peers_close_is_kept(payload: bytes, words: str) -> None:
    end = listener()
    end.receive(frame(CLOSE, payload))
    assert end.ended and end.last_words == words


@given(st.text(max_size=300))
def test_a_sentence_of_any_length_fits_into_a_close_frame(sentence: str) -> None:
    ends = Ends(10)
    said = ends.listener._say_close(1011, sentence)
    assert len(said) <= 2 + 2 + REASON_MAX
    ends.dialer.receive(said)
    assert ends.dialer.ended and ends.dialer.failure is None


def test_messages_of_exactly_the_limit_are_accepted_repeatedly() -> None:
    end = listener(1000)
    parts = frame(BINARY, bytes(600), fin=False) + frame(PING, bytes(100)) + frame(CONTINUATION, bytes(400))
    assert end.receive((parts + frame(BINARY, bytes(1000))) * 3) == [bytes(1000)] * 6
    assert end.failure is None


def test_an_announced_message_takes_no_memory_and_fragments_of_one_byte_only_theirs() -> None:
    announced, dripping = listener(), listener(1 << 20)
    drops = frame(BINARY, b"x", fin=False) + frame(CONTINUATION, b"x", fin=False) * 10_000
    tracemalloc.start()
    announced.receive(b"\x82\xff" + struct.pack(">Q", 1 << 40) + KEY + b"some bytes")
    assert tracemalloc.get_traced_memory()[1] < 100_000
    assert dripping.receive(drops) == []
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert dripping.failure is None and kept < 100_000
    assert announced.inside_frame and dripping.inside_frame


def test_the_stream_may_end_between_messages_only() -> None:
    end = listener()
    whole = frame(BINARY, bytes(200), fin=False) + frame(PING, b"p") + frame(CONTINUATION, bytes(70_000))
    assert not end.inside_frame
    edge = len(frame(BINARY, bytes(200)))
    for at in [*range(1, 20), edge - 1, edge, edge + 1, edge + 7, edge + 8, len(whole) - 1]:
        end = listener()
        assert end.receive(whole[:at]) == []
        assert end.inside_frame, at
        assert end.receive(whole[at:]) == [bytes(70_200)]
        assert not end.inside_frame, at


# --- two ends

MESSAGES = st.lists(
    st.one_of(
        st.binary(max_size=300),
        st.sampled_from([125, 126, 65535, 65536, 65537, 150_000]).map(lambda size: b"\xa5" * size),
    ),
    max_size=12,
)


CHUNKS: Final = 500
"""After so many small chunks of one stream the others are larger: a megabyte byte by byte takes seconds."""


def chunks(data: bytes, sizes: list[int]) -> Iterator[memoryview]:
    """The data in pieces of these sizes, over and over, each overwritten after its use."""
    position = number = 0
    while position < len(data):
        size = sizes[number % len(sizes)] * (1 if number < CHUNKS else 100)
        buffer = bytearray(data[position : position + size])
        yield memoryview(buffer)
        buffer[:] = bytes(len(buffer))
        position += size
        number += 1


@given(MESSAGES, st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.booleans())
@settings(max_examples=60, deadline=None)
def test_messages_cross_in_any_chunks(messages: list[bytes], sizes: list[int], dialled: bool) -> None:
    ends = Ends(size_max=200_000)
    sender, receiver = (ends.dialer, ends.listener) if dialled else (ends.listener, ends.dialer)
    first, rest = b"".join(sender.encode(messages[:5])), b"".join(sender.encode(messages[5:])) + sender.end()
    received = [message for chunk in chunks(first, sizes) for message in receiver.receive(chunk)]
    assert not receiver.inside_frame
    received += [message for chunk in chunks(rest, sizes) for message in receiver.receive(chunk)]
    assert received == messages
    assert receiver.failure is None and receiver.ended and not receiver.inside_frame
    assert all(opcode in (BINARY, CONTINUATION, CLOSE) for opcode, *_ in frames_of(first + rest)), (
        "never a ping"
    )


@given(st.lists(st.integers(1, 400), min_size=1, max_size=10), st.binary(min_size=1, max_size=100))
def test_the_handshake_and_the_first_messages_may_come_in_any_chunks(sizes: list[int], body: bytes) -> None:
    dialer = WebSocketCodec(DiallingUpgrade(PAIR, "h", "/", 0))
    end = WebSocketCodec(AcceptingUpgrade(lambda path: Route(PAIR, 0)))
    early = dialer.begin() + frame(BINARY, body)  # a peer that does not wait for our answer
    assert [got for chunk in chunks(early, sizes) for got in end.receive(chunk)] == [body]
    answer = taken(end) + frame(BINARY, body, masked=False)
    assert [got for chunk in chunks(answer, sizes) for got in dialer.receive(chunk)] == [body]


@given(st.binary(max_size=400), st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_no_bytes_make_an_open_stream_raise(noise: bytes, sizes: list[int]) -> None:
    for end in (listener(1000), Ends(1000).dialer):
        for chunk in chunks(noise, sizes):
            assert all(len(message) <= 1000 for message in end.receive(chunk))
        if end.failure is not None:
            assert CLOSE in [opcode for opcode, *_ in frames_of(end.reply)]


def test_a_failed_handshake_has_its_error_and_sends_its_refusal() -> None:
    end = WebSocketCodec(AcceptingUpgrade(lambda path: None))
    dialer = WebSocketCodec(DiallingUpgrade(PAIR, "h", "/gone", 0))
    assert end.receive(dialer.begin()) == [] and end.peer == 0
    assert isinstance(end.failure, HandshakeError) and end.failure.reason == "websocket: path"
    assert dialer.receive(taken(end)) == []
    assert isinstance(dialer.failure, HandshakeError) and "404 Not Found" in str(dialer.failure)
    assert dialer.end() == end.end() == b""
    assert list(end.encode([b"nobody"])) == []
