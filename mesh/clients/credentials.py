"""A client's credentials, read from the files that the program names."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from mesh.access.credentials import Credential, KeyCredential, TokenCredential
from mesh.access.keys import SigningKey
from mesh.access.proofs import checked_token
from mesh.errors import ConfigError
from mesh.logs import log
from mesh.wire.fields import shown


def credential_of(key: Any, token_file: Any) -> Credential | None:
    """Read the credential of a key file or a token file; None if neither is given.

    Raises:
        ConfigError: both are given, or the file cannot be read or holds something else.
    """
    if key is not None and token_file is not None:
        raise ConfigError("a client has a key or a token, not both; leave key or token_file out")
    if key is not None:
        path, content = _read("key", key)
        try:
            return KeyCredential(SigningKey.of_pem(content))
        except ConfigError as error:
            raise ConfigError(f"{path}: the file {error}" if _is_of_file(error) else str(error)) from None
    if token_file is not None:
        path, content = _read("token_file", token_file)
        try:
            return TokenCredential(checked_token(content))
        except ValueError as error:
            raise ConfigError(f"{path}: the file {error}") from None
    return None


def _is_of_file(error: ConfigError) -> bool:
    """True if the error is about the file; False if a package is missing."""
    return str(error).startswith(("is ", "holds "))


def _read(what: str, given: Any) -> tuple[str, bytes]:
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise ConfigError(f"{what} is {shown(given)}; it takes the path of a file, or None")
    path = os.fspath(given)
    if "\0" in path:
        raise ConfigError(f"{what} is {shown(given)}; a path has no NUL")
    try:
        with Path(path).expanduser().open("rb") as file:
            _warn_of_readers(path, what, os.fstat(file.fileno()))
            return path, file.read()
    except OSError as error:
        raise ConfigError(
            f"{path}: the {what.removesuffix('_file')} cannot be read: {error.strerror}"
        ) from None
    except RuntimeError:  # neither HOME nor the user database names the home folder
        raise ConfigError(f"{path}: this user has no home folder; write the whole path") from None


def _warn_of_readers(path: str, what: str, status: os.stat_result) -> None:
    """Warn of a secret of this user that other users can read. Files of other users, such as a container's
    secrets, are theirs to protect."""
    if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
        name = what.removesuffix("_file")
        log.warning("other users may read or change the %s in %s; run chmod 600 on it", name, path)
