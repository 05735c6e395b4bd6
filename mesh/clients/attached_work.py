"""The values that a program can read of its work on a durable subscription, for both clients. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf
from typing import Generic, Protocol, TypeVar

from mesh.clients.conversation import Conversation
from mesh.clients.home_search import HomeSearch
from mesh.clients.work_feeds import Portion, WorkFeed


class Place(Protocol):
    """A connection to a broker, of either client."""

    @property
    def conversation(self) -> Conversation: ...
    @property
    def rng(self) -> random.Random: ...


P = TypeVar("P", bound=Place)


class AttachedWork(Generic[P]):
    """The common part of `Work` and `BlockingWork`, which differ in how they wait.

    ``entry`` is the connection to the client's own broker. If another broker is the home, ``dial`` makes a
    connection to its URL.
    """

    def __init__(self, entry: P, dial: Callable[[str], P], feed: WorkFeed) -> None:
        self.closed = False
        self._entry = entry
        self._dial = dial
        self._at = entry
        """The connection where it is attached, or where it asks for its home."""
        self._feed = feed
        """The messages that arrive there."""
        self._counters = feed.counters
        self._search = HomeSearch(entry.rng)
        self._portion: Portion | None = None
        """The portion whose messages are being handed out one by one."""
        self._said_at = -inf

    @property
    def name(self) -> str:
        return self._feed.name

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(self._feed.patterns)

    @property
    def home(self) -> str:
        """The name of the broker that keeps the messages; empty until it is known."""
        return self._at.conversation.broker if self._search.found else ""

    @property
    def waiting(self) -> int:
        """Number of messages that waited at the home when this program attached."""
        return self._feed.waiting

    @property
    def unreached(self) -> tuple[str, ...]:
        """Brokers that had not confirmed the subscription when the barrier ended. Level ``stored`` is refused
        at each of them until it has."""
        return self._feed.unreached

    @property
    def late(self) -> int:
        """Number of messages settled after their session had ended; they are delivered again."""
        return self._counters.late

    @property
    def malformed(self) -> int:
        """Number of messages that became dead letters here, since they or their headers cannot be decoded."""
        return self._counters.malformed

    @property
    def interrupted(self) -> int:
        """Number of times that the session with the home was lost."""
        return self._counters.interrupted
