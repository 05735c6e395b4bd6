"""The places where a client looks for a broker, and the errors if it finds none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Final

from mesh.clients.addresses import Place
from mesh.environment import DEFAULT_TCP_URL, default_ipc_url
from mesh.listen import separate_urls
from protocols import AddressError, HandshakeError, TlsConfigError, check_dialable

GIVEN_MAX: Final = 64
"""Addresses that a program may give to a client."""


def broker_place(given: str | Sequence[str] | None) -> Place:
    """The place for a URL, for several URLs, or the default place.

    Raises:
        AddressError: a URL cannot be understood, or names nothing that can be dialled.
        TypeError: it is neither a string nor a list of strings.
        ValueError: too many were given.
    """
    if not given:
        return _default_place_checked()
    if isinstance(given, str):
        return Place((check_dialable(given),))
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        check_dialable(given)  # raises
    if len(given) > GIVEN_MAX:
        raise ValueError(f"{len(given)} addresses; a client takes at most {GIVEN_MAX}")
    return Place(tuple(map(check_dialable, given)), moves=True)


def _default_place_checked() -> Place:
    place = default_place()
    try:
        for url in place.urls:
            check_dialable(url)
    except AddressError as error:  # the other defaults are sound
        raise AddressError(f"MANGROVE_URL cannot be used: {error}") from error
    return place


def default_place() -> Place:
    """The addresses in ``MANGROVE_URL`` (separated by commas). Without them: the local broker's ipc socket if
    there is one, and then TCP on loopback.

    A broker that was killed leaves its ipc socket behind, and the next one may listen on TCP only.
    """
    given = separate_urls(os.environ.get("MANGROVE_URL", ""))
    if given:
        return Place(given, moves=len(given) > 1)
    local = default_ipc_url()
    if os.path.exists(local.removeprefix("ipc://")):
        return Place((local, DEFAULT_TCP_URL))
    return Place((DEFAULT_TCP_URL,))


def dialable(urls: Sequence[str]) -> list[str]:
    """The URLs that can be dialled."""
    found = []
    for url in urls:
        with contextlib.suppress(AddressError):
            found.append(check_dialable(url))
    return found


def why_no_session(url: str, error: Exception) -> str:
    """A failed dial as a sentence. The advice depends on whether a handshake failed or nobody listened."""
    if isinstance(error, (HandshakeError, TlsConfigError)):
        return f"no session at {url}: {error}"
    return f"no broker at {url} ({error}); start one with `mesh broker` or give another url"
