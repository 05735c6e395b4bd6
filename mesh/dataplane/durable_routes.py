"""Finds the homes whose durable subscriptions want a topic: one look-up for each block.

A `KnownHome` is a broker that is known to have durable subscriptions, linked or not: they outlive it. Its
patterns are in a trie. A pattern with many stars is widened there, as for interest (`mesh.topics.stars`), and
a match of the wide pattern is checked against the narrow one. Otherwise a home could be asked in vain, and
while it is away publishes would be refused.

Results are cached by topic. Each change drops the whole cache; so does a size of `CACHE_BYTES_MAX`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from mesh.topics import PatternTrie, check_pattern, is_starred, matches, widened

if TYPE_CHECKING:
    from mesh.dataplane.members import Neighbour

CACHE_BYTES_MAX: Final = 16 << 20
ENTRY_BYTES: Final = 250
"""Approximate memory of a cached topic besides its bytes."""


class KnownHome:
    """A broker that has durable subscriptions."""

    __slots__ = ("counts", "id", "link", "name", "subscriptions", "url")

    def __init__(self, id: int) -> None:
        self.id = id
        self.name = ""
        self.url = ""
        """The address for its clients. Empty if not known."""
        self.subscriptions: dict[str, tuple[str, ...]] = {}
        """Patterns by subscription name."""
        self.counts: dict[str, int] = {}
        """Number of subscriptions that have each pattern."""
        self.link: Neighbour | None = None
        """The link for its blocks. None if there is none, or for this broker."""


class DurableRoutes:
    """See the module."""

    def __init__(self, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.homes: dict[int, KnownHome] = {}
        self._trie: PatternTrie[KnownHome] = PatternTrie()
        self._starred: PatternTrie[tuple[KnownHome, str]] = PatternTrie()
        self._cache: dict[bytes, tuple[KnownHome, ...]] = {}
        self._cache_bytes = 0
        self._cache_bytes_max = cache_bytes_max

    def change(
        self,
        id: int,
        name: str,
        url: str,
        added: Mapping[str, Iterable[str]],
        removed: Iterable[str],
    ) -> KnownHome:
        """Durable subscriptions at a broker were added, got other patterns, or were removed. A home without
        any is forgotten. Raises `TopicError` before any change."""
        checked = {each: tuple(dict.fromkeys(map(check_pattern, added[each]))) for each in added}
        home = self.homes.get(id)
        if home is None:
            home = self.homes[id] = KnownHome(id)
        home.name, home.url = name, url
        for each in (*removed, *checked):
            for pattern in home.subscriptions.pop(each, ()):
                self._discard(home, pattern)
        for each, patterns in checked.items():
            home.subscriptions[each] = patterns
            for pattern in patterns:
                self._add(home, pattern)
        if not home.subscriptions:
            del self.homes[id]
        self._cache.clear()
        self._cache_bytes = 0
        return home

    def wanting(self, topic: bytes) -> tuple[KnownHome, ...]:
        """The homes that must keep a checked topic."""
        found = self._cache.get(topic)
        if found is None:
            found = self._cache[topic] = self._match(topic.decode("ascii"))
            self._cache_bytes += ENTRY_BYTES + len(topic) + 8 * len(found)
            if self._cache_bytes > self._cache_bytes_max:
                self._cache.clear()
                self._cache_bytes = 0
        return found

    def home_of(self, subscription: str) -> KnownHome | None:
        """The home of a durable subscription. If brokers that were apart made it twice, a linked home if
        there is one."""
        found = [home for home in self.homes.values() if subscription in home.subscriptions]
        return next((home for home in found if home.link is not None), found[0] if found else None)

    def elsewhere(self, id: int, subscription: str) -> tuple[str, str] | None:
        """Name and client URL of the home of a durable subscription, unless that is the broker ``id``."""
        known = self.home_of(subscription)
        return None if known is None or known.id == id else (known.name, known.url)

    def senior(self, id: int, subscription: str) -> tuple[str, str] | None:
        """Name and client URL of the linked home with the lowest id that has it, if that id is below
        ``id``."""
        found = [
            (home.id, home.name, home.url)
            for home in self.homes.values()
            if home.id < id and home.link is not None and home.url and subscription in home.subscriptions
        ]
        return min(found)[1:] if found else None

    def homes_of(self, subscription: str) -> list[tuple[str, str]]:
        """Ids and names of all brokers that have this subscription."""
        found = [home for home in self.homes.values() if subscription in home.subscriptions]
        return [(f"{home.id:016x}", home.name) for home in found]

    def away(self, me: int) -> list[tuple[str, str, list[str]]]:
        """Ids and names of homes without a link from the broker ``me``, and names of their subscriptions."""
        return [
            (f"{home.id:016x}", home.name, sorted(home.subscriptions))
            for home in self.homes.values()
            if home.link is None and home.id != me
        ]

    def twice(self) -> dict[str, list[str]]:
        """Durable subscriptions that several brokers made while these were apart, with the names of their
        homes."""
        if len(self.homes) < 2:
            return {}
        of_name: dict[str, list[str]] = {}
        for home in self.homes.values():
            for subscription in home.subscriptions:
                of_name.setdefault(subscription, []).append(home.name)
        return {name: sorted(homes) for name, homes in sorted(of_name.items()) if len(homes) > 1}

    def _match(self, topic: str) -> tuple[KnownHome, ...]:
        found = dict.fromkeys(self._trie.match(topic))
        if len(self._starred):
            narrow = self._starred.match(topic)
            found.update((home, None) for home, pattern in narrow if matches(pattern, topic))
        return tuple(found)

    def _add(self, home: KnownHome, pattern: str) -> None:
        home.counts[pattern] = home.counts.get(pattern, 0) + 1
        if is_starred(pattern):
            self._starred.add(widened(pattern), (home, pattern))
        else:
            self._trie.add(pattern, home)

    def _discard(self, home: KnownHome, pattern: str) -> None:
        home.counts[pattern] -= 1
        if home.counts[pattern]:
            return
        del home.counts[pattern]
        if is_starred(pattern):
            self._starred.discard(widened(pattern), (home, pattern))
        else:
            self._trie.discard(pattern, home)
