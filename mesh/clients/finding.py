"""Where a client looks for a broker, and what it says when it found none."""

from __future__ import annotations

import os

from mesh.environment import DEFAULT_TCP_URL, default_ipc_url
from protocols import AddressError, HandshakeError, TlsConfigError, check_dialable


def broker_url(given: str | None) -> str:
    """The URL that was given, else the default one, if a broker may be reached there.

    Raises:
        AddressError: it cannot be understood, or names nothing that can be dialled.
        TypeError: it is no string.
    """
    if given:
        return check_dialable(given)
    url = default_url()
    try:
        return check_dialable(url)
    except AddressError as error:  # the other defaults are sound
        raise AddressError(f"MANGROVE_URL cannot be used: {error}") from error


def default_url() -> str:
    """``MANGROVE_URL``, else the local broker's ipc socket if there is one, else TCP on loopback."""
    given = os.environ.get("MANGROVE_URL", "")
    if given:
        return given
    local = default_ipc_url()
    return local if os.path.exists(local.removeprefix("ipc://")) else DEFAULT_TCP_URL


def why_no_session(url: str, error: Exception) -> str:
    """A failed dial as a sentence: what to do differs if somebody is there and hands could not be shaken."""
    if isinstance(error, (HandshakeError, TlsConfigError)):
        return f"no session at {url}: {error}"
    return f"no broker at {url} ({error}); start one with `mesh broker` or give another url"
