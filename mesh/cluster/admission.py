"""How a connection from another broker is admitted, and which of two links to it stays.

The Bus comes first. Until both sides have shown who they are nothing else is said on it::

    dialler                                   listener
    HELLO   -------------------------------->            who I am, what I speak, a challenge
            <-------------------------------- HELLO      likewise
    PROOF   -------------------------------->            HMAC under the mesh key over both HELLOs
            <-------------------------------- TOKEN      HMAC likewise, and a random token
    BIND    (first frame of the Surveyor and of the Respondent connection, with the token)
            <-------------------------------- READY      both are bound: the link is up
            <------- REFUSED at any point --->           one sentence; the connection is closed behind it

`Admission` is one side of this. Without a mesh key the proofs are empty and not checked; a broker that has a
key refuses one that has none, and the other way round.

**Versions.** Each HELLO ends with an offer (`mesh.wire.capabilities`), and both sides speak what both offers
have in common. A broker of version 1 refuses a HELLO with an offer. Its dialler then dials again and says a
HELLO without one (`Admission.speaks_first`); to a HELLO without one the listener answers in kind. An attacker
on the way could provoke that, but not change what either side says after it: the proofs cover both HELLOs.

**Duplicates.** Both sides may dial at once, and a side may dial again because it lost what the other still
holds. Both ends order links alike, by `LinkRank`: the greater epoch (each side says in its HELLO one more
than the last it knows, the greater of both counts), then the one dialled by the lower id, then the dialler's
challenge. The greatest stays. Another boot of the same member is another matter: see `supersedes`.

This module is pure.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from mesh.errors import LinkError
from mesh.wire.capabilities import FIRST, Agreed, VersionMismatch
from mesh.wire.link_frames import ADMISSION_FRAME_MAX, Hello, LinkKind, decode, encode

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

ID_TAKEN: Final = (
    "another process uses this broker's id, as happens when a state folder is copied; stop one of the two,"
    " remove identity.json from its state folder and start it again"
)


class Refused(LinkError):
    """A connection is not admitted. ``reason`` is one of a few fixed words to count by."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


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
        self.agreed = Agreed(0, frozenset())
        """What both sides speak, from the peer's HELLO on."""
        self.token = b""
        self._me = me
        self._key = mesh_key
        self._epoch_after = epoch_after
        self._expect = expect
        self._own_hello = b""
        self._peer_hello = b""
        self._bound: dict[str, None] = {}
        self._offered_token = token
        self._refused_hello = False

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
                self._refused_hello = self.peer is None and reason in ("malformed", "version")
                raise Refused(reason, f'the other broker refused this one, saying "{message[2]}"')
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
    def speaks_first(self) -> bool:
        """Whether the peer may be of version 1: it refused a HELLO with an offer before it said its own."""
        return self.dialed and self._me.offer != FIRST and self._refused_hello

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
        mesh, id, boot = fields[1:4]
        peer = Hello.of(fields)
        try:
            self.agreed = self._me.offer.agree(peer.offer)
        except VersionMismatch as error:
            raise Refused("version", f"there is no common version of the link: {error}") from None
        if mesh != self._me.mesh:
            raise Refused("mesh", f"the peer belongs to mesh {mesh!r}, this broker to {self._me.mesh!r}")
        if not id or not boot:
            raise Refused("malformed", f"HELLO has id {id} and boot {boot}; neither may be 0")
        if id == self._me.id:
            same = boot == self._me.boot
            what = "this is the broker itself" if same else ID_TAKEN
            raise Refused("self" if same else "conflict", what)
        self.peer = peer
        self._peer_hello = frame
        if self.dialed:
            self.stage = Stage.TOKEN
            return [encode(LinkKind.PROOF, self._proof(by_dialler=True))]
        self.stage = Stage.PROOF
        if peer.offer == FIRST:
            self._me = replace(self._me, offer=FIRST)
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
