"""From a topic to everybody who wants it: one dictionary look-up a block.

A `Route` is the answer for one topic: the local subscriptions (with taps and the broker's own responders)
and the brokers with interest. Routes are cached by the topic's bytes; the cache is bounded and dropped
whole when anybody's interest changes, which is rare beside messages.

Roles: everybody who subscribes gets what is published; only ``answers`` subscriptions get requests and
surveys. Which broker answers a request first is a question of round-trip time: the nearest.

Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from mesh.errors import TopicError
from mesh.topics import PatternTrie, check_pattern, check_topic
from mesh.wire.session_frames import Role

CACHE_MAX: Final = 65536
"""Routes kept; a flood of distinct topics costs the cache, not the memory."""

Local = TypeVar("Local", bound=Hashable)
Remote = TypeVar("Remote", bound=Hashable)


class Route(Generic[Local, Remote]):
    """Who wants one topic; tuples, so that a route can be kept while it is used."""

    __slots__ = ("everybody", "local", "local_answers", "remote", "remote_answers", "topic")

    def __init__(
        self,
        topic: str,
        local: tuple[Local, ...],
        remote: tuple[Remote, ...],
        local_answers: tuple[Local, ...],
        remote_answers: tuple[Remote, ...],
    ) -> None:
        self.topic = topic
        self.everybody: tuple[Local | Remote, ...] = (*local, *remote)
        self.local = local
        self.remote = remote
        self.local_answers = local_answers
        self.remote_answers = remote_answers


class Router(Generic[Local, Remote]):
    """Interest of local subscriptions and of other brokers, and the cached routes made of it."""

    def __init__(self) -> None:
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
        self.cache.clear()

    def unsubscribe(self, patterns: Iterable[str], local: Local) -> None:
        for pattern in patterns:
            self._local.discard(pattern, local)
            self._local_answers.discard(pattern, local)
        self.cache.clear()

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
        self.cache.clear()

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
        found = Route(
            text,
            tuple(self._local.match(text)),
            tuple(self._remote.match(text)),
            tuple(self._local_answers.match(text)),
            tuple(self._remote_answers.match(text)),
        )
        if len(self.cache) >= CACHE_MAX:
            self.cache.clear()
        self.cache[topic] = found
        return found
