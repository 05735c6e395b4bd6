"""The proofs of clients, and the text forms of keys and tokens.

A client that has a key or a token names it in HELLO. The broker answers with CHALLENGE, which holds a nonce
of this one opening and the broker's id. The client answers with PROVE: a proof over the `statement`, which is
made of both frames as they were sent. So a proof is valid for one opening of one session of one broker only,
and nobody can change the client's HELLO.

* **A key** is an Ed25519 key pair; the proof is a signature (`mesh.access.keys`). The configuration holds the
  public key: ``ed25519:`` and base64.
* **A token** is a file of random text. The token is never sent: as in SCRAM (RFC 5802), the proof is the
  *client key*, a hash of the token, masked by an HMAC of the statement under the *stored key*, a hash of the
  client key. The configuration holds the stored key: ``sha256:`` and hex digits. A reader of the
  configuration can check a proof and cannot make one. An eavesdropper learns neither key. Both together can
  impersonate the client.

This module is pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

KEY: Final = "key"
TOKEN: Final = "token"
METHODS: Final = (KEY, TOKEN)

NONCE_SIZE: Final = 32
PUBLIC_SIZE: Final = 32
TOKEN_ID_SIZE: Final = 8
HASH_SIZE: Final = 32
TOKEN_MIN: Final = 24
"""Bytes of a token. It must be random: an eavesdropper could find one that can be guessed."""
TOKEN_MAX: Final = 4096

KEY_PREFIX: Final = "ed25519:"
TOKEN_PREFIX: Final = "sha256:"


def statement(hello: bytes, challenge: bytes) -> bytes:
    """The input of a proof, made of the HELLO and the CHALLENGE frame without their backtrace."""
    digest = hashlib.sha256(b"mangrove session proof 1 ")
    for frame in (hello, challenge):
        digest.update(len(frame).to_bytes(4, "big"))
        digest.update(frame)
    return digest.digest()


# --- tokens


def client_key(token: bytes) -> bytes:
    """The secret that a client derives from its token, and never sends."""
    return hashlib.sha256(b"mangrove token 1 " + token).digest()


def stored_key(client: bytes) -> bytes:
    """The hash of a client key, which the configuration holds."""
    return hashlib.sha256(b"mangrove token stored 1 " + client).digest()


def token_id(stored: bytes) -> bytes:
    """The name of a token in HELLO."""
    return hashlib.sha256(b"mangrove token id 1 " + stored).digest()[:TOKEN_ID_SIZE]


def token_proof(client: bytes, about: bytes) -> bytes:
    """The proof of a token, over a `statement`."""
    return _masked(client, stored_key(client), about)


def check_token(stored: bytes, about: bytes, proof: bytes) -> bool:
    """True if the proof is that of the token behind a stored key; compared in constant time."""
    if len(proof) != HASH_SIZE:
        return False
    return hmac.compare_digest(stored_key(_masked(proof, stored, about)), stored)


def _masked(value: bytes, stored: bytes, about: bytes) -> bytes:
    mask = hmac.digest(stored, about, "sha256")
    return bytes(left ^ right for left, right in zip(value, mask, strict=True))


# --- as text


def key_text(public: bytes) -> str:
    """A public key as the configuration has it."""
    return KEY_PREFIX + base64.b64encode(public).decode("ascii")


def read_key(text: str) -> bytes:
    """Decode the text of a public key. Raises ValueError with the rest of a sentence that begins with the
    text."""
    try:
        public = base64.b64decode(text.removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        public = b""
    if not text.startswith(KEY_PREFIX) or len(public) != PUBLIC_SIZE:
        raise ValueError(f"is no public key; write {KEY_PREFIX} and 44 characters, as `mesh key show` prints")
    return public


def token_text(stored: bytes) -> str:
    """A stored key as the configuration has it."""
    return TOKEN_PREFIX + stored.hex()


def read_token(text: str) -> bytes:
    """Decode the text of a stored key. Raises ValueError with the rest of a sentence that begins with the
    text."""
    try:
        stored = bytes.fromhex(text.removeprefix(TOKEN_PREFIX))
    except ValueError:
        stored = b""
    if not text.startswith(TOKEN_PREFIX) or len(stored) != HASH_SIZE:
        raise ValueError(
            f"is no hash of a token; write {TOKEN_PREFIX} and 64 hex digits, as `mesh key token` prints"
        )
    return stored


def checked_token(content: bytes) -> bytes:
    """The token in a file's content. Raises ValueError with the rest of a sentence."""
    token = content.strip()
    if any(byte <= 0x20 for byte in token):
        raise ValueError("is no token: it has white space inside; make one with `mesh key token`")
    if not TOKEN_MIN <= len(token) <= TOKEN_MAX:
        raise ValueError(
            f"has a token of {len(token)} bytes; it takes {TOKEN_MIN} to {TOKEN_MAX}, as `mesh key token`"
            " makes"
        )
    return token
