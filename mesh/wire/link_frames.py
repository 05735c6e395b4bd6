"""The link between two brokers: its frames, strictly read, and how a connection is admitted.

A link is three connections, all opened by the side that dials and closed together: a Bus for everything that
is said once, and two for the heartbeat, one survey each way. The Bus comes first, and until both sides have
shown who they are nothing else is said on it::

    dialler                                   listener
    HELLO   -------------------------------->            who I am, a challenge
            <-------------------------------- HELLO      who I am, a challenge
    PROOF   -------------------------------->            HMAC under the mesh key over both HELLOs
            <-------------------------------- TOKEN      HMAC likewise, and a random token
    BIND    (first frame of the Surveyor and of the Respondent connection, with the token)
            <-------------------------------- READY      both are bound: the link is up
            <------- REFUSED at any point --->           one sentence; the connection is closed behind it

`Admission` is one side of this. Without a mesh key the proofs are empty and not looked at; a broker that has
a key refuses one that has none, and the other way round.

**Duplicates.** Both sides may dial at once, and a side may dial again because it lost what the other still
holds. Both ends order links alike, by `LinkRank`: the greater epoch (each side says in its HELLO one more
than the last it knows, the greater of both counts), then the one dialled by the lower id, then the dialler's
challenge. The greatest stays. Another boot of the same member is another matter: see `supersedes`.

Frames are msgpack arrays whose second byte is the kind, 32 to 63 (0 to 31 are `mesh.wire.session_frames`'s,
which travel
on the same Bus). Every frame has a fixed list of typed fields; anything else is a `LinkError` that names the
field.

This module is pure.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, Final

import msgpack
import msgspec

from mesh.errors import LinkError
from mesh.wire.member_record import INCARNATION_MAX, STATES, MemberRecord, State

VERSION: Final = 1
CHALLENGE_SIZE: Final = 16
TOKEN_SIZE: Final = 16
PROOF_SIZE: Final = 32
ADMISSION_FRAME_MAX: Final = 4096
"""Bytes of a frame that a stranger may send."""
NAME_MAX: Final = 64
HOST_MAX: Final = 255
URL_MAX: Final = 512
RECORDS_MAX: Final = 256
"""Records in one MEMBERS frame; a greater table takes several."""
PATTERNS_MAX: Final = 2048
"""Patterns in one INTEREST frame; a greater table takes several."""
SENTENCE_MAX: Final = 400


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
    """The LEFT record of the sender has been heard."""
    INTEREST = 44
    """A part of the whole interest of the sender."""
    INTEREST_CHANGE = 45
    INTEREST_HELD = 46
    """The receiver's interest is known here up to a version."""
    INTEREST_WANTED = 47
    """Send your whole interest again."""
    SURVEY = 56
    ANSWER = 57


SESSION_KIND_MAX: Final = 31
LINK_KIND_MAX: Final = 63
REFUSALS: Final = (
    "malformed",
    "unexpected",
    "version",
    "mesh",
    "key",
    "self",
    "conflict",
    "duplicate",
    "deadline",
    "crowded out",
    "leaving",
    "role",
    "certificate",
)
"""Why a connection is not admitted, as counted."""


class Refused(LinkError):
    """A connection is not admitted. ``reason`` is one of a few fixed words to count by."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


# --- field types: each takes the field's name and value and returns the value or raises

Check = Callable[[str, Any], Any]


def _number(limit: int) -> Check:
    def check(name: str, value: Any) -> int:
        if type(value) is not int or not 0 <= value <= limit:
            raise LinkError(f"field {name} is {_shown(value)}, expected an integer from 0 to {limit}")
        return value

    return check


def _text(size_max: int) -> Check:
    def check(name: str, value: Any) -> str:
        if type(value) is not str or len(value) > size_max:
            raise LinkError(
                f"field {name} is {_shown(value)}, expected text of at most {size_max} characters"
            )
        return value

    return check


def _binary(*sizes: int) -> Check:
    def check(name: str, value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in sizes:
            expected = " or ".join(str(size) for size in sizes)
            raise LinkError(f"field {name} is {_shown(value)}, expected {expected} bytes of binary")
        return value

    return check


def _list(items: Check, size_max: int) -> Check:
    def check(name: str, value: Any) -> list[Any]:
        if type(value) is not list or len(value) > size_max:
            raise LinkError(f"field {name} is {_shown(value)}, expected a list of at most {size_max}")
        return [items(name, item) for item in value]

    return check


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}... ({type(value).__name__})"


_id = _number((1 << 63) - 1)
_incarnation = _number(INCARNATION_MAX - 1)
_version = _number((1 << 63) - 1)
_flag = _number(1)

_RECORD: Final[tuple[tuple[str, Check], ...]] = (
    ("id", _id),
    ("incarnation", _incarnation),
    ("state", _number(len(STATES) - 1)),
    ("boot", _id),
    ("name", _text(NAME_MAX)),
    ("host", _text(HOST_MAX)),
    ("peer_url", _text(URL_MAX)),
    ("client_url", _text(URL_MAX)),
)


def _record(name: str, value: Any) -> MemberRecord:
    if type(value) is not list or len(value) != len(_RECORD):
        raise LinkError(f"field {name} is {_shown(value)}, expected a record of {len(_RECORD)} fields")
    fields = [check(f"{name}.{part}", item) for (part, check), item in zip(_RECORD, value, strict=True)]
    if not fields[0] or not fields[3]:
        raise LinkError(f"field {name} has id {fields[0]} and boot {fields[3]}; neither may be 0")
    return MemberRecord(fields[0], fields[1], STATES[fields[2]], *fields[3:])


def _wanted(name: str, value: Any) -> tuple[str, int]:
    if type(value) is not list or len(value) != 2:
        raise LinkError(f"field {name} is {_shown(value)}, expected a pair [pattern, role]")
    return _text(255)(name, value[0]), _number(1)(name, value[1])


LAYOUTS: Final[dict[int, tuple[tuple[str, Check], ...]]] = {
    LinkKind.HELLO: (
        ("version", _number(1 << 16)),
        ("mesh", _text(NAME_MAX)),
        ("id", _id),
        ("boot", _id),
        ("incarnation", _incarnation),
        ("name", _text(NAME_MAX)),
        ("host", _text(HOST_MAX)),
        ("peer_url", _text(URL_MAX)),
        ("client_url", _text(URL_MAX)),
        ("epoch", _number((1 << 62) - 1)),
        ("challenge", _binary(CHALLENGE_SIZE)),
    ),
    LinkKind.PROOF: (("proof", _binary(0, PROOF_SIZE)),),
    LinkKind.TOKEN: (("proof", _binary(0, PROOF_SIZE)), ("token", _binary(TOKEN_SIZE))),
    LinkKind.BIND: (("token", _binary(TOKEN_SIZE)),),
    LinkKind.READY: (),
    LinkKind.REFUSED: (("reason", _text(32)), ("sentence", _text(SENTENCE_MAX))),
    LinkKind.MEMBERS: (("reply", _flag), ("records", _list(_record, RECORDS_MAX))),
    LinkKind.GOODBYE: (),
    LinkKind.INTEREST: (
        ("version", _version),
        ("part", _number(1 << 16)),
        ("last", _flag),
        ("patterns", _list(_wanted, PATTERNS_MAX)),
    ),
    LinkKind.INTEREST_CHANGE: (
        ("base", _version),
        ("version", _version),
        ("added", _list(_wanted, PATTERNS_MAX)),
        ("removed", _list(_text(255), PATTERNS_MAX)),
    ),
    LinkKind.INTEREST_HELD: (("version", _version),),
    LinkKind.INTEREST_WANTED: (),
    LinkKind.SURVEY: (("digest", _binary(8)), ("interest", _version)),
    LinkKind.ANSWER: (("digest", _binary(8)), ("interest", _version)),
}


_pack: Final = msgspec.msgpack.Encoder().encode
"""msgpack's own packb makes a packer for each frame, with a buffer of 256 KiB (3 to 30 us instead of 0.4); a
packer that is kept must not be shared by threads, this encoder may be."""


def encode(kind: int, *fields: Any) -> bytes:
    """One frame."""
    return _pack((int(kind), *fields))


def decode(frame: bytes) -> list[Any]:
    """Kind and checked fields. Raises `LinkError` with what is wrong."""
    try:
        value = msgpack.unpackb(frame, strict_map_key=True, max_ext_len=0, max_map_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise LinkError(f"a link frame of {len(frame)} bytes is no msgpack: {error}") from error
    if type(value) is not list or not value or type(value[0]) is not int:
        raise LinkError(f"a link frame is {_shown(value)}, expected an array that begins with its kind")
    layout = LAYOUTS.get(value[0])
    if layout is None:
        raise LinkError(f"a link frame has kind {value[0]}, which is not known")
    if len(value) != len(layout) + 1:
        kind = LinkKind(value[0]).name
        raise LinkError(f"{kind} has {len(value) - 1} fields, expected {len(layout)}")
    return [value[0], *(check(name, item) for (name, check), item in zip(layout, value[1:], strict=True))]


def encode_record(record: MemberRecord) -> list[Any]:
    """A record as MEMBERS carries it."""
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
    """Records in as many frames as they need; ``reply`` (in the last) asks for the receiver's table."""
    chunks = [records[start : start + RECORDS_MAX] for start in range(0, len(records), RECORDS_MAX)]
    return [
        encode(
            LinkKind.MEMBERS,
            int(reply and number == len(chunks)),
            [encode_record(record) for record in chunk],
        )
        for number, chunk in enumerate(chunks, start=1)
    ]


# --- admission


@dataclass(frozen=True, slots=True)
class Hello:
    """What a broker says of itself first."""

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
    version: int = VERSION

    def encode(self) -> bytes:
        return encode(
            LinkKind.HELLO,
            self.version,
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
        )

    @property
    def record(self) -> MemberRecord:
        """The member behind it."""
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


@dataclass(frozen=True, slots=True, order=True)
class LinkRank:
    """Of duplicate links between two runs of two brokers the greatest stays; both ends see the same ranks."""

    epoch: int
    dialed_by_lower: bool
    challenge: bytes


def supersedes(
    new: LinkRank, old: LinkRank, *, new_hello: Hello, old_hello: Hello, old_answers: bool
) -> bool:
    """Whether a link that was just made takes the place of the one there is.

    Between the same two runs the rank decides. Another boot of the member is a later run if its incarnation
    is greater, and also if the old link does not answer (its process is gone, and its last incarnation may
    not have been saved); otherwise two processes share one id, and the one that is here stays.
    """
    if new_hello.boot == old_hello.boot:
        return new > old
    return new_hello.incarnation > old_hello.incarnation or not old_answers


class Stage(Enum):
    """Where one side of an admission stands, by what it waits for."""

    HELLO = "hello"
    PROOF = "proof"
    TOKEN = "token"
    BIND = "bind"
    READY = "ready"
    UP = "up"


class Admission:
    """One side of admitting one Bus connection and the two that belong to it.

    Feed it frames and send what it returns. The listener's side reaches `Stage.UP` when both survey
    connections are bound, the dialler's when READY has come; ``peer`` is who is there from the peer's HELLO
    on, and must not be believed before its proof has come, which takes the listener to `Stage.BIND` and the
    dialler to `Stage.READY`.

    Args:
        me: this side's HELLO but for the epoch, with a challenge of its own.
        epoch_after: the last epoch known of a link with a member, 0 if none.
        expect: who is dialled, 0 if that is not known.
    """

    def __init__(
        self,
        me: Hello,
        *,
        dialed: bool,
        mesh_key: bytes | None,
        token: bytes,
        epoch_after: Callable[[int], int],
        expect: int = 0,
    ) -> None:
        self.dialed = dialed
        self.stage = Stage.HELLO
        self.peer: Hello | None = None
        self.token = b""
        self._me = me
        self._key = mesh_key
        self._epoch_after = epoch_after
        self._expect = expect
        self._own_hello = b""
        self._peer_hello = b""
        self._bound: dict[str, None] = {}
        self._offered_token = token

    def begin(self) -> list[bytes]:
        """What the dialler says first; the listener waits."""
        return [self._say_hello(self._expect)] if self.dialed else []

    def received(self, frame: bytes) -> list[bytes]:
        """The next frame of the peer. Returns the answer; raises `Refused`."""
        if len(frame) > ADMISSION_FRAME_MAX:
            size = f"{len(frame)} bytes, at most {ADMISSION_FRAME_MAX}"
            raise Refused("malformed", f"a stranger sent a frame of {size} are allowed")
        try:
            message = decode(frame)
        except LinkError as error:
            raise Refused("malformed", f"no broker's greeting: {error}") from error
        match message[0], self.stage:
            case LinkKind.REFUSED, _:
                reason = message[1] if message[1] in REFUSALS else "refused"
                raise Refused(reason, f"the other broker refused: {message[2]}")
            case LinkKind.HELLO, Stage.HELLO:
                return self._hello(message[1:], frame)
            case LinkKind.PROOF, Stage.PROOF:
                self._check_proof(message[1], by_dialler=True)
                self.stage = Stage.BIND
                self.token = self._offered_token
                return [encode(LinkKind.TOKEN, self._proof(by_dialler=False), self.token)]
            case LinkKind.TOKEN, Stage.TOKEN:
                self._check_proof(message[1], by_dialler=False)
                self.token = message[2]
                self.stage = Stage.READY
                return []
            case LinkKind.READY, Stage.READY:
                self.stage = Stage.UP
                return []
            case kind, stage:
                raise Refused("unexpected", f"frame kind {kind} came while waiting for {stage.value}")

    def bind(self, which: str) -> bool:
        """The listener's side: a survey connection (by its name) brought the token; True when that was the
        last and the link is up. Raises `Refused` for one too many."""
        if self.stage is not Stage.BIND or which in self._bound:
            raise Refused("unexpected", f"a {which} connection was bound twice or out of turn")
        self._bound[which] = None
        if len(self._bound) < 2:
            return False
        self.stage = Stage.UP
        return True

    @property
    def rank(self) -> LinkRank:
        """Known from the peer's HELLO on."""
        peer = self.peer
        assert peer is not None, "there is no rank before both HELLOs"
        dialler, listener = (self._me, peer) if self.dialed else (peer, self._me)
        epoch = max(self._me.epoch, peer.epoch)
        return LinkRank(epoch, dialler.id < listener.id, dialler.challenge)

    def _say_hello(self, to: int) -> bytes:
        self._me = replace(self._me, epoch=self._epoch_after(to) + 1)
        self._own_hello = self._me.encode()
        return self._own_hello

    def _hello(self, fields: list[Any], frame: bytes) -> list[bytes]:
        version, mesh, id, boot = fields[:4]
        if version != VERSION:
            raise Refused("version", f"the peer speaks version {version} of the link, this broker {VERSION}")
        if mesh != self._me.mesh:
            raise Refused("mesh", f"the peer belongs to mesh {mesh!r}, this broker to {self._me.mesh!r}")
        if not id or not boot:
            raise Refused("malformed", f"HELLO has id {id} and boot {boot}; neither may be 0")
        if id == self._me.id:
            same = boot == self._me.boot
            what = "this is the broker itself" if same else "another process uses this broker's id"
            raise Refused("self" if same else "conflict", what)
        self.peer = Hello(*fields[1:])  # the version is ours, as checked above
        self._peer_hello = frame
        if self.dialed:
            self.stage = Stage.TOKEN
            return [encode(LinkKind.PROOF, self._proof(by_dialler=True))]
        self.stage = Stage.PROOF
        return [self._say_hello(id)]

    def _proof(self, *, by_dialler: bool) -> bytes:
        """Over both HELLOs as sent, so over both challenges and all that either side claims, and the
        direction, so that neither proof is of use as the other."""
        if self._key is None:
            return b""
        hellos = (self._own_hello, self._peer_hello)
        first, second = hellos if self.dialed else hellos[::-1]
        mac = hmac.new(self._key, b"mangrove link 1 ", hashlib.sha256)
        mac.update(b"dialler" if by_dialler else b"listener")
        for hello in (first, second):
            mac.update(len(hello).to_bytes(4, "big"))
            mac.update(hello)
        return mac.digest()

    def _check_proof(self, proof: bytes, *, by_dialler: bool) -> None:
        if self._key is None and proof:
            raise Refused("key", "the peer has a mesh key and this broker has none")
        if self._key is not None and not proof:
            raise Refused("key", "the peer has no mesh key and this broker has one")
        if not hmac.compare_digest(proof, self._proof(by_dialler=by_dialler)):
            raise Refused("key", "the peer has another mesh key")
