"""Where a client looks for a broker, and what it says when it found none."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mesh.environment import DEFAULT_TCP_URL, default_ipc_url
from protocols import AddressError, HandshakeError, TlsConfigError, check_dialable


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client looks for its broker."""

    url: str
    otherwise: str = ""
    """Dialled once, before the first session, if nobody listens at ``url``; empty: there is none."""


def broker_place(given: str | None) -> Place:
    """At the URL that was given, else at the default one.

    Raises:
        AddressError: it cannot be understood, or names nothing that can be dialled.
        TypeError: it is no string.
    """
    if given:
        return Place(check_dialable(given))
    place = default_place()
    try:
        check_dialable(place.url)
    except AddressError as error:  # the other defaults are sound
        raise AddressError(f"MANGROVE_URL cannot be used: {error}") from error
    return place


def default_place() -> Place:
    """``MANGROVE_URL``, else the local broker's ipc socket if there is one, else TCP on loopback.

    A broker that was killed leaves its ipc socket behind, and the next one may listen at TCP only.
    """
    given = os.environ.get("MANGROVE_URL", "")
    if given:
        return Place(given)
    local = default_ipc_url()
    if os.path.exists(local.removeprefix("ipc://")):
        return Place(local, DEFAULT_TCP_URL)
    return Place(DEFAULT_TCP_URL)


def nobody_at(url: str) -> str:
    """The beginning of a sentence about a second place."""
    return f"nobody listens at {url}, and "


def why_no_session(url: str, error: Exception) -> str:
    """A failed dial as a sentence: what to do differs if somebody is there and hands could not be shaken."""
    if isinstance(error, (HandshakeError, TlsConfigError)):
        return f"no session at {url}: {error}"
    return f"no broker at {url} ({error}); start one with `mesh broker` or give another url"
