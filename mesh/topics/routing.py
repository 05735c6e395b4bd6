"""From a topic to everybody who wants it: one dictionary look-up a block.

A `Route` is the answer for one topic: the local subscriptions (with taps and the broker's own responders)
and the members, other brokers, with interest. Routes are cached by the topic's bytes. The cache is bounded by
bytes, and dropped whole when it is full or when anybody's interest changes, which is rare beside messages.
Routes with the same takers share them, so that a thousand subscribers of ``#`` cost one tuple and not one
a topic.

A member that wants a topic is not always who takes its blocks: ``taker_of`` says where blocks for a member go
next, and several members behind the same neighbour make one taker.

Roles: everybody who subscribes gets what is published; only ``answers`` subscriptions get requests and
surveys. Which broker answers a request first is a question of round-trip time: the nearest.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Generic, TypeVar

from mesh.errors import TopicError
from mesh.topics import PatternTrie, check_pattern, check_topic
from mesh.wire.session_frames import Role

CACHE_BYTES_MAX: Final = 64 << 20
"""Memory that cached routes may take, about; a flood of distinct topics costs the cache, not the memory."""
ROUTE_BYTES: Final = 400
"""What one route takes without its topic and takers, about."""
TAKERS_BYTES: Final = 150
"""What one tuple of takers takes without its items, about; 8 bytes more for each item."""

Local = TypeVar("Local", bound=Hashable)
Remote = TypeVar("Remote", bound=Hashable)


class Route(Generic[Local, Remote]):
    """Who wants one topic; tuples, so that a route can be kept while it is used."""

    __slots__ = ("everybody", "local", "local_answers", "remote", "remote_answers", "topic")

    def __init__(
        self,
        topic: str,
        everybody: tuple[Any, ...],
        local: tuple[Local, ...],
        remote: tuple[Remote, ...],
        local_answers: tuple[Local, ...],
        remote_answers: tuple[Remote, ...],
    ) -> None:
        self.topic = topic
        self.everybody = everybody
        """Whoever takes a block of this topic: ``local``, and the takers of ``remote``, each once."""
        self.local = local
        self.remote = remote
        self.local_answers = local_answers
        self.remote_answers = remote_answers


class Router(Generic[Local, Remote]):
    """Interest of local subscriptions and of other brokers, and the cached routes made of it."""

    def __init__(
        self,
        taker_of: Callable[[Remote], Hashable] = lambda member: member,
        cache_bytes_max: int = CACHE_BYTES_MAX,
    ) -> None:
        self._taker_of = taker_of
        self._cache_bytes_max = cache_bytes_max
        self._cache_bytes = 0
        self._shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._local: PatternTrie[Local] = PatternTrie()
        self._local_answers: PatternTrie[Local] = PatternTrie()
        self._remote: PatternTrie[Remote] = PatternTrie()
        self._remote_answers: PatternTrie[Remote] = PatternTrie()
        self._remote_patterns: dict[Remote, list[tuple[str, int]]] = {}
        self.cache: dict[bytes, Route[Local, Remote]] = {}
        """Read directly on the path of every block; a miss goes through `route`."""

    def subscribe(self, patterns: Iterable[str], role: int, local: Local) -> None:
        """Patterns are checked by the caller's `check_pattern` or raise `TopicError` here, before any
        change."""
        checked = [check_pattern(pattern) for pattern in patterns]
        for pattern in checked:
            self._local.add(pattern, local)
            if role == Role.ANSWERS:
                self._local_answers.add(pattern, local)
        self.forget_routes()

    def unsubscribe(self, patterns: Iterable[str], local: Local) -> None:
        for pattern in patterns:
            self._local.discard(pattern, local)
            self._local_answers.discard(pattern, local)
        self.forget_routes()

    def set_remote(self, remote: Remote, patterns: Iterable[tuple[str, int]]) -> None:
        """Replace all that a broker is interested in: (pattern, role) pairs. Raises `TopicError` before
        any change."""
        new = list(dict.fromkeys((check_pattern(pattern), int(role)) for pattern, role in patterns))
        for pattern, _ in self._remote_patterns.pop(remote, ()):
            self._remote.discard(pattern, remote)
            self._remote_answers.discard(pattern, remote)
        for pattern, role in new:
            self._remote.add(pattern, remote)
            if role == Role.ANSWERS:
                self._remote_answers.add(pattern, remote)
        if new:
            self._remote_patterns[remote] = new
        self.forget_routes()

    def forget_routes(self) -> None:
        """Empty the cache: interest changed, or where blocks for a member go next."""
        self.cache.clear()
        self._shared.clear()
        self._cache_bytes = 0

    def route(self, topic: bytes) -> Route[Local, Remote]:
        """The route of a topic as it came from the wire. Raises `TopicError` when it is no topic."""
        found = self.cache.get(topic)
        if found is not None:
            return found
        try:
            text = topic.decode("ascii")
        except UnicodeDecodeError as error:
            raise TopicError(f"topic {topic!r} is not ASCII") from error
        check_topic(text)
        if self._cache_bytes > self._cache_bytes_max:
            self.forget_routes()
        local = tuple(self._local.match(text))
        remote = tuple(self._remote.match(text))
        found = Route(
            text,
            self._share((*local, *dict.fromkeys(map(self._taker_of, remote)))),
            self._share(local),
            self._share(remote),
            self._share(tuple(self._local_answers.match(text))),
            self._share(tuple(self._remote_answers.match(text))),
        )
        self._cache_bytes += ROUTE_BYTES + 2 * len(topic)
        self.cache[topic] = found
        return found

    def _share(self, takers: tuple[Any, ...]) -> tuple[Any, ...]:
        """An equal tuple that some cached route has already, or this one."""
        shared = self._shared.get(takers)
        if shared is None:
            shared = self._shared[takers] = takers
            self._cache_bytes += TAKERS_BYTES + 8 * len(takers)
        return shared
