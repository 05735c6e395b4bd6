"""Files of keys and tokens, as programs name them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mesh import BlockingClient, Client, ConfigError
from mesh.access import proofs
from mesh.access.keys import SigningKey, check_signature
from mesh.clients.credentials import credential_of

TOKEN = b"a-token-of-some-random-text"


def test_a_key_file_signs(tmp_path: Path) -> None:
    key = SigningKey.generate()
    (tmp_path / "key").write_bytes(key.pem())
    found = credential_of(tmp_path / "key", None)
    assert found is not None and found.claim == ("key", key.public)
    assert check_signature(key.public, b"about", found.prove(b"about"))


def test_a_token_file_proves(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(TOKEN + b"\n")
    found = credential_of(None, str(tmp_path / "token"))
    stored = proofs.stored_key(proofs.client_key(TOKEN))
    assert found is not None and found.claim == ("token", proofs.token_id(stored))
    assert proofs.check_token(stored, b"about", found.prove(b"about"))
    assert credential_of(None, None) is None


@pytest.mark.parametrize("made", [Client, BlockingClient])
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (lambda folder: {"key": folder / "none"}, "none: the key cannot be read: No such file"),
        (lambda folder: {"token_file": folder / "none"}, "none: the token cannot be read: No such file"),
        (lambda folder: {"key": folder / "short"}, "short: the file holds no private key in PEM form"),
        (lambda folder: {"token_file": folder / "short"}, "short: the file has a token of 6 bytes"),
        (lambda folder: {"key": folder}, "the key cannot be read: Is a directory"),
        (lambda folder: {"key": 5}, "key is 5; it takes the path of a file"),
        (lambda folder: {"token_file": ""}, "token_file is ''; it takes the path of a file"),
        (lambda folder: {"key": "a\0b"}, r"key is 'a\x00b'; a path has no NUL"),
        (lambda folder: {"key": "a", "token_file": "b"}, "a key or a token, not both"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_before_anything_is_dialled(
    made: type, given: Callable[[Path], dict[str, Any]], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "short").write_bytes(b"secret")
    with pytest.raises(ConfigError) as caught:
        made("tcp://127.0.0.1:1", **given(tmp_path))
    assert sentence in str(caught.value)


def test_a_secret_that_other_users_can_read_is_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    path.write_bytes(TOKEN)
    path.chmod(0o600)
    assert credential_of(None, path) is not None and not caplog.messages
    path.chmod(0o640)
    assert credential_of(None, path) is not None
    assert caplog.messages == [f"other users may read or change the token in {path}; run chmod 600 on it"]


def test_a_key_without_the_cryptography_package_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_bytes(SigningKey.generate().pem())
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.asymmetric", None)
    with pytest.raises(ConfigError, match="need the package cryptography"):
        Client("tcp://127.0.0.1:1", key=tmp_path / "key")
