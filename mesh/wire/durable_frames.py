"""The frames of level stored and of durable subscriptions: kinds 64 and up. Pure.

They travel in sessions whose sides both have the capability `STORED`, and on links where both have `DURABLE`
(`mesh.wire.capabilities`). `mesh.wire.session_frames` encodes and decodes them, as it does its own frames.

A durable subscription lives at its *home*, the broker where it was made. The home's journal keeps its
messages. A client attaches to it and gets work::

    client                               home
    ATTACH  ---------------------------> find the subscription, or make it
            <--------------------------- ATTACHED   every live broker knows it; or DETACHED: refused, or over
            <--------------------------- WORK       as many messages as the window has room for
    DONE    --------------------------->            what is settled, which makes room
    RETRY   --------------------------->            deliver this one again
    DROP    --------------------------->            make this one a dead letter
    DETACH  --------------------------->            others get what is not settled

A publisher's block of level stored goes to its entry broker as DATA, and from there to each home::

    client              entry broker              home
    DATA  ------------>       DATA with KEEP ---->        the head's subscription field: see `BEHIND_MAX`
    LOWEST ----------->                                   without credit: it waits for nothing below
                              LOWEST ------------>        the publisher waits for nothing below it
          <------------ PENDING                           it takes long: who has kept it, who has not said
          <------------ PAST                              homes were told that nobody waits for it any more
                              <------------------ KEPT    what became of it, on disk
          <------------ ACK with the homes

**Which messages.** A row is a block in the home's journal; its messages have indexes from 0. WORK carries
neighbouring messages of one row, in a block that is all of the row or cut out of it. DONE names messages by
row, first index and bitmap. Bit i stands for message ``first + i``, and the lowest bit of the first byte
comes first.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final

from mesh.errors import SessionError
from mesh.wire.blocks import COUNT_MAX
from mesh.wire.fields import FieldError, Layout, list_of, number, shown, text

KIND_MIN: Final = 64
KIND_MAX: Final = 95

NAME_MAX: Final = 255
"""Limit of a durable subscription's name, in characters and in bytes of UTF-8, with `DEAD_PREFIX` if it has
that."""
QUEUES: Final = "$sys.queues"
"""Topic of questions about durable subscriptions, for any home. With an id behind it, for that home."""
DEAD_PREFIX: Final = "$dlq."
"""This prefix and a subscription's name make the name of the subscription that keeps its dead letters. So a
name without the prefix has a limit that is that much lower."""
PATTERN_MAX: Final = 255
PATTERNS_MAX: Final = 64
"""Most patterns of one durable subscription."""
SENTENCE_MAX: Final = 400
URL_MAX: Final = 512
NAMES_MAX: Final = 1024
"""Most brokers that one frame names."""
SETTLED_MAX: Final = 8192
"""Most rows in one DONE frame, and blocks in one KEPT frame."""
BITMAP_MAX: Final = 512
"""Bytes of a bitmap: one bit for each message of the fullest block."""
BACK_OFF: Final = 1 << 32
"""In RETRY: a delay that the home chooses."""
AFTER_MAX_MS: Final = 7 * 86_400_000
"""The longest other delay in RETRY."""
BEHIND_MAX: Final = (1 << 32) - 1
"""Largest distance in the subscription field of a client's DATA of level stored. The field says how far below
the block's first number the publisher's lowest unacknowledged number lies."""
FOLLOWS: Final = 1
"""In the sequence field of a client's DATA of level stored: another block of the topic was sent before it in
the session, and is not answered yet. This block is refused if that one was. Otherwise the field is 0."""
KEEP: Final = 2
"""Flag of DATA on a link: keep the block, and answer with KEPT."""


class Durable(IntEnum):
    """Second byte of these frames."""

    ATTACH = 64
    ATTACHED = 65
    DETACH = 66
    DETACHED = 67
    WORK = 68
    DONE = 69
    RETRY = 70
    DROP = 71
    PENDING = 72
    PAST = 73
    LOWEST = 80
    KEPT = 81


WORK: Final = int(Durable.WORK)
"""The kind as a plain int, for the path of every block."""


class Kept(IntEnum):
    """The outcome of a block at a home."""

    KEPT = 0
    """It is on disk."""
    CONFLICT = 1
    """Other messages came under these numbers before."""
    PAST = 2
    """The publisher has said that it no longer waits for these numbers."""
    UNWANTED = 3
    """No subscription here wants its topic."""
    REFUSED = 4
    """It is certainly not kept; the sentence says why."""
    DOUBT = 5
    """It may be kept; the sentence says why nobody knows."""
    PART = 6
    """This piece of a large body is on disk; others are missing."""


DETACHED_REASONS: Final = (
    "held_elsewhere",  # the subscription's home is another broker, at the URL
    "other_patterns",
    "bad_name",
    "unknown",  # there is none of this name, and no patterns to make one
    "no_state",  # this broker has no state folder
    "limit",
    "removed",
    "failed",  # the journal failed
    "leaving",
    "not_allowed",  # the client's principal may not subscribe to it; a client without `PROOF` is told limit
)


def name_problem(name: str) -> str | None:
    """Say what is wrong with the name of a durable subscription; None if nothing is."""
    if not name:
        return "is empty"
    if not name.isprintable():
        return f"is {shown(name)}, with characters that cannot be printed"
    size = len(name.encode())
    size_max = NAME_MAX if name.startswith(DEAD_PREFIX) else NAME_MAX - len(DEAD_PREFIX)
    return f"has {size} bytes, the limit is {size_max}" if size > size_max else None


def _settled(name: str, value: Any) -> tuple[int, int, bytes]:
    if type(value) is list and len(value) >= 3:
        row, first, bitmap = value[:3]
        if _within(row, 1, 1 << 63) and _within(first, 0, 1 << 16) and type(bitmap) is bytes:
            if len(bitmap) <= BITMAP_MAX:
                return row, first, bitmap
    raise FieldError(f"field {name} is {shown(value)}, expected [row, first, bitmap]")


def _kept(name: str, value: Any) -> tuple[int, int, int, int, int, int, str]:
    if type(value) is list and len(value) >= 7:
        publisher, boot, first, last, offset, verdict, sentence = value[:7]
        if (
            _within(publisher, 0, 1 << 64)
            and _within(boot, 0, 1 << 64)
            and _within(first, 0, 1 << 63)
            and _within(last, first, 1 << 63)
            and _within(offset, 0, 1 << 32)
            and _within(verdict, 0, len(Kept))
            and type(sentence) is str
            and len(sentence) <= SENTENCE_MAX
        ):
            return publisher, boot, first, last, offset, verdict, sentence
    raise FieldError(
        f"field {name} is {shown(value)}, expected [publisher, boot, first, last, offset, verdict, sentence]"
    )


def _within(value: Any, least: int, below: int) -> bool:
    return type(value) is int and least <= value < below


_number = number((1 << 32) - 1)
_row = _sequence = number((1 << 63) - 1)
_index = number((1 << 16) - 1)
_name = text(NAME_MAX)
_names = list_of(_name, NAMES_MAX)
_u64 = number((1 << 64) - 1)
_delay = number(AFTER_MAX_MS)


def _after(name: str, value: Any) -> int:
    return BACK_OFF if type(value) is int and value == BACK_OFF else _delay(name, value)


def _reason(name: str, value: Any) -> Any:
    if value in DETACHED_REASONS:
        return value
    raise FieldError(f"field {name} is {shown(value)}, expected one of {', '.join(DETACHED_REASONS)}")


LAYOUTS: Final[dict[int, Layout]] = {
    Durable.ATTACH: (
        ("number", _number),
        ("name", _name),
        ("patterns", list_of(text(PATTERN_MAX), PATTERNS_MAX)),
        ("messages", number(1 << 31)),
        ("bytes", number(1 << 40)),
    ),
    Durable.ATTACHED: (("number", _number), ("waiting", _row), ("unreached", _names)),
    Durable.DETACH: (("number", _number),),
    Durable.DETACHED: (
        ("number", _number),
        ("reason", _reason),
        ("sentence", text(SENTENCE_MAX)),
        ("url", text(URL_MAX)),
    ),
    Durable.DONE: (("number", _number), ("settled", list_of(_settled, SETTLED_MAX))),
    Durable.RETRY: (("number", _number), ("row", _row), ("index", _index), ("after_ms", _after)),
    Durable.DROP: (("number", _number), ("row", _row), ("index", _index), ("reason", text(SENTENCE_MAX))),
    Durable.PENDING: (("first", _sequence), ("last", _sequence), ("kept", _names), ("waiting", _names)),
    Durable.PAST: (("first", _sequence), ("last", _sequence), ("homes", _names)),
    Durable.LOWEST: (("publisher", _u64), ("boot", _u64), ("lowest", _sequence)),
    Durable.KEPT: (("blocks", list_of(_kept, SETTLED_MAX)),),
}
"""The fields of each kind but WORK, after the kind itself."""


# --- WORK: [68, bin(number, row, first, attempt, flags), bin(block)]

REDELIVERED: Final = 1
"""Flag of WORK: a consumer had these messages before, as far as the home knows since it started."""
SUSPECT: Final = 2
"""Flag of WORK: it is one message, which was in flight when its consumer died."""

WORK_HEAD: Final = struct.Struct(">BBBBIQHHBBI")
"""array byte, kind, bin8, size of the head, number, row, first, attempt, flags, bin32, size of the block."""
WORK_SIZE: Final = WORK_HEAD.size
_ARRAY: Final = 0x93
_BIN8: Final = 0xC4
_HEAD: Final = 17
_BIN32: Final = 0xC6


def work_head(number: int, row: int, first: int, attempt: int, flags: int, size: int) -> bytes:
    """The head that goes before a block of ``size`` bytes."""
    return WORK_HEAD.pack(
        _ARRAY, Durable.WORK, _BIN8, _HEAD, number, row, first, min(attempt, 0xFFFF), flags, _BIN32, size
    )


def read_work(frame: bytes, start: int = 0) -> tuple[int, int, int, int, int]:
    """(number, row, first, attempt, flags) of a WORK frame; its block fills the rest from ``start +
    WORK_SIZE``.

    Raises `SessionError`.
    """
    if len(frame) < start + WORK_SIZE:
        raise SessionError(
            f"a WORK frame of {len(frame) - start} bytes is shorter than its head of {WORK_SIZE}"
        )
    array, kind, bin8, head, number, row, first, attempt, flags, bin32, size = WORK_HEAD.unpack_from(
        frame, start
    )
    if array != _ARRAY or kind != Durable.WORK or bin8 != _BIN8 or head != _HEAD or bin32 != _BIN32:
        raise SessionError("a WORK frame's head does not have its fixed form")
    if flags & ~(REDELIVERED | SUSPECT):
        raise SessionError(f"a WORK frame has unknown flags {flags:#x}")
    if not 0 < row < 1 << 63 or first >= COUNT_MAX or not attempt:
        raise SessionError(f"a WORK frame names row {row}, message {first} and attempt {attempt}")
    if size != len(frame) - start - WORK_SIZE:
        raise SessionError(
            f"a WORK frame announces a block of {size} bytes and has {len(frame) - start - WORK_SIZE}"
        )
    return number, row, first, attempt, flags
