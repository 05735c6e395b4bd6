"""The frames that two Mangrove programs exchange over a duplex pipe, their strict reader, and credit.

A session frame is a msgpack array. So its first byte is 0x90 to 0x9f, with which no stock ``topic payload``
begins. Its second byte is the kind, a positive fixint. Kinds 0 to 31 are below. Kinds 32 to 63 are the
brokers' link frames (`mesh.wire.link_frames`) on the same pipe. Kinds from 64 on are those of level stored
(`mesh.wire.durable_frames`). Clients carry sessions over raw Req/Rep behind an SP backtrace, brokers over a
Bus pipe.

The course of a client's session::

    client                               broker
    HELLO   ---------------------------> a second HELLO on the same backtrace begins a new session
            <--------------------------- CHALLENGE   if HELLO names what the client can prove
    PROVE   ---------------------------> that it can
            <--------------------------- WELCOME     what both speak, and the first credit for publishing
    SUBSCRIBE -------------------------> with the first credit for delivery; PATTERNS frames before it if long
            <--------------------------- SUBSCRIBED  once every live broker knows (the barrier)
                                         UNSUBSCRIBED  if it is above a limit
    DATA    ---------------------------> routed;     ACK for blocks of level accepted, REFUSED if not taken
            <--------------------------- CREDIT      when the blocks have left the broker's queues
            <--------------------------- DATA        one frame for each subscription that wants the block
    CREDIT  --------------------------->             when the application has taken them
            <--------------------------- INTERRUPTED  some may be missing: the broker was apart from others
            <--------------------------- ADDRESSES   where clients find the other live brokers
    REQUEST ---------------------------> ASK to one subscriber that answers; its ANSWER comes back as REPLY
    SURVEY  ---------------------------> ASK to all of them; REPLY for each answer, then SURVEYED
            <--------------------------- GOAWAY      the broker is about to leave
    MOVED   --------------------------->             the client is at another broker; the rest comes, then BYE
    PING    ---------------------------> PONG; any frame counts as life
    BYE     <--------------------------> ends the session in order; ERROR ends it for a broken rule

Brokers use DATA and CREDIT in the same way, and carry requests and surveys by FORWARD, ASKED, RETURN and
LONGER. If both have the capability, each begins a link with RECEIVED: the number of messages that it has
received from the other over earlier links.

**Credit** is counted in messages and bytes of blocks. The sender keeps a `SendCredit`, the receiver a
`ReceiveWindow`, and both count alike. While both numbers are above zero, one block may overdraw them. A block
sent at zero or below breaks the rule and costs the session. A receiver gives credit back by the quarter
window.

**Strictness.** Every frame has a fixed list of typed fields (`LAYOUTS`). `decode` refuses a missing or wrong
one with a `SessionError` that names it. It leaves out further fields, which a later version may have added;
`mesh.wire.session_opening` reads those of HELLO and WELCOME. DATA is the exception in form, not in
strictness. `DATA_HEAD` is a msgpack prefix of fixed width (array of 3, kind, 16 bytes of binary head, then
the block as binary), read by one ``Struct`` call.

This module is pure.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final

import msgpack
import msgspec

from mesh.errors import CreditExceeded, SessionError
from mesh.wire import durable_frames
from mesh.wire.blocks import HEADERS_MAX
from mesh.wire.durable_frames import Durable
from mesh.wire.fields import (
    Check,
    FieldError,
    Layout,
    binary,
    binary_up_to,
    list_of,
    number,
    read_fields,
    shown,
    text,
)

MESSAGES_MAX: Final = 1 << 31
"""Most credit, in messages, that may be outstanding."""
BYTES_MAX: Final = 1 << 40
BODY_MAX: Final = 960_000
"""Largest body of a request, survey or answer. These travel whole, in one frame below a socket's receive
limit."""
LIST_MAX: Final = 65536
SUBSCRIPTIONS_MAX: Final = 4096
"""Most subscriptions of one session."""
PATTERNS_BYTES: Final = 60_000
"""Bytes of patterns in one frame, as our clients send them: such a frame fits one read of 64 KiB."""
TIMEOUT_MAX_S: Final = 4_000_000.0
"""Longest time that a frame can carry, 46 days; longer ones are cut to it."""
NAME_MAX: Final = 255
ADDRESSES_MAX: Final = 32
"""Most addresses of other brokers in one frame."""
ADDRESS_SIZE_MAX: Final = 255
NONCE_SIZE: Final = 32
PROOF_MAX: Final = 64


class Kind(IntEnum):
    """Second byte of a session frame."""

    HELLO = 0
    WELCOME = 1
    SUBSCRIBE = 2
    SUBSCRIBED = 3
    UNSUBSCRIBE = 4
    DATA = 5
    CREDIT = 6
    ACK = 7
    REFUSED = 8
    REQUEST = 9
    REPLY = 10
    SURVEY = 11
    SURVEYED = 12
    ASK = 13
    ANSWER = 14
    EXTEND = 15
    PING = 16
    PONG = 17
    ERROR = 18
    BYE = 19
    PATTERNS = 20
    UNSUBSCRIBED = 21
    INTERRUPTED = 22
    ADDRESSES = 23
    FORWARD = 24
    ASKED = 25
    RETURN = 26
    LONGER = 27
    RECEIVED = 28
    CHALLENGE = 29
    PROVE = 30
    LEAVING = 31


KIND_MAX: Final = 31

# Kinds as plain ints: an IntEnum look-up on the path of every block would cost as much as reading its head.
DATA: Final = int(Kind.DATA)
CREDIT: Final = int(Kind.CREDIT)


class Leaving(IntEnum):
    """The message of a LEAVING frame. Its number and reason are 0 and empty unless a meaning is given
    here."""

    GOAWAY = 0
    """Broker to client: it is about to leave, and serves for this many milliseconds more."""
    MOVED = 1
    """Client to broker: it is at another broker."""
    MARK = 2
    """Broker to broker: send this number back behind all frames that wait."""
    MARKED = 3
    """Broker to broker: the number of a MARK, sent back."""


class Role(IntEnum):
    """The use of a subscription."""

    LISTEN = 0
    ANSWERS = 1
    """It listens too, and also gets requests and surveys."""


class Status(IntEnum):
    """How a request or an answer ended."""

    OK = 0
    DROPPED = 1
    """The subscriber refused to answer; the body is its reason."""
    NO_RESPONDERS = 2
    GONE = 3
    """The program that was asked disappeared before it answered: it may or may not have acted."""
    TIMEOUT = 4


class Receipt(msgspec.Struct, frozen=True):
    """A success: the level that was reached, and by whom."""

    level: str
    broker: str
    """Name of the acknowledging broker; empty for level sent before any broker was reached."""
    seq: int
    """Sequence number of the first message; 0 for level sent (blocks are numbered when they are sealed)."""
    count: int = 1
    absent: tuple[str, ...] = ()
    """Live brokers that could not be reached, or whose interest was not known at that time."""
    homes: tuple[str, ...] = ()
    """At level stored: brokers that keep it on disk for durable subscriptions."""


# --- fields


def _ranges(name: str, value: Any) -> list[list[int]]:
    if type(value) is list and all(
        type(pair) is list
        and len(pair) == 2
        and type(pair[0]) is int
        and type(pair[1]) is int
        and 0 <= pair[0] <= pair[1] < 1 << 63
        for pair in value
    ):
        return value
    raise FieldError(f"field {name} is {shown(value)}, expected a list of pairs [first, last]")


_id = number((1 << 63) - 1)
_small = number((1 << 32) - 1)
_milliseconds = number(1 << 32)
_messages = number(MESSAGES_MAX)
_bytes = number(BYTES_MAX)
_text = text(NAME_MAX)
_texts = list_of(_text, LIST_MAX)
_body = binary_up_to(BODY_MAX)
_packed = binary_up_to(HEADERS_MAX)

_ASKING: Final = (("topic", _text), ("body", _body), ("headers", _packed), ("timeout_ms", _milliseconds))

LAYOUTS: Final[dict[int, Layout]] = {
    Kind.HELLO: (
        ("version", _small),
        ("client", _id),
        ("boot", _id),
        ("name", _text),
        ("keepalive_ms", _milliseconds),
    ),
    Kind.WELCOME: (
        ("version", _small),
        ("broker", _id),
        ("broker_name", _text),
        ("mesh", _text),
        ("session", _id),
        ("messages", _messages),
        ("bytes", _bytes),
    ),
    Kind.SUBSCRIBE: (
        ("number", _small),
        ("patterns", _texts),
        ("role", number(1)),
        ("messages", _messages),
        ("bytes", _bytes),
    ),
    Kind.SUBSCRIBED: (("number", _small), ("unreached", _texts)),
    Kind.UNSUBSCRIBE: (("number", _small),),
    Kind.CREDIT: (("number", _small), ("messages", _messages), ("bytes", _bytes)),
    Kind.ACK: (("level", number(255)), ("ranges", _ranges), ("absent", _texts)),
    Kind.REFUSED: (("ranges", _ranges), ("reason", text(durable_frames.SENTENCE_MAX))),
    Kind.REQUEST: (("id", _id), *_ASKING),
    Kind.REPLY: (
        ("id", _id),
        ("status", number(255)),
        ("body", _body),
        ("headers", _packed),
        ("broker_name", _text),
        ("responder", _text),
    ),
    Kind.SURVEY: (("id", _id), *_ASKING),
    Kind.SURVEYED: (("id", _id), ("asked", _small), ("missing", _texts)),
    Kind.ASK: (("number", _small), ("token", _id), ("survey", number(1)), *_ASKING),
    Kind.ANSWER: (("token", _id), ("status", number(255)), ("body", _body), ("headers", _packed)),
    Kind.EXTEND: (("token", _id), ("more_ms", _milliseconds)),
    Kind.PING: (("stamp", _id),),
    Kind.PONG: (("stamp", _id),),
    Kind.ERROR: (("code", _text), ("sentence", _text)),
    Kind.BYE: (("reason", _text),),
    Kind.PATTERNS: (("number", _small), ("patterns", _texts)),
    Kind.UNSUBSCRIBED: (("number", _small), ("reason", _text)),
    Kind.INTERRUPTED: (),
    Kind.ADDRESSES: (("urls", list_of(text(ADDRESS_SIZE_MAX), ADDRESSES_MAX)),),
    Kind.FORWARD: (("token", _id), ("survey", number(1)), *_ASKING),
    Kind.ASKED: (("token", _id), ("names", _texts)),
    Kind.RETURN: (
        ("token", _id),
        ("responder", _small),
        ("status", number(255)),
        ("body", _body),
        ("headers", _packed),
        ("name", _text),
    ),
    Kind.LONGER: (("token", _id), ("more_ms", _milliseconds)),
    Kind.RECEIVED: (("messages", _id),),
    Kind.CHALLENGE: (("nonce", binary(NONCE_SIZE)), ("broker", _id), ("broker_name", _text), ("mesh", _text)),
    Kind.PROVE: (("proof", binary_up_to(PROOF_MAX)),),
    Kind.LEAVING: (("step", number(3)), ("number", _id), ("reason", _text)),
    **durable_frames.LAYOUTS,
}
"""The fields of each kind, after the kind itself."""
ADDED: Final[dict[int, tuple[str, Check]]] = {Kind.ACK: ("homes", _texts)}
"""A list behind the fields of version 2; empty if it is left out."""

_OPENING: Final = (Kind.HELLO, Kind.WELCOME)


def milliseconds(seconds: float) -> int:
    """A duration in milliseconds, as frames carry it: at least 1, at most what fits."""
    return max(1, round(min(seconds, TIMEOUT_MAX_S) * 1000))


_pack: Final = msgspec.msgpack.Encoder().encode
"""msgpack's own packb makes a packer for each frame, with a buffer of 256 KiB (3 to 30 us instead of 0.4). A
packer that is kept must not be shared by threads; this encoder may be."""


def encode(kind: int, *fields: object) -> bytes:
    """Encode a frame of any kind but DATA. It does not check the fields; the peer does."""
    return _pack((int(kind), *fields))


def decode(frame: bytes, start: int = 0) -> list[Any]:
    """Decode the frame that fills ``frame`` from ``start``: [kind, field, ...], all checked. HELLO and
    WELCOME also give their further fields, unchecked. DATA and WORK have readers of their own. Raises
    `SessionError`."""
    kind = kind_of(frame, start)
    layout = LAYOUTS.get(kind)
    if layout is None:
        raise SessionError(f"a frame of kind {kind}, which is not one of this session's")
    try:
        fields: Any = msgpack.unpackb(
            memoryview(frame)[start:],
            max_str_len=NAME_MAX * 4,
            max_bin_len=BODY_MAX,
            max_array_len=LIST_MAX,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.exceptions.StackError) as error:
        raise SessionError(f"a frame of kind {kind} is not msgpack: {error}") from error
    count = len(layout) + 1
    try:
        if len(fields) < count:
            read_fields(f"a {name_of(kind)} frame", layout, fields[1:])  # raises
        for (name, check), value in zip(layout, fields[1:], strict=False):
            check(name, value)
        added = ADDED.get(kind)
        if added is not None:
            more = added[1](added[0], fields[count]) if len(fields) > count else []
            fields[count:] = [more]
        elif len(fields) > count and kind not in _OPENING:
            del fields[count:]
    except FieldError as error:
        raise SessionError(str(error)) from error
    checked: list[Any] = fields
    return checked


def name_of(kind: int) -> str:
    """The name of a kind in `LAYOUTS`, as sentences show it."""
    return Kind(kind).name if kind <= KIND_MAX else Durable(kind).name


def kind_of(frame: bytes, start: int = 0) -> int:
    """The kind byte. Raises `SessionError` for anything but a session frame."""
    if len(frame) < start + 2 or frame[start] & 0xF0 != 0x90:
        raise SessionError(f"a frame of {len(frame) - start} bytes is not a session frame")
    return frame[start + 1]


# --- DATA: [5, bin(hops, flags, subscription, sequence), bin(block)]

DATA_HEAD: Final = struct.Struct(">BBBBBBHIQBI")
"""array byte, kind, bin8, size of the head, hops, flags, 0, subscription, sequence, bin32, size of the
block."""
DATA_SIZE: Final = DATA_HEAD.size
_ARRAY: Final = 0x93
_BIN8: Final = 0xC4
_HEAD: Final = 16
_BIN32: Final = 0xC6

AGAIN: Final = 1
"""Flag of DATA: this block was sent before and may have arrived. It is for captures and for relays to come.
Receivers judge by `Seen`, which remembers every block of level accepted."""

DATA_CONSTANTS: Final = (_ARRAY, int(Kind.DATA), _BIN8, _HEAD, _BIN32)


def data_head(hops: int, flags: int, subscription: int, sequence: int, size: int) -> bytes:
    """The head that goes before a block of ``size`` bytes."""
    return DATA_HEAD.pack(_ARRAY, DATA, _BIN8, _HEAD, hops, flags, 0, subscription, sequence, _BIN32, size)


def read_data(frame: bytes, start: int = 0) -> tuple[int, int, int, int]:
    """(hops, flags, subscription, sequence) of a DATA frame; its block fills the rest from ``start +
    DATA_SIZE``.

    Raises `SessionError`.
    """
    if len(frame) < start + DATA_SIZE:
        raise SessionError(
            f"a DATA frame of {len(frame) - start} bytes is shorter than its head of {DATA_SIZE}"
        )
    array, kind, bin8, head, hops, flags, zero, subscription, sequence, bin32, size = DATA_HEAD.unpack_from(
        frame, start
    )
    if array != _ARRAY or kind != DATA or bin8 != _BIN8 or head != _HEAD or bin32 != _BIN32:
        raise SessionError("a DATA frame's head does not have its fixed form")
    if zero or flags & ~AGAIN:
        raise SessionError(f"a DATA frame has unknown flags {flags:#x}")
    if size != len(frame) - start - DATA_SIZE:
        raise SessionError(
            f"a DATA frame announces a block of {size} bytes and has {len(frame) - start - DATA_SIZE}"
        )
    return hops, flags, subscription, sequence


def messages_in(frame: bytes, start: int = 0) -> int:
    """Number of messages in a frame from a broker: those of a DATA frame's block. A question counts as one,
    as in credit; other frames carry none."""
    kind = frame[start + 1]
    if kind == DATA:
        return int.from_bytes(frame[start + DATA_SIZE + 4 : start + DATA_SIZE + 8], "big")
    return int(kind == Kind.ASK)


# --- credit


class SendCredit:
    """Credit for what this side may still send. The sender reads and lowers ``messages`` and ``bytes`` in
    place."""

    __slots__ = ("bytes", "messages")

    def __init__(self, messages: int = 0, bytes: int = 0) -> None:
        self.messages = messages
        self.bytes = bytes

    @property
    def open(self) -> bool:
        """True while one more block may be sent."""
        return self.messages > 0 and self.bytes > 0

    def spend(self, messages: int, size: int) -> None:
        self.messages -= messages
        self.bytes -= size

    def grant(self, messages: int, size: int) -> None:
        """Add credit from the peer. Raises `SessionError` if the sum passes every sensible window."""
        self.messages += messages
        self.bytes += size
        if self.messages > MESSAGES_MAX or self.bytes > BYTES_MAX:
            raise SessionError(
                f"credit of {self.messages} messages and {self.bytes} bytes is above the limits"
            )


class ReceiveWindow:
    """Credit that the peer has left for sending here, and credit to be given back to it."""

    __slots__ = ("bytes", "bytes_left", "messages", "messages_left", "owed_bytes", "owed_messages")

    def __init__(self, messages: int, bytes: int) -> None:
        self.messages = messages
        self.bytes = bytes
        self.messages_left = messages
        self.bytes_left = bytes
        self.owed_messages = 0
        self.owed_bytes = 0

    def arrive(self, messages: int, size: int) -> None:
        """Note that a block arrived. Raises `CreditExceeded` if the peer had no credit left for it."""
        if self.messages_left <= 0 or self.bytes_left <= 0:
            raise CreditExceeded(
                f"a block of {messages} messages and {size} bytes was sent at a credit of "
                f"{self.messages_left} messages and {self.bytes_left} bytes"
            )
        self.messages_left -= messages
        self.bytes_left -= size

    def settle(self, messages: int, size: int) -> bool:
        """Note that so much was consumed; True when a quarter window is owed and a grant is due."""
        self.owed_messages += messages
        self.owed_bytes += size
        return self.owed_messages * 4 >= self.messages or self.owed_bytes * 4 >= self.bytes

    def grant(self) -> tuple[int, int]:
        """The (messages, bytes) to give back to the peer now; they count as given."""
        messages, size = self.owed_messages, self.owed_bytes
        self.owed_messages = self.owed_bytes = 0
        self.messages_left += messages
        self.bytes_left += size
        return messages, size


def credit_frame(number: int, messages: int, size: int) -> bytes:
    return encode(Kind.CREDIT, number, messages, size)


LAPSES: Final = 3
"""Missed keepalive intervals after which a session is over."""


class Keepalive:
    """Judges if the other side still lives, by when it was last heard; a late timer never counts against it.

    With ``interval_s`` 0 there is no keepalive. `lapsed` is called about once an interval, and told how late
    that is: time that this side slept through does not count against the peer.
    """

    __slots__ = ("heard_at", "interval_s")

    def __init__(self, interval_s: float, now: float) -> None:
        self.interval_s = interval_s
        self.heard_at = now

    def lapsed(self, now: float, late_s: float = 0.0) -> bool:
        """True once `LAPSES` intervals have passed in silence. ``late_s`` is how late this check is."""
        if not self.interval_s:
            return False
        if late_s > self.interval_s / 2:
            self.heard_at = max(self.heard_at, now - self.interval_s)  # a fresh start: we were away
            return False
        return now - self.heard_at > LAPSES * self.interval_s
