"""The address where HTTP is served, and the password in its file."""

from __future__ import annotations

from pathlib import Path

from mesh.config.sections import BrokerConfig
from mesh.errors import ConfigError
from mesh.listen import ANYBODY, LOCAL, HttpListen


def http_listen(config: BrokerConfig) -> HttpListen | None:
    """Combine the keys ``http``, ``http_readers`` and ``http_hosts``. Raises `ConfigError`."""
    if config.http is None:
        return None
    readers = config.http_readers
    password = None if readers in (LOCAL, ANYBODY) else _password(readers)
    return HttpListen(config.http, password, anybody=readers == ANYBODY, hosts=config.http_hosts)


def _password(path: str) -> str:
    """The content of a file, without white space around it."""
    try:
        password = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: the password of http_readers cannot be read: {reason}") from None
    except RuntimeError:  # neither HOME nor the user database names the home folder
        raise ConfigError(f"{path}: this user has no home folder; write the whole path") from None
    if not password:
        raise ConfigError(f"{path}: the password file of http_readers is empty")
    return password
