"""The frames that two brokers exchange over a link, and their reader.

A link is three connections: a Bus, and two for the heartbeat (`mesh.cluster.links`). On the Bus an SP payload
is one frame; a heartbeat's frames follow one backtrace word.

A frame is a msgpack array whose second byte is its kind: 32 to 63. Kinds 0 to 31 belong to
`mesh.wire.session_frames`, whose frames travel on the same Bus. Each kind has a list of typed fields
(`LAYOUTS`). A field that is missing, of another type or out of range is a `LinkError` that names it. Further
fields are ignored, since a later version may have added them.

This module is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import msgpack
import msgspec

from mesh.errors import LinkError
from mesh.wire.capabilities import FIRST, LINK, VERSION_MAX, Offer, read_offer
from mesh.wire.durable_frames import PATTERNS_MAX as SUBSCRIPTION_PATTERNS_MAX
from mesh.wire.durable_frames import name_problem
from mesh.wire.fields import Check, FieldError, Layout, binary, list_of, number, read_fields, shown, text
from mesh.wire.member_record import INCARNATION_MAX, STATES, MemberRecord, State

CHALLENGE_SIZE: Final = 16
TOKEN_SIZE: Final = 16
PROOF_SIZE: Final = 32
ADMISSION_FRAME_MAX: Final = 4096
"""Bytes of a frame that a stranger may send."""
NAME_MAX: Final = 64
HOST_MAX: Final = 255
URL_MAX: Final = 512
RECORDS_MAX: Final = 256
"""Records in one MEMBERS frame; a larger table takes several."""
PATTERNS_MAX: Final = 2048
"""Patterns in one INTEREST frame; a larger table takes several."""
SENTENCE_MAX: Final = 400
HOMES_MAX: Final = 1024
"""Most homes of durable subscriptions in a mesh."""
DURABLE_MAX: Final = 512
"""Durable subscriptions in one frame; a home with more takes several."""
DURABLE_VERSION_MAX: Final = 1 << 62


class LinkKind(IntEnum):
    """Second byte of a link frame."""

    HELLO = 32
    PROOF = 33
    TOKEN = 34
    BIND = 35
    READY = 36
    REFUSED = 37
    MEMBERS = 40
    GOODBYE = 41
    """The receiver has got the LEFT record of the sender."""
    INTEREST = 44
    """A part of the sender's whole interest."""
    INTEREST_CHANGE = 45
    INTEREST_HELD = 46
    """The sender knows the receiver's interest up to a version."""
    INTEREST_WANTED = 47
    """Send your whole interest again."""
    DURABLE = 48
    """A part of the durable subscriptions of one home. Any broker may send those of any home."""
    DURABLE_CHANGE = 49
    DURABLE_HELD = 50
    """The sender has these versions of these homes, on disk if it has a state folder."""
    DURABLE_WANTED = 51
    """Send everything of this home again."""
    SURVEY = 56
    ANSWER = 57


SESSION_KIND_MAX: Final = 31
LINK_KIND_MAX: Final = 63
_id = number((1 << 63) - 1)
_incarnation = number(INCARNATION_MAX - 1)
_version = number((1 << 63) - 1)
_flag = number(1)
_pattern = text(255)

_RECORD: Final[Layout] = (
    ("records.id", _id),
    ("records.incarnation", _incarnation),
    ("records.state", number(len(STATES) - 1)),
    ("records.boot", _id),
    ("records.name", text(NAME_MAX)),
    ("records.host", text(HOST_MAX)),
    ("records.peer_url", text(URL_MAX)),
    ("records.client_url", text(URL_MAX)),
)


def _record(name: str, value: Any) -> MemberRecord:
    if type(value) is not list:
        raise FieldError(f"field {name} is {shown(value)}, expected a record of {len(_RECORD)} fields")
    fields = read_fields(f"a record in {name}", _RECORD, value)
    if not fields[0] or not fields[3]:
        raise FieldError(f"field {name} has id {fields[0]} and boot {fields[3]}; neither may be 0")
    return MemberRecord(fields[0], fields[1], STATES[fields[2]], *fields[3:])


def _wanted(name: str, value: Any) -> tuple[str, int]:
    if type(value) is not list or len(value) < 2:
        raise FieldError(f"field {name} is {shown(value)}, expected a pair [pattern, role]")
    return _pattern(name, value[0]), _flag(name, value[1])


_durable_version = number(DURABLE_VERSION_MAX)
_durable_patterns = list_of(_pattern, SUBSCRIPTION_PATTERNS_MAX)


def _subscription_name(name: str, value: Any) -> str:
    if type(value) is not str:
        raise FieldError(f"field {name} is {shown(value)}, expected a name")
    problem = name_problem(value)
    if problem:
        raise FieldError(f"field {name} {problem}")
    return value


def _subscription(name: str, value: Any) -> tuple[str, tuple[str, ...]]:
    if type(value) is not list or len(value) < 2:
        raise FieldError(f"field {name} is {shown(value)}, expected a pair [name, patterns]")
    return _subscription_name(name, value[0]), tuple(_durable_patterns(name, value[1]))


def _held(name: str, value: Any) -> tuple[int, int]:
    if type(value) is not list or len(value) < 2:
        raise FieldError(f"field {name} is {shown(value)}, expected a pair [home, version]")
    return _home(name, value[0]), _durable_version(name, value[1])


def _home(name: str, value: Any) -> int:
    id: int = _id(name, value)
    if not id:
        raise FieldError(f"field {name} is 0, which is no broker's id")
    return id


LAYOUTS: Final[dict[int, Layout]] = {
    LinkKind.HELLO: (
        ("version", number(VERSION_MAX)),
        ("mesh", text(NAME_MAX)),
        ("id", _id),
        ("boot", _id),
        ("incarnation", _incarnation),
        ("name", text(NAME_MAX)),
        ("host", text(HOST_MAX)),
        ("peer_url", text(URL_MAX)),
        ("client_url", text(URL_MAX)),
        ("epoch", number((1 << 62) - 1)),
        ("challenge", binary(CHALLENGE_SIZE)),
    ),
    LinkKind.PROOF: (("proof", binary(0, PROOF_SIZE)),),
    LinkKind.TOKEN: (("proof", binary(0, PROOF_SIZE)), ("token", binary(TOKEN_SIZE))),
    LinkKind.BIND: (("token", binary(TOKEN_SIZE)),),
    LinkKind.READY: (),
    LinkKind.REFUSED: (("reason", text(32)), ("sentence", text(SENTENCE_MAX))),
    LinkKind.MEMBERS: (("reply", _flag), ("records", list_of(_record, RECORDS_MAX))),
    LinkKind.GOODBYE: (),
    LinkKind.INTEREST: (
        ("version", _version),
        ("part", number(1 << 16)),
        ("last", _flag),
        ("patterns", list_of(_wanted, PATTERNS_MAX)),
    ),
    LinkKind.INTEREST_CHANGE: (
        ("base", _version),
        ("version", _version),
        ("added", list_of(_wanted, PATTERNS_MAX)),
        ("removed", list_of(_pattern, PATTERNS_MAX)),
    ),
    LinkKind.INTEREST_HELD: (("version", _version),),
    LinkKind.INTEREST_WANTED: (),
    LinkKind.DURABLE: (
        ("home", _home),
        ("version", _durable_version),
        ("part", number(1 << 16)),
        ("last", _flag),
        ("name", text(NAME_MAX)),
        ("client_url", text(URL_MAX)),
        ("subscriptions", list_of(_subscription, DURABLE_MAX)),
    ),
    LinkKind.DURABLE_CHANGE: (
        ("home", _home),
        ("base", _durable_version),
        ("version", _durable_version),
        ("added", list_of(_subscription, DURABLE_MAX)),
        ("removed", list_of(_subscription_name, DURABLE_MAX)),
    ),
    LinkKind.DURABLE_HELD: (("versions", list_of(_held, HOMES_MAX)),),
    LinkKind.DURABLE_WANTED: (("home", _home),),
    LinkKind.SURVEY: (("digest", binary(8)), ("interest", _version)),
    LinkKind.ANSWER: (("digest", binary(8)), ("interest", _version)),
}


"""The fields of version 1, in their order."""
ADDED: Final[dict[int, tuple[str, Check, Any]]] = {
    LinkKind.INTEREST: ("owner", _id, 0),
    LinkKind.INTEREST_CHANGE: ("owner", _id, 0),
}
"""The field behind those of version 1, and its value if it is left out. In HELLO it is the offer."""

_pack: Final = msgspec.msgpack.Encoder().encode
"""msgpack's own packb makes a packer for each frame, with a buffer of 256 KiB (3 to 30 us instead of 0.4). A
packer that is kept must not be shared by threads; this encoder may be."""


def encode(kind: int, *fields: Any) -> bytes:
    """Encode one frame."""
    return _pack((int(kind), *fields))


def decode(frame: bytes) -> list[Any]:
    """Decode a frame into its kind and checked fields. Raises `LinkError` with what is wrong."""
    try:
        value = msgpack.unpackb(frame, strict_map_key=True)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise LinkError(f"a link frame of {len(frame)} bytes is no msgpack: {error}") from error
    if type(value) is not list or not value or type(value[0]) is not int:
        raise LinkError(f"a link frame is {shown(value)}, expected an array that begins with its kind")
    layout = LAYOUTS.get(value[0])
    if layout is None:
        raise LinkError(f"a link frame has kind {value[0]}, which is not known")
    try:
        return _fields(value, layout)
    except FieldError as error:
        raise LinkError(str(error)) from None


def _fields(value: list[Any], layout: Layout) -> list[Any]:
    kind = value[0]
    fields = read_fields(LinkKind(kind).name, layout, value[1:])
    rest = value[len(layout) + 1 :]
    if kind == LinkKind.HELLO:
        fields.append(read_offer(fields[0], rest))
    elif kind in ADDED:
        name, check, default = ADDED[kind]
        fields.append(check(name, rest[0]) if rest else default)
    return [kind, *fields]


def encode_record(record: MemberRecord) -> list[Any]:
    """A record as a MEMBERS frame carries it."""
    return [
        record.id,
        record.incarnation,
        STATES.index(record.state),
        record.boot,
        record.name,
        record.host,
        record.peer_url,
        record.client_url,
    ]


def members_frames(records: list[MemberRecord], *, reply: bool = False) -> list[bytes]:
    """Pack records into as many frames as they need; ``reply`` (in the last) asks for the receiver's
    table."""
    chunks = [records[start : start + RECORDS_MAX] for start in range(0, len(records), RECORDS_MAX)]
    return [
        encode(
            LinkKind.MEMBERS,
            int(reply and number == len(chunks)),
            [encode_record(record) for record in chunk],
        )
        for number, chunk in enumerate(chunks, start=1)
    ]


@dataclass(frozen=True, slots=True)
class Hello:
    """A broker's first frame on a link, about itself."""

    mesh: str
    id: int
    boot: int
    incarnation: int
    name: str
    host: str
    peer_url: str
    client_url: str
    epoch: int
    challenge: bytes
    offer: Offer = LINK

    @classmethod
    def of(cls, fields: list[Any]) -> Hello:
        """Make one from the fields that `decode` returns."""
        return cls(*fields[1:])  # the version is the offer's newest

    def encode(self) -> bytes:
        """Encode the frame. If it offers version 1 alone, it has exactly the fields of version 1."""
        return encode(
            LinkKind.HELLO,
            self.offer.newest,
            self.mesh,
            self.id,
            self.boot,
            self.incarnation,
            self.name,
            self.host,
            self.peer_url,
            self.client_url,
            self.epoch,
            self.challenge,
            *([] if self.offer == FIRST else [self.offer.packed()]),
        )

    @property
    def record(self) -> MemberRecord:
        """The record of the sending member."""
        return MemberRecord(
            self.id,
            self.incarnation,
            State.ALIVE,
            self.boot,
            self.name,
            self.host,
            self.peer_url,
            self.client_url,
        )
