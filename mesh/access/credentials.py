"""A client's means to prove its identity: a key or a token. Pure."""

from __future__ import annotations

from typing import Protocol

from mesh.access import proofs
from mesh.access.keys import SigningKey


class Credential(Protocol):
    """Proves the identity of its owner."""

    @property
    def claim(self) -> tuple[str, bytes]:
        """The fields that HELLO carries: the method, and the name of the key or token."""

    def prove(self, about: bytes) -> bytes:
        """The proof over a statement (`mesh.access.proofs.statement`)."""


class KeyCredential:
    """An Ed25519 key."""

    __slots__ = ("_key", "claim")

    def __init__(self, key: SigningKey) -> None:
        self._key = key
        self.claim = (proofs.KEY, key.public)

    def prove(self, about: bytes) -> bytes:
        return self._key.sign(about)


class TokenCredential:
    """A token."""

    __slots__ = ("_client_key", "claim")

    def __init__(self, token: bytes) -> None:
        self._client_key = client_key = proofs.client_key(token)
        self.claim = (proofs.TOKEN, proofs.token_id(proofs.stored_key(client_key)))

    def prove(self, about: bytes) -> bytes:
        return proofs.token_proof(self._client_key, about)
