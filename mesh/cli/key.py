"""``mesh key``: keys and tokens by which clients prove who they are."""

from __future__ import annotations

import os
import secrets
import sys
from typing import Final

from cyclopts import App, Parameter

from mesh.access.keys import SigningKey
from mesh.access.proofs import checked_token, client_key, key_text, stored_key, token_text
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.clients.credentials import credential_of
from mesh.errors import ConfigError
from mesh.storage import disk_advice

TOKEN_BYTES: Final = 32

app = App(
    name="key",
    help="Make keys and tokens by which clients prove who they are.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)


@app.command
def new(file: str, /) -> None:
    """Write a new Ed25519 key into a file; print what the brokers' configuration needs of it.

    Parameters
    ----------
    file
        Where to write it, readable by this user only; an existing file is left alone.
    """
    key = SigningKey.generate()
    _write(file, key.pem())
    _tell(file, "keys", key_text(key.public))


@app.command
def token(file: str, /) -> None:
    """Write a new token into a file; print what the brokers' configuration needs of it.

    Parameters
    ----------
    file
        Where to write it, readable by this user only; an existing file is left alone.
    """
    text = secrets.token_urlsafe(TOKEN_BYTES).encode()
    _write(file, text + b"\n")
    _tell(file, "tokens", token_text(stored_key(client_key(checked_token(text)))))


@app.command
def show(file: str, /) -> None:
    """Print what the brokers' configuration needs of a key or a token.

    Parameters
    ----------
    file
        The file of the client, as `mesh key new` or `mesh key token` wrote it.
    """
    try:
        with open(file, "rb") as opened:
            content = opened.read(1 << 16)
    except OSError as error:
        raise CommandFailed(ExitCode.NO_INPUT, f"{file}: {disk_advice(error)}") from error
    if b"-----BEGIN" in content:
        credential = credential_of(file, None)
        assert credential is not None
        print(key_text(credential.claim[1]))
        return
    try:
        print(token_text(stored_key(client_key(checked_token(content)))))
    except ValueError as error:
        raise ConfigError(f"{file}: the file {error}") from None


def _write(file: str, content: bytes) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise CommandFailed(ExitCode.FAILED, f"{file} exists and is left as it is") from None
    except OSError as error:
        raise CommandFailed(ExitCode.CANNOT_CREATE, f"{file}: {disk_advice(error)}") from error
    try:
        with open(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        os.unlink(file)
        raise CommandFailed(ExitCode.CANNOT_CREATE, f"{file}: {disk_advice(error)}") from error


def _tell(file: str, kind: str, text: str) -> None:
    print(text)
    print(
        f'wrote {file}; in the configuration of the brokers: [principals.NAME] and {kind} = ["{text}"]',
        file=sys.stderr,
    )
