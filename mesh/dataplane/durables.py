"""The durable subscriptions that have their home here, and which of them want a topic. Pure.

A subscription that does not match a block's topic costs the block nothing. A trie of patterns finds the ids
that want a topic. A cache bounded by bytes keeps the results.

A `WorkQueue` is made when the first consumer attaches. Until then a subscription is a record of some hundred
bytes here, and its messages are only in the journal.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from mesh.dataplane.options import ExchangeOptions
from mesh.journal.records import Kept
from mesh.topics import is_starred
from mesh.topics.trie import PatternTrie
from mesh.wire.durable_frames import DEAD_PREFIX, PATTERNS_MAX
from mesh.work.options import WorkOptions
from mesh.work.queue import WorkQueue

if TYPE_CHECKING:
    from mesh.dataplane.workers import Attachment

CACHE_BYTES_MAX: Final = 16 << 20
"""Memory of the cache of topics. Beyond it the cache starts afresh."""
TOPIC_COST: Final = 200
"""Approximate memory of a cached topic besides its bytes and its ids of eight bytes each."""
HOME_PATTERNS_MAX: Final = 65_536
"""Patterns of all durable subscriptions of one home. Other brokers accept no more."""

_live: Final = WorkOptions()
_dead: Final = WorkOptions(attempts_max=None)


class Durable:
    """One durable subscription and its consumers."""

    __slots__ = (
        "_before",
        "ahead",
        "attachments",
        "confirmed",
        "counted_at",
        "damaged",
        "due",
        "id",
        "name",
        "oldest_us",
        "patterns",
        "queue",
        "size",
        "stored",
        "version",
    )

    def __init__(self, id: int, name: str, patterns: tuple[str, ...], waiting: int = 0) -> None:
        self.id = id
        self.name = name
        self.patterns = patterns
        self.attachments: dict[int, Attachment] = {}
        """By consumer number."""
        self.queue: WorkQueue | None = None
        self.confirmed = False
        """True if a program was told that it exists, or if it is from an earlier run."""
        self.version = 0
        """The first table version of this home with this subscription. 0: it is from an earlier run."""
        self.stored = 0
        """Messages that were committed for it in this run."""
        self.ahead = 0
        """Bytes that its queue had read ahead at the last look."""
        self.due = inf
        """When its queue is checked even if nothing happens."""
        self.size: int | None = None
        """Bytes of its waiting blocks when the journal was last asked."""
        self.oldest_us: int | None = None
        """Arrival of the oldest one. None if nothing waited, or if nobody asked."""
        self.damaged = 0
        """Rows of it that were found damaged in this run."""
        self.counted_at = -inf
        """When its rows in the journal were last counted."""
        self._before = waiting

    @property
    def waiting(self) -> int:
        """Messages that are not settled."""
        return self._before + self.stored - self.settled

    @property
    def settled(self) -> int:
        """Messages that were settled in this run, dead letters among them."""
        counters = self.queue.counters if self.queue is not None else None
        return counters.settled + counters.buried if counters is not None else 0

    def withdrawn(self, row: int) -> None:
        """An operator removed this row of one message."""
        if self.queue is None or self.queue.withdraw(row):
            self._before -= 1

    def work(self) -> WorkQueue:
        """Its queue, made now if there is none."""
        if self.queue is None:
            self.queue = WorkQueue(_dead if self.name.startswith(DEAD_PREFIX) else _live)
        return self.queue


class Durables:
    """All of this home, by name and by id."""

    def __init__(self, options: ExchangeOptions) -> None:
        self.by_name: dict[str, Durable] = {}
        self.by_id: dict[int, Durable] = {}
        self._options = options
        self._trie: PatternTrie[int] = PatternTrie()
        self._starred = 0
        self._wanting: dict[bytes, tuple[int, ...]] = {}
        self._cached = 0

    def add(self, kept: Kept) -> Durable:
        durable = Durable(kept.id, kept.name, kept.patterns, kept.messages)
        self.by_name[kept.name] = self.by_id[kept.id] = durable
        for pattern in kept.patterns:
            self._trie.add(pattern, kept.id)
        self._starred += sum(map(is_starred, kept.patterns))
        self._forget_topics()
        return durable

    def remove(self, durable: Durable) -> None:
        del self.by_name[durable.name], self.by_id[durable.id]
        for pattern in durable.patterns:
            self._trie.discard(pattern, durable.id)
        self._starred -= sum(map(is_starred, durable.patterns))
        self._forget_topics()

    def wanting(self, topic: bytes) -> tuple[int, ...]:
        """Ids of the subscriptions that a topic matches."""
        found = self._wanting.get(topic)
        if found is None:
            found = tuple(self._trie.match(topic.decode("utf-8", "replace")))
            self._cached += TOPIC_COST + len(topic) + 8 * len(found)
            if self._cached > CACHE_BYTES_MAX:
                self._forget_topics()
            self._wanting[topic] = found
        return found

    def table(self) -> dict[str, tuple[str, ...]]:
        """Names and patterns, in the form that other brokers keep."""
        return {name: durable.patterns for name, durable in self.by_name.items()}

    def above_limit(self, name: str, patterns: tuple[str, ...]) -> str:
        """Why a subscription cannot be made. Empty if it can."""
        options = self._options
        if len(self.by_name) >= options.durables_max:
            return (
                f"there are {len(self.by_name)} durable subscriptions here, the most that durables_max allows"
            )
        if len(patterns) > PATTERNS_MAX:
            return f"durable subscription {name!r} has {len(patterns)} patterns; {PATTERNS_MAX} are allowed"
        if len(self._trie) + len(patterns) > HOME_PATTERNS_MAX:
            return (
                f"the durable subscriptions here have {len(self._trie)} patterns, and with {len(patterns)}"
                f" more they would exceed {HOME_PATTERNS_MAX}"
            )
        starred = sum(map(is_starred, patterns))
        if starred and self._starred + starred > options.starred_patterns_max:
            return (
                f"the durable subscriptions here would have {self._starred + starred} patterns with many `*`;"
                f" {options.starred_patterns_max} are allowed (starred_patterns_max)"
            )
        return ""

    def _forget_topics(self) -> None:
        self._wanting.clear()
        self._cached = 0
