"""Warnings about peers, by default in the logger ``protocols``, at a rate that peers cannot control.

A peer that does something wrong usually does it again, and a hostile one does it as often as it can. So:

* A complaint has a key such as (host, reason), and each key is logged once in `REPEAT_S` seconds.
* All complaints of one `PeerWarnings` share a budget: `BURST` lines at once, then one in `REFILL_S` seconds.
* Dropped lines are counted, and the next line says how many there were.

A caller that can report by other means (an exception, a callback) reports there and logs nothing.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from protocols.errors import RemoteProtocolError
from protocols.pipe import Connection

log: Final = logging.getLogger("protocols")

BURST: Final = 10
REFILL_S: Final = 30.0
REPEAT_S: Final = 600.0
KEYS_MAX: Final = 256
"""Complaints remembered at once. Beyond that, the oldest is forgotten, and may be logged again."""


class Warned(Protocol):
    """The methods of a logger that this module uses."""

    def warning(self, message: str, /, *arguments: object) -> None: ...


class PeerWarnings:
    """The warnings of one endpoint, in ``logger``."""

    __slots__ = ("_left_out", "_lines", "_logged", "_logger", "_refilled")

    def __init__(self, logger: Warned = log) -> None:
        self._logger = logger
        self._logged: dict[object, float] = {}
        self._lines = BURST
        self._refilled = 0.0
        self._left_out = 0

    def warn(self, now: float, key: object, message: str, *arguments: object) -> None:
        """Log ``message % arguments`` unless this key was logged recently or the budget is spent.

        The key None marks a complaint that the caller knows to be new. ``now`` is any monotonic clock, in
        seconds.
        """
        before = None if key is None else self._logged.get(key)
        if (before is not None and now - before < REPEAT_S) or not self._has_room(now):
            self._left_out += 1
            return
        self._lines -= 1
        if key is not None:
            self._remember(key, now)
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self._logger.warning(message + " (%d warnings left out since the last one)", *arguments, left_out)
        else:
            self._logger.warning(message, *arguments)

    def refused(self, now: float, url: str, connection: Connection, reason: str, sentence: str) -> None:
        """A listener refused a peer. A mere check of the port is not logged."""
        if reason != "closed":
            peer = name_of(connection)
            self.warn(now, (host_of(peer), reason), "%s refused %s: %s", url, peer, sentence)

    def broke_a_rule(self, now: float, url: str, connection: Connection, error: RemoteProtocolError) -> None:
        """The peer of a connection at ``url`` lost it by breaking a rule of the wire."""
        peer = name_of(connection)
        key = (host_of(peer), error.reason)
        self.warn(now, key, "the connection of %s at %s was closed: %s", peer, url, error)

    def _remember(self, key: object, now: float) -> None:
        self._logged.pop(key, None)
        if len(self._logged) >= KEYS_MAX:
            del self._logged[next(iter(self._logged))]
        self._logged[key] = now

    def _has_room(self, now: float) -> bool:
        if self._lines >= BURST:
            self._refilled = now  # a full budget does not grow
        gained = int((now - self._refilled) / REFILL_S)
        if gained > 0:
            self._lines = min(BURST, self._lines + gained)
            self._refilled += gained * REFILL_S
        return self._lines > 0


def name_of(connection: Connection) -> str:
    """A peer's name for messages: its address with the port, or the process that the kernel names (ipc)."""
    if connection.remote_address:
        return connection.remote_address
    identity = connection.identity
    if identity is not None and identity.pid is not None:
        return f"process {identity.pid} of user {identity.uid}"
    return "a peer without an address"


def host_of(peer: str) -> str:
    """A peer's name without its port, which changes with each attempt."""
    return peer.rpartition(":")[0]
