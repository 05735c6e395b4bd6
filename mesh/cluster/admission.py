"""Admits connections from other brokers, and decides which of two links to a broker stays.

The Bus comes first. Until both sides have proven who they are, they say nothing else on it::

    dialler                                   listener
    HELLO   -------------------------------->            identity, an offer, a challenge
            <-------------------------------- HELLO      likewise
    PROOF   -------------------------------->            HMAC under the mesh key over both HELLOs
            <-------------------------------- TOKEN      HMAC likewise, and a random token
    BIND    (first frame of the Surveyor and of the Respondent connection, with the token)
            <-------------------------------- READY      both are bound: the link is up
            <------- REFUSED at any point --->           one sentence; the connection is closed behind it

`Admission` is one side of this. Without a mesh key the proofs are empty and not checked. A broker with a key
refuses one without, and vice versa.

**Versions.** Each HELLO ends with an offer (`mesh.wire.capabilities`), and both sides use what both offers
have in common. A broker of version 1 refuses a HELLO with an offer. Its dialler then dials again and sends a
HELLO without one (`Admission.speaks_first`); the listener answers such a HELLO without an offer too. An
attacker on the path could provoke that, but could not change what either side says afterwards, since the
proofs cover both HELLOs.

**Duplicates.** Both sides may dial at once, and a side may dial again because it lost a link that the other
still has. Both sides order links by `LinkRank`, and the greatest stays. It compares the epoch first: each
HELLO names one more than the last epoch known to its side, and the greater of both counts. Then the link
dialled by the lower id is greater, then the dialler's challenge decides. `supersedes` decides about another
boot of the same member.

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
"""Counters for the reasons why connections are not admitted."""

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
    """Orders duplicate links between two runs of two brokers. The greatest stays; both ends see the same
    ranks."""

    epoch: int
    dialed_by_lower: bool
    challenge: bytes


def supersedes(
    new: LinkRank, old: LinkRank, *, new_hello: Hello, old_hello: Hello, old_answers: bool
) -> bool:
    """True if a new link replaces the existing one.

    Between the same two runs the rank decides. Another boot of the member is a later run if its incarnation
    is greater. It is also a later run if the old link does not answer, since then its process has ended and
    may not have saved its last incarnation. Otherwise two processes share one id, and the existing link
    stays.
    """
    if new_hello.boot == old_hello.boot:
        return new > old
    return new_hello.incarnation > old_hello.incarnation or not old_answers


class Stage(Enum):
    """The stages of one side of an admission, each named for what it waits for."""

    HELLO = "hello"
    PROOF = "proof"
    TOKEN = "token"
    BIND = "bind"
    READY = "ready"
    UP = "up"


class Admission:
    """One side of admitting one Bus connection and the two that belong to it.

    Feed it frames and send what it returns. The listener's side reaches `Stage.UP` when both survey
    connections are bound, the dialler's when READY arrives. ``peer`` is set by the peer's HELLO, but must not
    be trusted before its proof. The proof takes the listener to `Stage.BIND` and the dialler to
    `Stage.READY`.

    Args:
        me: this side's HELLO without the epoch, with its own challenge.
        epoch_after: the last known epoch of links with a member, 0 if none.
        expect: the id of the dialled member, 0 if not known.
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
        """The version and capabilities of both sides; set by the peer's HELLO."""
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
        """The dialler's first frames; the listener has none."""
        return [self._say_hello(self._expect)] if self.dialed else []

    def received(self, frame: bytes) -> list[bytes]:
        """Handle the next frame of the peer. Returns the answer; raises `Refused`."""
        if len(frame) > ADMISSION_FRAME_MAX:
            size = f"{len(frame)} bytes, at most {ADMISSION_FRAME_MAX}"
            raise Refused("malformed", f"a stranger sent a frame of {size} are allowed")
        try:
            message = decode(frame)
        except LinkError as error:
            raise Refused("malformed", f"not a broker's greeting: {error}") from error
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
        """The listener's side: a survey connection, named ``which``, sent the token. True if it was the last
        one and the link is up. Raises `Refused` for one too many."""
        if self.stage is not Stage.BIND or which in self._bound:
            raise Refused("unexpected", f"a {which} connection was bound twice or out of turn")
        self._bound[which] = None
        if len(self._bound) < 2:
            return False
        self.stage = Stage.UP
        return True

    @property
    def speaks_first(self) -> bool:
        """True if the peer may have version 1: it refused a HELLO with an offer before it sent its own."""
        return self.dialed and self._me.offer != FIRST and self._refused_hello

    @property
    def rank(self) -> LinkRank:
        """The link's rank, known once the peer's HELLO came."""
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
        """The proof of one direction over both HELLOs as sent. So it covers both challenges and all claims,
        and cannot be reused for the other direction."""
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
