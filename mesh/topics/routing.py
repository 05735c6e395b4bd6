"""From a topic to everybody who wants it, by one dictionary look-up for each block.

A `Route` is the answer for one topic: the local subscriptions (with taps and the broker's own responders) and
the members, other brokers, with interest. Routes with the same takers share them, so that a thousand
subscribers of ``#`` cost one tuple, not one for each topic.

Blocks for a member may go to a neighbour first: ``taker_of`` says where they go next. Several members behind
the same neighbour make one taker.

**Roles.** Every subscription gets published messages; only ``answers`` subscriptions get requests and
surveys. A request goes to the nearest broker first, by round-trip time.

**Patterns with many stars** make a look-up long. Those of another broker cannot be refused, so they are
widened (`mesh.topics.stars`). That broker may then get blocks and questions that it does not want, and
answers as if its interest had ended meanwhile. Those of a client are exact and few.

**The cache** holds routes by the topic's bytes. A change of interest costs by its own size, not by that of
the cache or of all interest. A pattern without wildcards removes one route. Any other pattern makes routes
stale: those whose topic has its first token, or all if it begins with a wildcard. Topics are in `GROUPS`
groups by their first token, and the routes of a group share a flag, `Route.fresh`. Code that reads the cache
directly checks the flag::

    route = router.cache.get(topic)
    if route is None or not route.fresh[0]:
        route = router.route(topic)

Stale routes are removed a few at a time. The cache is bounded by bytes, and dropped whole when it is full.

**The end of large interest** takes long, too. A taker that ends is hidden at once, so that no route has it
any more. Its patterns are removed in parts afterwards (`hide`, `forget_remote`).

Pure.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from math import inf
from typing import Any, Final, Generic, TypeVar

from mesh.errors import TopicError
from mesh.topics import STARS_MAX, PatternTrie, check_pattern, check_topic, widened
from mesh.wire.session_frames import Role

CACHE_BYTES_MAX: Final = 64 << 20
"""Memory that cached routes may take, about. A flood of distinct topics then costs the cache, not the
memory."""
ROUTE_BYTES: Final = 500
"""Bytes of one route without its topic and takers, about."""
TAKERS_BYTES: Final = 150
"""Bytes of one tuple of takers without its items, about; each item takes 8 bytes more."""
GROUPS: Final = 256
"""Groups of topics whose routes become stale together."""
SWEPT_AT_ONCE: Final = 32
"""Stale routes removed at each change and for each new route."""

Local = TypeVar("Local", bound=Hashable)
Remote = TypeVar("Remote", bound=Hashable)


class Route(Generic[Local, Remote]):
    """The takers of one topic, in tuples, so that a route can be kept while it is used."""

    __slots__ = ("everybody", "fresh", "local", "local_answers", "remote", "remote_answers", "topic")

    def __init__(
        self,
        topic: str,
        everybody: tuple[Any, ...],
        local: tuple[Local, ...],
        remote: tuple[Remote, ...],
        local_answers: tuple[Local, ...],
        remote_answers: tuple[Remote, ...],
        fresh: list[bool],
    ) -> None:
        self.topic = topic
        self.everybody = everybody
        """Every taker of a block of this topic: ``local``, and the takers of ``remote``, each once."""
        self.local = local
        self.remote = remote
        self.local_answers = local_answers
        self.remote_answers = remote_answers
        self.fresh = fresh
        """Its only item becomes False once interest changes in a way that may concern the topic."""


class Wanted(Generic[Remote]):
    """The interest of one broker: patterns and roles. ``remote`` is None once the broker is forgotten."""

    __slots__ = ("patterns", "remote", "widened")

    def __init__(self, remote: Remote) -> None:
        self.remote: Remote | None = remote
        self.patterns: dict[str, int] = {}
        self.widened: dict[str, list[int]] = {}
        """Widened patterns, each of which stands for several with many stars, with the number of those in
        each role."""


class _Group:
    """Cached topics that become stale together, with the tuples of takers that their routes share."""

    __slots__ = ("fresh", "shared", "size", "topics")

    def __init__(self) -> None:
        self.fresh = [True]
        self.topics: list[bytes] = []
        self.shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.size = 0

    def share(self, takers: tuple[Any, ...]) -> tuple[Any, ...]:
        """An equal tuple that a route of the group has already, or this one."""
        shared = self.shared.get(takers)
        if shared is None:
            shared = self.shared[takers] = takers
            self.size += TAKERS_BYTES + 8 * len(takers)
        return shared

    def unshare(self, route: Route[Any, Any]) -> None:
        """Share the tuples of a removed route no longer: a taker in them may be gone, and must not be
        kept."""
        for takers in (route.everybody, route.local, route.remote, route.local_answers, route.remote_answers):
            self.shared.pop(takers, None)


class Router(Generic[Local, Remote]):
    """Interest of local subscriptions and of other brokers, and the cached routes made of it."""

    def __init__(
        self,
        taker_of: Callable[[Remote], Hashable] = lambda member: member,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        steps_exceeded: Callable[[], None] = lambda: None,
    ) -> None:
        self._taker_of = taker_of
        self._steps_exceeded = steps_exceeded
        self._steps_most: float = inf
        self._cache_bytes_max = cache_bytes_max
        self._cache_bytes = 0
        self._local: PatternTrie[Local] = PatternTrie()
        self._local_answers: PatternTrie[Local] = PatternTrie()
        self._hidden: set[Local] = set()
        self._remote: PatternTrie[Wanted[Remote]] = PatternTrie()
        self._remote_answers: PatternTrie[Wanted[Remote]] = PatternTrie()
        self._wanted: dict[Remote, Wanted[Remote]] = {}
        self._groups = [_Group() for _ in range(GROUPS)]
        self._stale: deque[_Group] = deque()
        self.steps = 0
        """Trie nodes visited for routes that were not cached: their cost."""
        self.cache: dict[bytes, Route[Local, Remote]] = {}
        """Read directly on the path of every block; a miss goes through `route`."""

    # --- interest

    def subscribe(self, patterns: Iterable[str], role: int, local: Local) -> None:
        """Add patterns of a local subscription. Raises `TopicError` before any change."""
        checked = [check_pattern(pattern) for pattern in patterns]
        for pattern in checked:
            self._local.add(pattern, local)
            if role == Role.ANSWERS:
                self._local_answers.add(pattern, local)
        self._changed(checked)

    def unsubscribe(self, patterns: Iterable[str], local: Local) -> None:
        patterns = list(patterns)
        for pattern in patterns:
            self._local.discard(pattern, local)
            self._local_answers.discard(pattern, local)
        if local not in self._hidden:
            self._changed(patterns)

    def hide(self, ended: Iterable[Local]) -> None:
        """Take these out of all routes. Unsubscribe their patterns afterwards, then `release` them."""
        self._hidden.update(ended)
        self._changed(("#",))

    def release(self, ended: Local) -> None:
        """Note that the last pattern of a hidden one is unsubscribed."""
        self._hidden.discard(ended)

    def change_remote(self, remote: Remote, added: Iterable[tuple[str, int]], removed: Iterable[str]) -> None:
        """Add these (pattern, role) pairs to a broker's interest, or change their roles, and remove those
        patterns. Raises `TopicError` before any change."""
        added = [(check_pattern(pattern), int(role)) for pattern, role in added]
        wanted = self._wanted.get(remote)
        if wanted is None:
            wanted = self._wanted[remote] = Wanted(remote)
        held = wanted.patterns
        changed: list[str] = []
        for pattern in removed:
            before = held.pop(pattern, None)
            if before is not None:
                changed.append(self._put(wanted, pattern, before, None))
        for pattern, role in added:
            before = held.get(pattern)
            if before != role:
                held[pattern] = role
                changed.append(self._put(wanted, pattern, before, role))
        if not held:
            del self._wanted[remote]
        self._changed(changed)

    def forget_remote(self, remote: Remote) -> Wanted[Remote] | None:
        """Forget a broker's interest; `discard` removes what it wanted. The broker may come back and want
        something meanwhile."""
        wanted = self._wanted.pop(remote, None)
        if wanted is not None:
            wanted.remote = None
            self._changed(("#",))
        return wanted

    def discard(self, wanted: Wanted[Remote], most: int) -> bool:
        """Remove some of what a forgotten broker wanted; True if there is more."""
        patterns = wanted.patterns
        for _ in range(min(most, len(patterns))):
            pattern, role = patterns.popitem()
            self._put(wanted, pattern, role, None)
        return bool(patterns)

    def _put(self, wanted: Wanted[Remote], pattern: str, before: int | None, now: int | None) -> str:
        """Change the role of a broker's pattern; None stands for no role. Returns the pattern that stands for
        it."""
        if pattern.count("*") >= STARS_MAX:  # patterns with exactly that many may stand for others, too
            pattern = widened(pattern)
            counts = wanted.widened.setdefault(pattern, [0, 0])
            for role, change in ((before, -1), (now, 1)):
                if role is not None:
                    counts[role == Role.ANSWERS] += change
            now = Role.ANSWERS if counts[Role.ANSWERS] else Role.LISTEN if counts[Role.LISTEN] else None
            if now is None:
                del wanted.widened[pattern]
        if now is None:
            self._remote.discard(pattern, wanted)
        else:
            self._remote.add(pattern, wanted)
        if now == Role.ANSWERS:
            self._remote_answers.add(pattern, wanted)
        else:
            self._remote_answers.discard(pattern, wanted)
        return pattern

    # --- routes

    def limit_steps(self, most: int | None) -> None:
        """Call ``steps_exceeded`` once after so many more steps; None for no limit."""
        self._steps_most = inf if most is None else self.steps + most

    def forget_routes(self) -> None:
        """Empty the cache: it is full, or blocks for a member go another way."""
        for group in self._groups:
            group.fresh[0] = False
        self._groups = [_Group() for _ in range(GROUPS)]
        self._stale.clear()
        self.cache.clear()
        self._cache_bytes = 0

    def route(self, topic: bytes) -> Route[Local, Remote]:
        """The route of a topic as it came from the wire. Raises `TopicError` if it is not a topic."""
        found = self.cache.get(topic)
        if found is not None and found.fresh[0]:
            return found
        try:
            text = topic.decode("ascii")
        except UnicodeDecodeError as error:
            raise TopicError(f"topic {topic!r} is not ASCII") from error
        check_topic(text)
        if self._cache_bytes > self._cache_bytes_max:
            self.forget_routes()
        elif self._stale:
            self._sweep()
        group = self._groups[_group_of(text)]
        before = group.size
        local = self._shown(self._local.match(text))
        remote = _members(self._remote.match(text))
        found = Route(
            text,
            group.share((*local, *dict.fromkeys(map(self._taker_of, remote)))),
            group.share(local),
            group.share(remote),
            group.share(self._shown(self._local_answers.match(text))),
            group.share(_members(self._remote_answers.match(text))),
            group.fresh,
        )
        tries = (self._local, self._remote, self._local_answers, self._remote_answers)
        self.steps = sum(trie.steps for trie in tries)
        if self.steps > self._steps_most:
            self._steps_most = inf
            self._steps_exceeded()
        group.topics.append(topic)
        group.size += ROUTE_BYTES + 2 * len(topic)
        self._cache_bytes += group.size - before
        self.cache[topic] = found
        return found

    def _shown(self, found: list[Local]) -> tuple[Local, ...]:
        hidden = self._hidden
        return tuple([local for local in found if local not in hidden]) if hidden else tuple(found)

    # --- what a change makes stale

    def _changed(self, patterns: Iterable[str]) -> None:
        """Make routes stale: interest in these patterns has changed."""
        if not self.cache:
            return
        stale: dict[int, None] = {}
        for pattern in patterns:
            if pattern[0] in "#*":
                stale = dict.fromkeys(range(GROUPS))
                break
            number = _group_of(pattern)
            if pattern[-1] == "#" or "*" in pattern:
                stale[number] = None
            elif (route := self.cache.pop(pattern.encode(), None)) is not None:
                self._groups[number].unshare(route)
        for number in stale:
            group = self._groups[number]
            if group.topics:
                group.fresh[0] = False
                self._stale.append(group)
                self._groups[number] = _Group()
        if self._stale:
            self._sweep()

    def _sweep(self) -> None:
        """Remove some stale routes."""
        cache = self.cache
        for _ in range(SWEPT_AT_ONCE):
            group = self._stale[0]
            topic = group.topics.pop()
            route = cache.get(topic)
            if route is not None and not route.fresh[0]:
                del cache[topic]
            if not group.topics:
                self._cache_bytes -= group.size
                self._stale.popleft()
                if not self._stale:
                    return


def _members(found: list[Wanted[Remote]]) -> tuple[Remote, ...]:
    return tuple([wanted.remote for wanted in found if wanted.remote is not None])


def _group_of(text: str) -> int:
    """The group of a topic, or of a pattern that begins with a plain token."""
    return zlib.crc32(text.partition(".")[0].encode()) % GROUPS
