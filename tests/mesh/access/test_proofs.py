"""Proofs are valid for one opening, and the configuration's text proves nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.access import proofs
from mesh.access.keys import SigningKey, check_signature
from mesh.errors import ConfigError

TOKEN = b"a-token-of-some-random-text"


def test_a_token_proves_itself_and_nothing_else_does() -> None:
    client = proofs.client_key(TOKEN)
    stored = proofs.stored_key(client)
    about = proofs.statement(b"hello", b"challenge")
    proof = proofs.token_proof(client, about)
    assert proofs.check_token(stored, about, proof)
    assert not proofs.check_token(stored, proofs.statement(b"hello", b"another"), proof), "replayed"
    assert not proofs.check_token(stored, proofs.statement(b"hell", b"ochallenge"), proof), "cut elsewhere"
    other = proofs.token_proof(proofs.client_key(TOKEN + b"!"), about)
    assert not proofs.check_token(stored, about, other)
    for wrong in (b"", proof[:-1], proof + b"x", bytes(32), stored, client):
        assert not proofs.check_token(stored, about, wrong)


def test_the_configured_hash_of_a_token_proves_nothing() -> None:
    stored = proofs.stored_key(proofs.client_key(TOKEN))
    about = proofs.statement(b"hello", b"challenge")
    assert not proofs.check_token(stored, about, proofs.token_proof(stored, about))
    assert stored not in proofs.token_id(stored) and TOKEN not in proofs.token_text(stored).encode()


@given(st.binary(max_size=80))
def test_random_bytes_are_no_proof(noise: bytes) -> None:
    stored = proofs.stored_key(proofs.client_key(TOKEN))
    assert not proofs.check_token(stored, proofs.statement(b"h", b"c"), noise)


def test_a_key_proves_itself_and_nothing_else_does() -> None:
    key = SigningKey.of_pem(SigningKey.generate().pem())
    about = proofs.statement(b"hello", b"challenge")
    signature = key.sign(about)
    assert check_signature(key.public, about, signature)
    assert not check_signature(key.public, proofs.statement(b"hello", b"other"), signature)
    assert not check_signature(SigningKey.generate().public, about, signature)
    for wrong in (b"", signature[:-1], signature + b"x", bytes(64), b"x" * 10_000):
        assert not check_signature(key.public, about, wrong)
    assert not check_signature(b"short", about, signature)


def test_texts_are_read_as_they_are_written() -> None:
    public = SigningKey.generate().public
    stored = proofs.stored_key(proofs.client_key(TOKEN))
    assert proofs.read_key(proofs.key_text(public)) == public
    assert proofs.read_token(proofs.token_text(stored)) == stored


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:!!", "ed25519:AAAA", "sha256:" + "0" * 64, "é"])
def test_a_malformed_public_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no public key"):
        proofs.read_key(text)


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:xy", "sha256:" + "0" * 63, "0" * 64, "é"])
def test_a_malformed_hash_of_a_token_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no hash of a token"):
        proofs.read_token(text)


def test_a_token_that_can_be_guessed_is_refused() -> None:
    assert proofs.checked_token(b"  " + TOKEN + b"\n") == TOKEN
    for content in (b"", b"secret\n", b"x" * 5000):
        with pytest.raises(ValueError, match="has a token of"):
            proofs.checked_token(content)
    with pytest.raises(ValueError, match="white space inside"):
        proofs.checked_token(b"[broker]\nname = 'a configuration'")


def test_files_that_hold_no_key_are_refused_with_a_sentence() -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    def pem(private: object, protection: serialization.KeySerializationEncryption) -> bytes:
        return private.private_bytes(  # type: ignore[attr-defined, no-any-return]
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
        )

    plain = serialization.NoEncryption()
    with pytest.raises(ConfigError, match="of another kind"):
        SigningKey.of_pem(pem(ec.generate_private_key(ec.SECP256R1()), plain))
    locked = pem(ed25519.Ed25519PrivateKey.generate(), serialization.BestAvailableEncryption(b"x"))
    with pytest.raises(ConfigError, match="is encrypted"):
        SigningKey.of_pem(locked)
    with pytest.raises(ConfigError, match="holds no private key"):
        SigningKey.of_pem(b"nothing")
