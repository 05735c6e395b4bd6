"""From a topic to the homes whose durable subscriptions want it: one look-up a block.

A `KnownHome` is a broker of which it is known that durable subscriptions were made there, linked or not: they
outlive it. Its patterns are in a trie. One with many stars is widened there, as for interest
(`mesh.topics.stars`); what the wide pattern finds is compared with the narrow one, since a home that is asked
for nothing could be away, and a publish refused for it.

The answers are cached by topic. The cache is dropped whole by each change, and when it has `CACHE_BYTES_MAX`.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from mesh.topics import PatternTrie, check_pattern, is_starred, matches, widened

if TYPE_CHECKING:
    from mesh.dataplane.members import Neighbour

CACHE_BYTES_MAX: Final = 16 << 20
ENTRY_BYTES: Final = 250
"""What a cached topic costs beside its bytes, about."""


class KnownHome:
    """A broker that has durable subscriptions."""

    __slots__ = ("counts", "id", "link", "name", "subscriptions", "url")

    def __init__(self, id: int) -> None:
        self.id = id
        self.name = ""
        self.url = ""
        """Where its clients dial; empty: not known."""
        self.subscriptions: dict[str, tuple[str, ...]] = {}
        """Their patterns by their names."""
        self.counts: dict[str, int] = {}
        """How many of them have each pattern."""
        self.link: Neighbour | None = None
        """By which blocks go there; None: there is none, or it is this broker."""


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
        """Durable subscriptions were made at a broker, or given other patterns, and others removed. A home
        without any is not known any more. Raises `TopicError` before any change."""
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
        """The homes that a checked topic is to be kept at."""
        found = self._cache.get(topic)
        if found is None:
            found = self._cache[topic] = self._match(topic.decode("ascii"))
            self._cache_bytes += ENTRY_BYTES + len(topic) + 8 * len(found)
            if self._cache_bytes > self._cache_bytes_max:
                self._cache.clear()
                self._cache_bytes = 0
        return found

    def home_of(self, subscription: str) -> KnownHome | None:
        """The home of a durable subscription. If brokers that were apart made it twice: a home that is
        linked, if there is one."""
        found = [home for home in self.homes.values() if subscription in home.subscriptions]
        return next((home for home in found if home.link is not None), found[0] if found else None)

    def elsewhere(self, id: int, subscription: str) -> tuple[str, str] | None:
        """Name and client URL of the home of a durable subscription, if that is not the broker ``id``."""
        known = self.home_of(subscription)
        return None if known is None or known.id == id else (known.name, known.url)

    def senior(self, id: int, subscription: str) -> tuple[str, str] | None:
        """Name and client URL of the linked home with the lowest id that has it, if that is below ``id``."""
        found = [
            (home.id, home.name, home.url)
            for home in self.homes.values()
            if home.id < id and home.link is not None and home.url and subscription in home.subscriptions
        ]
        return min(found)[1:] if found else None

    def homes_of(self, subscription: str) -> list[tuple[str, str]]:
        """Ids and names of all brokers where one was made."""
        found = [home for home in self.homes.values() if subscription in home.subscriptions]
        return [(f"{home.id:016x}", home.name) for home in found]

    def away(self, me: int) -> list[tuple[str, str, list[str]]]:
        """Ids and names of homes to which there is no link from the broker ``me``, and names of what they
        keep."""
        return [
            (f"{home.id:016x}", home.name, sorted(home.subscriptions))
            for home in self.homes.values()
            if home.link is None and home.id != me
        ]

    def twice(self) -> dict[str, list[str]]:
        """Durable subscriptions that were made at more than one broker, while these were apart: the names of
        their homes."""
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
