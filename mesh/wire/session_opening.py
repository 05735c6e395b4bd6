"""How a client's session begins: HELLO, WELCOME, what they agree on, and the id of the client as a publisher.

**Versions.** HELLO and WELCOME carry an offer (`mesh.wire.capabilities`) behind the fields of version 1. A
broker of version 1 refuses the longer HELLO with exactly the sentence `TOO_LONG_FOR_FIRST`; its client dials
again and says the HELLO of version 1.

**Publisher ids.** Brokers and subscribers recognise a retry by (publisher, boot, sequence), which every
subscriber sees. So that nobody can publish under an id that is not theirs, the id is 63 bits of the SHA-256
of a secret. The client says the secret in HELLO, where only its broker reads it, and any broker can check it,
as a retry may come through another one. Such an id has its highest bit set in blocks (`verified`). A client
that gives no secret, as in version 1, may claim any id without that bit, and so none that was verified.

This module is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from mesh.errors import SessionError
from mesh.wire.capabilities import FIRST, PUBLISHER_SECRET, SESSION, Agreed, Offer, read_offer
from mesh.wire.fields import FieldError
from mesh.wire.session_frames import Kind, encode

SECRET_MIN: Final = 16
SECRET_MAX: Final = 64
"""Bytes of a secret."""
SECRET_SIZE: Final = 32
"""Bytes of a secret as our clients draw it."""

TOO_LONG_FOR_FIRST: Final = "a HELLO frame has 7 fields, expected 5"
"""How a broker of version 1 refuses the HELLO of later ones."""

_VERIFIED: Final = 1 << 63


def client_id(secret: bytes) -> int:
    """The id that belongs to a secret: the first 8 bytes of its SHA-256 without their highest bit."""
    return int.from_bytes(sha256(secret).digest()[:8], "big") & ~_VERIFIED


def verified(id: int) -> int:
    """The publisher that blocks name for an id that nobody else can claim: a client's with its secret, or a
    broker's own."""
    return id | _VERIFIED


@dataclass(frozen=True, slots=True)
class Hello:
    """What a client says of itself, and what both then speak."""

    agreed: Agreed
    client: int
    publisher: int
    """Whom the client's blocks must name."""
    boot: int
    name: str
    keepalive_s: float


def hello(offer: Offer, secret: bytes, boot: int, name: str, keepalive_s: float) -> bytes:
    """The HELLO of a client. To ``FIRST`` belongs that of version 1, which keeps the secret."""
    fields = (offer.newest, client_id(secret), boot, name, round(keepalive_s * 1000))
    return encode(Kind.HELLO, *fields, *(() if offer == FIRST else (offer.packed(), secret)))


def read_hello(fields: list[Any]) -> Hello:
    """The fields of a HELLO as `decode` gives them, without the kind.

    Raises:
        SessionError: the offer is malformed, or the secret is not that of the client's id.
        VersionMismatch: there is no version that both speak.
    """
    newest, client, boot, name, keepalive_ms, *rest = fields
    agreed = SESSION.agree(_offer(newest, rest))
    publisher = client
    if agreed.has(PUBLISHER_SECRET):
        secret = rest[1] if len(rest) > 1 else None
        if type(secret) is not bytes or not SECRET_MIN <= len(secret) <= SECRET_MAX:
            raise SessionError(f"field secret is not {SECRET_MIN} to {SECRET_MAX} bytes of binary")
        if client != client_id(secret):
            raise SessionError(f"the client claims id {client:016x}, which does not belong to its secret")
        publisher = verified(client)
    return Hello(agreed, client, publisher, boot, name, keepalive_ms / 1000)


@dataclass(frozen=True, slots=True)
class Welcome:
    """What a broker says of itself, and what both then speak."""

    agreed: Agreed
    broker: str
    mesh: str
    messages: int
    bytes: int
    """The first credit for publishing."""


def welcome(
    agreed: Agreed, broker: int, name: str, mesh: str, session: int, messages: int, size: int
) -> bytes:
    """The WELCOME to a client with which that was agreed."""
    offer = () if agreed.version == FIRST.newest else (SESSION.packed(),)
    return encode(Kind.WELCOME, agreed.version, broker, name, mesh, session, messages, size, *offer)


def read_welcome(fields: list[Any], said: Offer) -> Welcome:
    """The fields of a WELCOME as `decode` gives them, without the kind, in answer to a HELLO with that offer.

    Raises:
        SessionError: the offer is malformed.
        VersionMismatch: the broker speaks no version that HELLO offered.
    """
    newest, _, broker, mesh, _, messages, size, *rest = fields
    return Welcome(said.agree(_offer(newest, rest)), broker, mesh, messages, size)


def _offer(newest: int, rest: list[Any]) -> Offer:
    try:
        return read_offer(newest, rest)
    except FieldError as error:
        raise SessionError(str(error)) from error
