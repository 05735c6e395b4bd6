"""Invariants for any bytes, one function for each decoder.

A target takes one input and raises `AssertionError` (or lets through whatever a decoder raised) if a rule is
broken; it returns nothing and keeps nothing. The same functions are replayed over the corpus by plain pytest
and are driven by the coverage-guided fuzzer, so they import neither.

An input begins with a *control* byte or two, which choose among variants, so that one corpus covers them all.
"""

from __future__ import annotations

import base64
import hashlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from mesh.errors import BlockError, LinkError, SessionError, TopicError
from mesh.topics import check_pattern, check_topic
from mesh.wire import blocks
from mesh.wire import link_frames as link
from mesh.wire import session_frames as session
from protocols.errors import AddressError, HandshakeError, RemoteProtocolError
from protocols.transports import registry
from protocols.wire import backtrace, framing
from protocols.wire.codec import Codec
from protocols.wire.handshake import HEADER_SIZE, PEER_OF, Greeting, ProtocolNumber, encode_header
from protocols.wire.sp import SpCodec
from protocols.wire.tls import TlsCodec
from protocols.wire.upgrade import AcceptingUpgrade, DiallingUpgrade, Route
from protocols.wire.websocket import WebSocketCodec

Target = Callable[[bytes], None]

# --- codecs: whatever the chunking, the same


@dataclass(frozen=True, slots=True)
class Reading:
    """The outcome of a stream."""

    frames: list[bytes]
    peer: int
    failure: str
    reason: str
    inside_frame: bool
    ended: bool
    reply: bytes


def chunkings(data: bytes, seed: int) -> Iterator[list[bytes]]:
    """The stream whole, byte by byte, and in pieces of sizes that decoders care about."""
    yield [data]
    yield [data[i : i + 1] for i in range(len(data))]
    rng = random.Random(seed)
    pieces, start = [], 0
    while start < len(data):
        size = rng.choice((1, 2, 7, 8, 9, 10, 30, 100, 1000))
        pieces.append(data[start : start + size])
        start += size
    yield pieces


def read(codec: Codec, chunks: Sequence[bytes], own: int = 64) -> Reading:
    """Feed a codec from one buffer that is overwritten after every chunk, as the stream's buffer is.

    ``own`` is how many bytes a codec may hold that the peer has not sent.
    """
    frames: list[bytes] = []
    replies = b""
    heard = 0
    for chunk in chunks:
        buffer = bytearray(chunk)
        failed = codec.failure
        arrived = codec.receive(memoryview(buffer))
        buffer[:] = b"\xa5" * len(buffer)
        heard += len(chunk)
        assert failed is None or not arrived, "frames after a failure"
        assert codec.failure is failed or failed is None, "a failure was replaced"
        frames += arrived
        replies += codec.reply
        codec.reply = b""
        if len(chunks) < 32 or heard % 32 == 0:  # it costs more than all the rest
            assert retained(codec) <= heard + own, f"{retained(codec)} bytes are kept of {heard}"
        assert codec.progress(), "a handshake always got somewhere"
    failure = codec.failure
    assert failure is None or isinstance(failure, RemoteProtocolError)
    assert failure is None or codec.peer or isinstance(failure, HandshakeError), "of before the handshake"
    assert not frames or codec.peer, "frames before the handshake"
    assert all(type(frame) is bytes for frame in frames)
    return Reading(
        frames,
        codec.peer,
        str(failure or ""),
        failure.reason if failure else "",
        codec.inside_frame if failure is None else False,
        codec.ended,
        replies,
    )


KNOWN = ("protocols.", "wsproto.", "h11.")


def retained(thing: Any, depth: int = 6) -> int:
    """Bytes of the peer's that an object holds, the objects it is made of included."""
    if isinstance(thing, (bytes, bytearray, memoryview)):
        return len(thing)
    if isinstance(thing, (list, tuple)):
        return sum(retained(item, depth) for item in thing)
    if not depth or not type(thing).__module__.startswith(KNOWN):
        return 0
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    names += list(getattr(thing, "__dict__", ()))
    return sum(retained(getattr(thing, name, None), depth - 1) for name in names)


def read_every_way(make: Callable[[], Codec], stream: bytes, seed: int) -> Reading:
    """The codec's result for the stream, which must be the same however the stream is cut."""
    readings = [read(make(), chunks) for chunks in chunkings(stream, seed)]
    for reading in readings[1:]:
        assert reading == readings[0], f"the chunking changed {readings[0]} to {reading}"
    return readings[0]


# --- the plain stream

LIMITS: Final = (0, 1, 64, 1 << 20)


def sp(data: bytes) -> None:
    """Handshake and frames, against the slow and obvious reading of the same rules."""
    if len(data) < 2:
        return
    control, seed, stream = data[0], data[1], data[2:]
    lead = framing.IPC_LEAD if control & 1 else framing.TCP_LEAD
    limit = LIMITS[control >> 1 & 3]
    waits = bool(control & 8)
    serves = {0x31: 0x30, 0x63: 0x62} if waits else {0x31: 0x30}
    if control & 16:  # straight to the frames: a header is eight bytes of luck
        stream = encode_header(0x31) + stream
    greeting = Greeting(serves, wait=waits)
    reading = read_every_way(lambda: SpCodec(greeting, limit, lead), stream, seed)
    expected = read_slowly(stream, serves, lead, limit)
    assert (reading.peer, reading.frames, bool(reading.failure), reading.inside_frame) == expected
    assert reading.reply == (encode_header(serves[reading.peer]) if waits and reading.peer else b"")
    again = encode_header(0x31) + b"".join(SpCodec(greeting, 0, lead).encode(reading.frames))
    if reading.frames:
        back = read_every_way(lambda: SpCodec(greeting, limit, lead), again, seed)
        assert back.frames == reading.frames, "what was read cannot be written and read again"


def read_slowly(
    stream: bytes, serves: dict[int, int], lead: bytes, limit: int
) -> tuple[int, list[bytes], bool, bool]:
    """(peer, frames, whether a rule was broken, whether it ends inside a frame)."""
    header, rest = stream[:HEADER_SIZE], stream[HEADER_SIZE:]
    if len(header) < HEADER_SIZE:
        return 0, [], False, False
    peer = int.from_bytes(header[4:6], "big")
    if header[:4] != b"\x00SP\x00" or header[6:] != b"\x00\x00" or peer not in serves:
        return 0, [], True, False
    frames = []
    while len(rest) >= len(lead) + 8:
        size = int.from_bytes(rest[len(lead) : len(lead) + 8], "big")
        if rest[: len(lead)] != lead or (limit and size > limit):
            return peer, frames, True, False
        rest = rest[len(lead) + 8 :]
        if len(rest) < size:
            return peer, frames, False, True
        frames.append(rest[:size])
        rest = rest[size:]
    return peer, frames, False, bool(rest)


@contextmanager
def low_thresholds() -> Iterator[None]:
    """Let inputs of some hundred bytes reach the decoder's ways for large frames and long runs."""
    large, run_after = framing._LARGE, framing._RUN_AFTER
    framing._LARGE, framing._RUN_AFTER = 48, 3  # type: ignore[misc]
    try:
        yield
    finally:
        framing._LARGE, framing._RUN_AFTER = large, run_after  # type: ignore[misc]


REASONS: Final = (
    "",
    "not SP",
    "TLS on a plain address",
    "HTTP on an SP address",
    "version",
    "reserved field",
    "wrong protocol",
    "too large",
)


def handshake(data: bytes) -> None:
    """Any header for any pattern: refused with one of the few reasons that are counted, or served."""
    if len(data) < 2:
        return
    protocols = list(ProtocolNumber)
    own = protocols[data[0] % len(protocols)]
    peer = int(PEER_OF[own])
    reading = read_every_way(lambda: SpCodec(Greeting.of(own, peer), 64, b""), data[2:], data[1])
    assert reading.peer in (0, peer)
    assert reading.peer == 0 or data[2:10] == encode_header(peer)
    assert reading.reason in REASONS


# --- WebSocket

WS_LIMITS: Final = (0, 100)
ACCEPT: Final = b"{accept}"
"""Stands in an input for the digest of the nonce that a dialer has just drawn."""
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_OPENING: Final = (
    b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
    b"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: "
    b"pair.sp.nanomsg.org\r\n\r\n"
)
_ANSWER: Final = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: pair.sp.nanomsg.org\r\n\r\n"
)


def websocket(data: bytes) -> None:
    """Either side: opening and frames. Replies are not compared: pings of one chunk share a pong."""
    if len(data) < 2:
        return
    control, seed, stream = data[0], data[1], data[2:]
    dials, limit = bool(control & 1), WS_LIMITS[control >> 1 & 1]
    if control & 4:  # straight to the frames
        stream = (_ANSWER if dials else _OPENING) + stream
    readings = []
    for way in range(3):
        codec = websocket_end(dials, limit)
        own = codec.begin()
        bytes_in = stream.replace(ACCEPT, digest(own)) if dials else stream
        reading = read(codec, list(chunkings(bytes_in, seed))[way], own=8192)
        readings.append(replace(reading, reply=b"", failure=""))  # it quotes what had come
        assert all(limit == 0 or len(frame) <= limit for frame in reading.frames)
        b"".join(codec.encode(reading.frames)), codec.end(), codec.end()
    assert readings[0] == readings[1] == readings[2], readings
    if readings[0].frames:
        write_and_read_again(readings[0].frames, dials, limit)


def write_and_read_again(frames: list[bytes], dials: bool, limit: int) -> None:
    """Everything that one end reads, it can write, and the other end reads the same."""
    dialer, listener = websocket_end(True, limit), websocket_end(False, limit)
    listener.receive(dialer.begin())
    dialer.receive(listener.reply)
    writer, reader = (dialer, listener) if dials else (listener, dialer)
    assert reader.receive(b"".join(writer.encode(frames))) == frames


def websocket_end(dials: bool, limit: int) -> WebSocketCodec:
    greeting = Greeting.of(ProtocolNumber.PAIR0, ProtocolNumber.PAIR0)
    if dials:
        return WebSocketCodec(DiallingUpgrade(greeting, "h", "/", limit))
    route = Route(greeting, limit)
    return WebSocketCodec(AcceptingUpgrade(lambda path: route if path == "/" else None))


def digest(request: bytes) -> bytes:
    found = re.search(rb"Sec-WebSocket-Key: (\S+)", request)
    assert found is not None
    return base64.b64encode(hashlib.sha1(found[1] + _GUID).digest())


# --- TLS


def tls(data: bytes) -> None:
    """A TLS stream with bytes of it replaced, at any time: nothing is read that was not sent so.

    The control byte selects the end that gets invalid bytes, and its number of valid flights before. The next
    two bytes give the place of the rest of the input in that flight.
    """
    if len(data) < 4:
        return
    control, place, lie = data[0], int.from_bytes(data[1:3], "big"), data[3:]
    ends = tls_ends()
    victim, honest = control & 1, control >> 1 & 7
    sent = [b"one", b"", b"x" * 300]
    flights = [ends[1].begin(), ends[0].begin()]
    spoken = False
    for flight in range(12):
        listener = flight % 2
        bytes_in, flights[listener] = flights[listener], b""
        if not bytes_in and flight > 6:
            break
        if listener == victim and flight // 2 >= honest:
            place %= len(bytes_in) + 1
            bytes_in = bytes_in[:place] + lie + bytes_in[place + len(lie) :]
        codec = ends[listener]
        frames = read_tls(codec, bytes_in, data[3])
        assert frames == sent[: len(frames)], "something was read that nobody said"
        if codec.peer and not spoken and listener != victim and codec.failure is None:
            spoken = True
            codec.reply += b"".join(codec.encode(sent))
        flights[1 - listener] += codec.reply
        codec.reply = b""
    for codec in ends:
        assert codec.failure is None or codec.failure.reason
        assert codec.failure is None or codec.peer or isinstance(codec.failure, HandshakeError)
        codec.end()


def read_tls(codec: TlsCodec, stream: bytes, seed: int) -> list[bytes]:
    frames = []
    for chunk in list(chunkings(stream, seed))[2]:
        frames += codec.receive(memoryview(chunk))
        assert codec.progress()
    return frames


@cache
def tls_contexts() -> tuple[Any, Any]:
    from protocols.transports.certificates import client_context, server_context
    from tests.support.certificates import config, local

    return server_context(config(local())), client_context(config())


def tls_ends() -> tuple[TlsCodec, TlsCodec]:
    """A listener and a dialer."""
    listening, dialling = tls_contexts()
    greeting = Greeting.of(ProtocolNumber.PAIR0, ProtocolNumber.PAIR0)
    return (
        TlsCodec(SpCodec(greeting, 1000, b""), listening, server_side=True),
        TlsCodec(SpCodec(greeting, 1000, b""), dialling, server_side=False, server_name="127.0.0.1"),
    )


# --- backtraces


def words(data: bytes) -> None:
    """The start of a body, compared with the obvious way to find it."""
    if not data:
        return
    ttl, frame = data[0], data[1:]
    found = backtrace.split(frame, ttl)
    expected = backtrace.OVER_TTL
    for place in range(ttl):
        word = frame[4 * place : 4 * place + 4]
        if len(word) < 4:
            expected = backtrace.MALFORMED
            break
        if word[0] & 0x80:
            expected = 4 * place + 4
            break
    assert found == expected, f"{found} instead of {expected}"
    pushed = backtrace.push(frame, ttl << 8)
    assert backtrace.pop(pushed) == (ttl << 8, frame)
    if found > 0 and ttl < backtrace.TTL_MAX:
        assert backtrace.split(pushed, ttl + 1) == found + 4
    assert (backtrace.peek(frame) == backtrace.MALFORMED) == (len(frame) < 4)


# --- what a user writes


def urls(data: bytes) -> None:
    """A URL is understood or refused with a sentence; asking twice gives the same."""
    text = data.decode("utf-8", "surrogateescape")
    for ask in (registry.check_url, registry.check_dialable, registry.is_wildcard):
        answers = [_asked(ask, text) for _ in range(2)]
        assert answers[0] == answers[1]
    if isinstance(_asked(registry.check_dialable, text), str):
        assert _asked(registry.check_url, text) == text, "dialled but not checked"
        assert _asked(registry.is_wildcard, text) is False, "a wildcard is not dialled"


def _asked(ask: Callable[[str], object], text: str) -> object:
    try:
        return ask(text)
    except AddressError as error:
        assert len(str(error)) > 10, "a sentence, not a word"
        return ("refused", str(error))


def topics(data: bytes) -> None:
    """Topics and patterns are sound or refused; a sound topic is a pattern that wants itself."""
    from mesh.topics import matches

    text = data.decode("utf-8", "surrogateescape")
    topic = _sound(check_topic, text)
    pattern = _sound(check_pattern, text)
    if topic is not None:
        assert topic == text.encode("ascii") and len(topic) <= 255
        assert pattern == text and matches(text, text)


def _sound(check: Callable[[str], Any], text: str) -> Any:
    try:
        return check(text)
    except TopicError as error:
        assert len(str(error)) > 10
        return None


# --- the mesh's own frames


def client_session(data: bytes) -> None:
    """Frames between clients and brokers: read whole, written again and read the same, or refused."""
    if not data:
        return
    frame, start = data[1:], data[0] % 4
    start = min(start, len(frame))
    try:
        kind = session.kind_of(frame, start)
    except SessionError:
        return
    try:
        if kind == session.Kind.DATA:
            head = session.read_data(frame, start)
            rest = frame[start + session.DATA_SIZE :]
            assert session.read_data(session.data_head(*head, len(rest)) + rest) == head
            _block(rest)
        else:
            fields = session.decode(frame, start)
            assert session.decode(session.encode(*fields)) == fields
    except (SessionError, BlockError) as error:
        assert len(str(error)) > 10


def broker_link(data: bytes) -> None:
    """Frames between brokers: decoded to checked fields, or refused with a sentence."""
    try:
        fields = link.decode(data)
    except LinkError as error:
        assert len(str(error)) > 10
        return
    assert fields[0] == link.LinkKind(fields[0]) and len(fields) > len(link.LAYOUTS[fields[0]])


def block(data: bytes) -> None:
    """Blocks of messages: what `check` passes can be opened, and the parts add up to the whole."""
    try:
        _block(data)
    except BlockError as error:
        assert len(str(error)) > 10


def _block(data: bytes) -> None:
    blocks.check(data, 0)
    opened = blocks.open_block(data)  # raises BlockError only for what `check` refused before
    headers = opened.headers or []
    assert sum(map(len, opened.bodies)) + sum(map(len, headers)) <= len(data)
    assert opened.headers is None or len(headers) == len(opened.bodies)
    blocks.check_headers(data, 0)
    for encoded in headers:
        unpacked = blocks.unpack_headers(encoded)
        assert repr(blocks.unpack_headers(blocks.pack_headers(unpacked))) == repr(unpacked or None)
    if not opened.whole_size:
        again = blocks.seal(
            opened.topic,
            opened.bodies,
            publisher=opened.publisher,
            boot=opened.boot,
            sequence=opened.sequence,
            level=opened.level,
            headers=opened.headers,
        )
        assert list(blocks.open_block(again).bodies) == list(opened.bodies)


def load_all() -> None:
    """Import now what a target would import when first called: only what is loaded early is instrumented."""
    tls_contexts()


TARGETS: Final[dict[str, Target]] = {
    "sp": sp,
    "handshake": handshake,
    "websocket": websocket,
    "tls": tls,
    "words": words,
    "urls": urls,
    "topics": topics,
    "session": client_session,
    "link": broker_link,
    "block": block,
}
