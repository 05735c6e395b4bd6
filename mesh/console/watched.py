"""The notes of a watcher about its own broker: which one answers, and for how long none has. Pure."""

from __future__ import annotations

from typing import Final, Protocol

from mesh.console.figures import duration
from mesh.console.probe import Look
from mesh.printable import printable

MOVED_S: Final = 10.0
"""Seconds for which the screen says that another broker answers now."""


class Connection(Protocol):
    """The part of a client that this needs."""

    @property
    def broker(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def connected(self) -> bool: ...


class Watched:
    """Sentences about the broker that a watcher is connected to. Times are in seconds on one clock."""

    def __init__(self) -> None:
        self.is_stale = False
        """The last look brought no answer."""
        self._name = ""
        self._before = ""
        self._moved_at = 0.0
        self._silent_since: float | None = None

    def answered(self, seen: Look, now: float) -> str:
        """A look brought an answer; returns a note if another broker answers now."""
        name = printable(str(seen.statuses[0].get("name", "?")))
        if self._name and name != self._name:
            self._before, self._moved_at = self._name, now
        self._name = name
        self.is_stale, self._silent_since = False, None
        if self._before and now - self._moved_at < MOVED_S:
            return f"{self._before} does not answer any more; this is what {name} says"
        return ""

    def failed(self, client: Connection, error: Exception, now: float) -> str:
        """A look brought none; returns why and for how long."""
        self.is_stale = True
        if self._silent_since is None:
            self._silent_since = now
        for_s = duration(now - self._silent_since)
        name = printable(client.broker) or "the broker"
        if client.connected:
            return f"{name} at {printable(client.url)} has not answered for {for_s}"
        why = printable(" ".join(str(error).split())).rstrip(".")
        return f"no broker answers for {for_s}; looking for one at {printable(client.url)}" + (
            f" ({why})" if why else ""
        )
