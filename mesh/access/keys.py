"""Ed25519 keys: how they are made, read, used and checked, by the package ``cryptography``.

A private key lies in a PEM file (PKCS #8, not encrypted), as ``openssl genpkey -algorithm ed25519`` writes it
too. The package is an extra of the installation. It is loaded when a key is used or checked.
"""

from __future__ import annotations

from typing import Any

from mesh.errors import ConfigError

MISSING = (
    "Ed25519 keys need the package cryptography: install mangrove-mesh with the extra 'keys', or use a token"
)


class SigningKey:
    """A private key. ``public`` is the public key, 32 bytes."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Any) -> None:
        self._private = private
        self.public: bytes = private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> SigningKey:
        """Make a new key. Raises `ConfigError` if ``cryptography`` is missing."""
        return cls(_ed25519().Ed25519PrivateKey.generate())

    @classmethod
    def of_pem(cls, text: bytes) -> SigningKey:
        """Read the key of a PEM file's content. Raises `ConfigError` with the rest of a sentence about the
        file."""
        ed25519 = _ed25519()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            private = load_pem_private_key(text, password=None)
        except TypeError:
            raise ConfigError(
                "is encrypted; store the key without a password, readable by its user"
            ) from None
        except (ValueError, UnsupportedAlgorithm):
            raise ConfigError("holds no private key in PEM form; make one with `mesh key new`") from None
        if not isinstance(private, ed25519.Ed25519PrivateKey):
            raise ConfigError("holds a key of another kind than Ed25519; make one with `mesh key new`")
        return cls(private)

    def pem(self) -> bytes:
        """The content of its file."""
        from cryptography.hazmat.primitives import serialization

        text: bytes = self._private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return text

    def sign(self, about: bytes) -> bytes:
        signature: bytes = self._private.sign(about)
        return signature


def check_signature(public: bytes, about: bytes, signature: bytes) -> bool:
    """True if the owner of a public key made the signature. Raises `ConfigError` if ``cryptography`` is
    missing."""
    ed25519 = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, about)
    except (InvalidSignature, ValueError):
        return False
    return True


def check_available() -> None:
    """Raises `ConfigError` if ``cryptography`` is missing."""
    _ed25519()


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError(MISSING) from None
    return ed25519
