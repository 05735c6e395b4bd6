"""Warnings about pending messages: failures that the program never looked at, and callbacks that raise.

Both are logged at the rate of `PeerWarnings`, since a broker that is away may fail thousands of messages a
second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mesh.clients.blocking_copies import belongs_to_this_process
from mesh.clients.pending import AnyPending
from mesh.errors import MeshError
from mesh.logs import log
from protocols.peer_warnings import PeerWarnings


class PendingWarnings:
    """The warnings of one client; ``clock`` gives seconds. A forked child leaves them to its parent."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._unheard = PeerWarnings(log)
        self._raised = PeerWarnings(_WithTraceback())
        self._copied = False
        belongs_to_this_process(self)

    def forget_received(self) -> None:
        """Drop the callbacks that a fork has copied into this child."""
        self._copied = True

    def unheard(self, count: int, error: MeshError) -> None:
        """Warn of failed messages at whose errors nobody looked, and nobody can any more."""
        if not self._copied:
            what = f"{count} published messages" if count > 1 else "a published message"
            self._unheard.warn(self._clock(), None, "nobody looked at the outcome of %s: %s", what, error)

    def call(self, callback: Callable[[Any], object], outcome: AnyPending) -> None:
        """Make a callback. An exception that it raises is logged, unless it ends the program."""
        try:
            callback(outcome)
        except Exception as error:
            self._raised.warn(self._clock(), type(error), "a callback of %r raised", outcome)


class _WithTraceback:
    """The log, with the traceback of the exception that is being handled."""

    def warning(self, message: str, /, *arguments: object) -> None:
        log.warning(message, *arguments, exc_info=True)
