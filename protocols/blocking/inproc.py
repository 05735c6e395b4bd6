"""``inproc://name`` between blocking sockets: names within this process, each with a listener.

A connection is a pair of kernel sockets, so everything that streams do (limits, closing, waiting) works here
too. Sockets of an event loop have separate names: the two kinds cannot connect to each other.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from protocols.errors import AddressInUse

Accept = Callable[[socket.socket], None]
"""Takes the listener's end, in the dialling thread. Raises OSError."""

_LOCK: Final = threading.RLock()  # a signal handler may close a listener
_LISTENING: Final[dict[tuple[int, str], Accept]] = {}
"""Keyed by process and name, since a forked child has none of its parent's threads."""


@dataclass(frozen=True, slots=True)
class Name:
    name: str


def listen(name: Name, accept: Accept) -> None:
    """Give ``accept`` each connection that is dialled to this name. Raises `AddressInUse`."""
    with _LOCK:
        if _LISTENING.setdefault((os.getpid(), name.name), accept) is not accept:
            raise AddressInUse(f"inproc://{name.name} is in use in this process; choose another name")


def stop(name: Name, accept: Accept) -> None:
    """Stop listening. May be repeated, even when another listener has taken the name."""
    with _LOCK:
        if _LISTENING.get((os.getpid(), name.name)) == accept:
            del _LISTENING[os.getpid(), name.name]


def connect(name: Name) -> socket.socket:
    """Return the dialler's end. Raises `ConnectionRefusedError`."""
    with _LOCK:
        accept = _LISTENING.get((os.getpid(), name.name))
    if accept is None:
        raise ConnectionRefusedError(
            f"no blocking socket of this process listens at inproc://{name.name}; "
            "the sockets of an event loop have separate names"
        )
    ours, theirs = socket.socketpair()
    try:
        accept(theirs)
    except BaseException:
        ours.close()
        raise
    return ours
