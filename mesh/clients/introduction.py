"""How a client introduces itself to a broker: the HELLO it says, and the proof of who it is. Pure.

The offer of a HELLO is the client's own, unless a broker of version 1 has refused it: the next HELLO then
suits that broker. A client with blocks that were sent under version 1 stays with it, since only such a
session recognises a resend of them.
"""

from __future__ import annotations

from typing import Final

from mesh.access.credentials import Credential
from mesh.access.proofs import statement
from mesh.errors import SessionError
from mesh.wire.capabilities import FIRST, GOAWAY, MOVES, SESSION, Offer
from mesh.wire.session_frames import Kind, encode
from mesh.wire.session_opening import TOO_LONG_FOR_FIRST, client_id, hello, publisher_of

STAYING: Final = SESSION.without(GOAWAY, MOVES)
"""The offer of a client that stays with its broker."""
MOVING_LATER: Final = SESSION.without(MOVES)
"""The offer of a client that goes to another broker only when its own is gone."""


class Introduction:
    """What one client says of itself, and what it has said last."""

    def __init__(self, secret: bytes, name: str, keepalive_s: float, credential: Credential | None) -> None:
        self.full = STAYING
        """The client's offer."""
        self.offered = STAYING
        """The offer of the last HELLO."""
        self._next = STAYING
        self._secret = secret
        self._name = name
        self._keepalive_s = keepalive_s
        self._credential = credential
        self._said = b""
        """The last HELLO, over which a proof is made."""

    def offer(self, offer: Offer) -> None:
        """Offer this from now on."""
        self.full = self._next = offer

    @property
    def falls_back(self) -> bool:
        """True if the broker refused an unknown capability: the next HELLO suits it."""
        return self._next == FIRST != self.offered

    def publisher(self, principal: str = "", *, verified: bool = True) -> int:
        """The id of the client's blocks."""
        return publisher_of(self._secret, principal) if verified else client_id(self._secret)

    def begin(self, boot: int, publisher: int | None) -> bytes:
        """The HELLO on a new connection. ``publisher``: of the blocks that are not acknowledged, if any."""
        self.offered = FIRST if publisher == client_id(self._secret) else self._next
        self._said = self.hello(self.offered, boot)
        return self._said

    def hello(self, offer: Offer, boot: int) -> bytes:
        """A HELLO with this offer."""
        claim = None if self._credential is None else self._credential.claim
        return hello(offer, self._secret, boot, self._name, self._keepalive_s, claim)

    def over(self) -> None:
        """The connection has ended; the next broker may be of a later version."""
        if self.offered == FIRST:
            self._next = self.full

    def refused(self, sentence: str) -> None:
        """The broker ended the session with this sentence."""
        if sentence == TOO_LONG_FOR_FIRST:
            self._next = FIRST

    def proof(self, challenge: bytes, said: bytes | None = None) -> bytes:
        """The PROVE frame: this client has what a HELLO named, by default the last one. Raises `SessionError`
        if it named nothing."""
        if self._credential is None:
            raise SessionError("the broker challenges a client that named no proof")
        return encode(
            Kind.PROVE, self._credential.prove(statement(self._said if said is None else said, challenge))
        )
