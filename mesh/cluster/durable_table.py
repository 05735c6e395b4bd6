"""One broker's copy of a home's durable subscriptions: a version, and the patterns by name.

Two tables of one home with the same version are identical: a version never has two contents. A home makes
even versions, each greater than all earlier ones that it made or received. Another broker that forgets a home
(`forgotten_version`) makes an odd one, and the table is then empty.

The last changes are kept, so that a broker with an earlier version can be sent the difference. They are
bounded; a broker further behind is sent the whole table.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mesh.errors import LinkError, TopicError
from mesh.topics import check_pattern
from mesh.wire.link_frames import LinkKind, encode

SUBSCRIPTIONS_MAX: Final = 32_768
"""Subscriptions of one home: 16 384, and for each the one that keeps its dead letters."""
PATTERNS_MAX: Final = 65_536
"""Patterns of one home in total."""
SENT_MAX: Final = 512
"""Patterns in one sent frame, some 3 ms of work for the receiver. A subscription without patterns counts as
one."""
CHANGES_MAX: Final = 4096
"""Patterns in the changes that are kept for one home."""

CLOCK_MAX: Final = 1 << 55
"""Microseconds from the epoch to the year 3111. Versions do not follow a clock beyond that."""
OWN_MAX: Final = 1 << 60
"""The greatest version that a home is believed about itself."""
STEP_MAX: Final = 1 << 32
"""Beyond `CLOCK_MAX`, others are believed about a version up to this much above the known one. Otherwise one
wrong number could be the last that a home can use."""

Subscriptions = Mapping[str, tuple[str, ...]]


def is_believed(version: int, held: int) -> bool:
    """True if others are believed who say that a home has this version. ``held`` is the version known
    here."""
    return version <= max(CLOCK_MAX, held + STEP_MAX)


def own_version(after: int, wall_us: int) -> int:
    """The version that a home makes after one that it made or received."""
    version = max(after + 1, min(wall_us, CLOCK_MAX))
    return version + version % 2


def forgotten_version(after: int, wall_us: int) -> int:
    """The version with which another broker forgets a home whose table has the version ``after``."""
    version = max(after + 1, min(wall_us, CLOCK_MAX))
    return version + 1 - version % 2


def is_own(version: int) -> bool:
    """True if the home itself made this version."""
    return version % 2 == 0


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes between two versions."""

    added: Subscriptions
    """New subscriptions, and those with other patterns."""
    removed: tuple[str, ...]

    @property
    def weight(self) -> int:
        """Number of patterns, as `SENT_MAX` counts them."""
        return weight(self.added) + len(self.removed)

    def pieces(self) -> Iterator[Difference]:
        """The same difference in pieces of at most `SENT_MAX` patterns; at least one piece."""
        removed = list(self.removed)
        added = list(cut(self.added))
        for start in range(0, len(removed), SENT_MAX):
            yield Difference({}, tuple(removed[start : start + SENT_MAX]))
        for piece in added:
            yield Difference(piece, ())
        if not removed and not added:
            yield self


def weight(subscriptions: Subscriptions) -> int:
    """Number of patterns, as `SENT_MAX` counts them."""
    return sum(len(patterns) or 1 for patterns in subscriptions.values())


def cut(subscriptions: Subscriptions) -> Iterator[dict[str, tuple[str, ...]]]:
    """Cut into pieces of at most `SENT_MAX` patterns."""
    piece: dict[str, tuple[str, ...]] = {}
    size = 0
    for name, patterns in subscriptions.items():
        more = len(patterns) or 1
        if piece and size + more > SENT_MAX:
            yield piece
            piece, size = {}, 0
        piece[name] = patterns
        size += more
    if piece:
        yield piece


def check_subscriptions(subscriptions: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """Raises `LinkError` if a pattern from a peer is invalid."""
    for name, patterns in subscriptions:
        for pattern in patterns:
            try:
                check_pattern(pattern)
            except TopicError as error:
                raise LinkError(f"durable subscription {name!r} has an invalid pattern: {error}") from error


def check_bounds(subscriptions: int, size: int) -> None:
    """Raises `LinkError` if a peer named more than one home may have."""
    if subscriptions > SUBSCRIPTIONS_MAX:
        raise LinkError(f"a home has more than {SUBSCRIPTIONS_MAX} durable subscriptions")
    if size > PATTERNS_MAX + SUBSCRIPTIONS_MAX:
        raise LinkError(f"a home's durable subscriptions have more than {PATTERNS_MAX} patterns")


class HomeTable:
    """The table of one home. ``name`` and ``client_url`` are those that the home last announced."""

    __slots__ = ("_changes", "_kept", "client_url", "name", "subscriptions", "version", "weight")

    def __init__(
        self, version: int, name: str, client_url: str, subscriptions: Subscriptions | None = None
    ) -> None:
        self.version = version
        self.name = name
        self.client_url = client_url
        self.subscriptions = dict(subscriptions or {})
        self.weight = weight(self.subscriptions)
        self._changes: deque[tuple[int, int, Difference]] = deque()
        """Consecutive versions and the changes between them, the newest last."""
        self._kept = 0

    def size_after(self, difference: Difference) -> tuple[int, int]:
        """The numbers of subscriptions and patterns after a change."""
        held, size = self.subscriptions, self.weight + weight(difference.added)
        count = len(held) + sum(name not in held for name in difference.added)
        for name in {*difference.added, *difference.removed}:
            if name in held:
                size -= len(held[name]) or 1
        return count - sum(name in held for name in difference.removed), size

    def change(self, version: int, difference: Difference) -> Difference:
        """Move to the next version. Returns what changed here."""
        held = self.subscriptions
        added = {name: each for name, each in difference.added.items() if held.get(name) != each}
        removed = tuple(name for name in difference.removed if name in held and name not in difference.added)
        changed = Difference(added, removed)
        for name in removed:
            self.weight -= len(held.pop(name)) or 1
        for name, patterns in added.items():
            before = held.get(name)
            self.weight += (len(patterns) or 1) - (0 if before is None else len(before) or 1)
            held[name] = patterns
        self._changes.append((self.version, version, changed))
        self._kept += changed.weight + 1
        while self._kept > CHANGES_MAX:
            self._kept -= self._changes.popleft()[2].weight + 1
        self.version = version
        return changed

    def replace(self, version: int, name: str, client_url: str, subscriptions: Subscriptions) -> Difference:
        """Move to another version with this content. Returns what changed here."""
        removed = tuple(each for each in self.subscriptions if each not in subscriptions)
        renamed = (name, client_url) != (self.name, self.client_url)
        self.name, self.client_url = name, client_url
        changed = self.change(version, Difference(subscriptions, removed))
        if renamed:  # a difference cannot carry the new name, so everybody is sent the whole
            self._changes.clear()
            self._kept = 0
        return changed

    def since(self, base: int) -> tuple[int, Difference] | None:
        """The changes since the version ``base`` that fit into one frame, with the version that they lead to.
        None if they are no longer known, or too large for a frame."""
        added: dict[str, tuple[str, ...]] = {}
        removed: dict[str, None] = {}
        version, size = base, 0
        for before, after, changed in self._changes:
            if before != version:
                if version == base:
                    continue  # older, or another branch
                break
            size += changed.weight
            if size > SENT_MAX:
                break
            for name in changed.removed:
                added.pop(name, None)
                removed[name] = None
            for name, patterns in changed.added.items():
                removed.pop(name, None)
                added[name] = patterns
            version = after
        return None if version == base else (version, Difference(added, tuple(removed)))


def table_frames(home: int, table: HomeTable) -> Iterator[bytes]:
    """The whole table in frames, as links and the file of durable interest carry it. Each frame is made when
    requested, from the table as it was at first."""
    parts = list(cut(table.subscriptions)) or [{}]
    version, about = table.version, (table.name, table.client_url)
    return (
        encode(
            LinkKind.DURABLE, home, version, number, int(number == len(parts) - 1), *about, list(part.items())
        )
        for number, part in enumerate(parts)
    )


class TableParts:
    """Joins the parts of a table again."""

    def __init__(self) -> None:
        self._home = 0
        self._part = 0
        self._table = HomeTable(0, "", "")

    def take(
        self,
        home: int,
        version: int,
        part: int,
        last: int,
        name: str,
        client_url: str,
        subscriptions: list[tuple[str, tuple[str, ...]]],
    ) -> HomeTable | None:
        """Take the fields of one frame. Returns the table after the last one. Raises `LinkError`."""
        if part == 0:
            self._home, self._part = home, 0
            self._table = HomeTable(version, name, client_url)
        table = self._table
        if (self._home, table.version, self._part) != (home, version, part):
            raise LinkError(f"part {part} of the durable subscriptions of {home:016x} came out of turn")
        check_subscriptions(subscriptions)
        table.subscriptions.update(subscriptions)
        table.weight += weight(dict(subscriptions))
        check_bounds(len(table.subscriptions), table.weight)
        self._part += 1
        if not last:
            return None
        self._home = 0
        return table
