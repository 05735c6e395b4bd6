"""What a program can read of its work on a durable subscription, for both clients. Pure."""

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
    """The common part of `Work` and `BlockingWork`; each waits in its own way.

    ``entry`` is the connection to the client's own broker. Where another is the home, ``dial`` makes one to
    its URL.
    """

    def __init__(self, entry: P, dial: Callable[[str], P], feed: WorkFeed) -> None:
        self.closed = False
        self._entry = entry
        self._dial = dial
        self._at = entry
        """Where it is attached now, or asks for its home."""
        self._feed = feed
        """What comes there."""
        self._counters = feed.counters
        self._search = HomeSearch(entry.rng)
        self._portion: Portion | None = None
        """The portion whose single messages are handed out now."""
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
        """Messages that waited at the home when this program attached."""
        return self._feed.waiting

    @property
    def unreached(self) -> tuple[str, ...]:
        """Brokers that had not confirmed the subscription when the barrier ended: level ``stored`` at one of
        them is refused until it has."""
        return self._feed.unreached

    @property
    def late(self) -> int:
        """Messages settled when their session was over: they are delivered again."""
        return self._counters.late

    @property
    def malformed(self) -> int:
        """Messages made dead letters here because nobody can read them or their headers."""
        return self._counters.malformed

    @property
    def interrupted(self) -> int:
        """How often the session with the home was lost."""
        return self._counters.interrupted
