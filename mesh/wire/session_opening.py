"""The opening of a client's session: HELLO, WELCOME, their agreement, and the client's publisher id.

**Versions.** HELLO and WELCOME carry an offer (`mesh.wire.capabilities`) behind the fields of version 1. A
broker of version 1 refuses the longer HELLO with exactly the sentence `TOO_LONG_FOR_FIRST`. Its client dials
again and says the HELLO of version 1.

**Publisher ids.** Brokers and subscribers recognise a retry by (publisher, boot, sequence), which every
subscriber sees. To keep a client from publishing under another's id, the id is 63 bits of the SHA-256 of a
secret. The client says the secret in HELLO, where only its broker reads it. Any broker can check it, as a
retry may come through another one. Such an id has its highest bit set in blocks (`verified`). A client
without a secret, as in version 1, may claim any id without that bit, and so none that was verified.

**Principals.** A client that can prove who it is names in HELLO a method and an identity. The broker answers
with CHALLENGE, the client with PROVE (`mesh.access.proofs`), and WELCOME names the client's principal; it is
empty for an anonymous client. A principal's publisher id is made of its secret and its name (`publisher_of`).
So one principal cannot publish under the id of another, on any broker, even if it knows the other's secret.

This module is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from mesh.errors import SessionError
from mesh.wire.capabilities import FIRST, PROOF, PUBLISHER_SECRET, SESSION, Agreed, Offer, read_offer
from mesh.wire.fields import FieldError, binary_up_to, text
from mesh.wire.session_frames import NAME_MAX, Kind, encode

SECRET_MIN: Final = 16
SECRET_MAX: Final = 64
"""Bytes of a secret."""
SECRET_SIZE: Final = 32
"""Bytes of a secret that our clients draw."""
METHOD_MAX: Final = 16
IDENTITY_MAX: Final = 64

TOO_LONG_FOR_FIRST: Final = "a HELLO frame has 7 fields, expected 5"
"""The refusal by which a broker of version 1 answers the HELLO of later ones."""

_VERIFIED: Final = 1 << 63


def client_id(secret: bytes) -> int:
    """The id derived from a secret: the first 8 bytes of its SHA-256 without their highest bit."""
    return int.from_bytes(sha256(secret).digest()[:8], "big") & ~_VERIFIED


def verified(id: int) -> int:
    """The publisher in blocks for an id that nobody else can claim: a client's with its secret, or a broker's
    own."""
    return id | _VERIFIED


def publisher_of(secret: bytes, principal: str = "") -> int:
    """The publisher in the blocks of a client with this secret, as this principal (empty: anonymous)."""
    if not principal:
        return verified(client_id(secret))
    digest = sha256(b"mangrove publisher 1 " + len(secret).to_bytes(1, "big") + secret + principal.encode())
    return verified(int.from_bytes(digest.digest()[:8], "big"))


@dataclass(frozen=True, slots=True)
class Hello:
    """The client's HELLO, and the agreement that follows from it."""

    agreed: Agreed
    client: int
    boot: int
    name: str
    keepalive_s: float
    secret: bytes = b""
    """The client's secret; empty if it gave none."""
    claim: tuple[str, bytes] | None = None
    """A method and an identity that it can prove; None for neither."""

    def publisher(self, principal: str) -> int:
        """The publisher that the client's blocks must name, if it is that principal (empty: anonymous). A
        client that is not told its principal can only know the id of its secret."""
        if not self.secret:
            return self.client
        return publisher_of(self.secret, principal if self.agreed.has(PROOF) else "")


def hello(
    offer: Offer,
    secret: bytes,
    boot: int,
    name: str,
    keepalive_s: float,
    claim: tuple[str, bytes] | None = None,
) -> bytes:
    """The HELLO of a client. The offer ``FIRST`` gives that of version 1, which leaves out the secret.
    ``claim`` is what it can prove: a method and an identity."""
    fields: list[object] = [offer.newest, client_id(secret), boot, name, round(keepalive_s * 1000)]
    if offer != FIRST:
        fields += [offer.packed(), secret]
        if claim is not None:
            fields.append(list(claim))
    return encode(Kind.HELLO, *fields)


def read_hello(fields: list[Any]) -> Hello:
    """Read the fields of a HELLO, as `decode` gives them, without the kind.

    Raises:
        SessionError: offer or claim is malformed, or the secret is not that of the client's id.
        VersionMismatch: there is no version that both speak.
    """
    newest, client, boot, name, keepalive_ms, *rest = fields
    agreed = SESSION.agree(_offer(newest, rest))
    secret: Any = b""
    if agreed.has(PUBLISHER_SECRET):
        secret = rest[1] if len(rest) > 1 else None
        if type(secret) is not bytes or not SECRET_MIN <= len(secret) <= SECRET_MAX:
            raise SessionError(f"field secret is not {SECRET_MIN} to {SECRET_MAX} bytes of binary")
        if client != client_id(secret):
            raise SessionError(f"the client claims id {client:016x}, which does not belong to its secret")
    claim = _claim(rest[2]) if len(rest) > 2 and agreed.has(PROOF) else None
    return Hello(agreed, client, boot, name, keepalive_ms / 1000, secret, claim)


def _claim(packed: Any) -> tuple[str, bytes] | None:
    if packed is None:
        return None
    if type(packed) is not list or len(packed) < 2:
        raise SessionError("field claim is not [method, identity]")
    try:
        return _method("claim.method", packed[0]), _identity("claim.identity", packed[1])
    except FieldError as error:
        raise SessionError(str(error)) from error


_method: Final = text(METHOD_MAX)
_identity: Final = binary_up_to(IDENTITY_MAX)
_principal: Final = text(NAME_MAX)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The broker's WELCOME, and the agreement that follows from it."""

    agreed: Agreed
    broker: str
    mesh: str
    messages: int
    bytes: int
    """The first credit for publishing."""
    principal: str = ""
    """The client's principal; empty if it is anonymous."""


def welcome(
    agreed: Agreed,
    broker: int,
    name: str,
    mesh: str,
    session: int,
    messages: int,
    size: int,
    principal: str = "",
) -> bytes:
    """The WELCOME to a client, after this agreement."""
    more: list[object] = [] if agreed.version == FIRST.newest else [SESSION.packed()]
    if agreed.has(PROOF):
        more.append(principal)
    return encode(Kind.WELCOME, agreed.version, broker, name, mesh, session, messages, size, *more)


def read_welcome(fields: list[Any], said: Offer) -> Welcome:
    """Read the fields of a WELCOME, as `decode` gives them, without the kind. ``said`` is the offer of the
    HELLO that it answers.

    Raises:
        SessionError: the offer or the principal is malformed.
        VersionMismatch: the broker speaks no version that HELLO offered.
    """
    newest, _, broker, mesh, _, messages, size, *rest = fields
    agreed = said.agree(_offer(newest, rest))
    principal = ""
    if agreed.has(PROOF):
        try:
            principal = _principal("principal", rest[1] if len(rest) > 1 else "")
        except FieldError as error:
            raise SessionError(str(error)) from error
    return Welcome(agreed, broker, mesh, messages, size, principal)


def _offer(newest: int, rest: list[Any]) -> Offer:
    try:
        return read_offer(newest, rest)
    except FieldError as error:
        raise SessionError(str(error)) from error
