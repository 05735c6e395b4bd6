"""What every broker wants: the own interest with its versions, the others' as they tell it, and the barrier.

A broker's interest is a map of patterns to roles (0 listens, 1 answers too). Each change makes a new version;
versions count from 1 (nothing wanted) within one boot. A new link is sent the whole (in parts), later changes
go out as differences from the version sent before. The receiver acknowledges what it holds; a difference that
does not fit what it holds, or a survey that names another version than it holds, makes it ask for the whole.

**The barrier.** A subscription is known when every live broker has acknowledged a version that holds it. Live
are ALIVE and SUSPECT members, linked or not; who dies or leaves is waited for no longer, who joins is waited
for too. `BARRIER_S` after it was asked for the barrier ends with the names that are missing. Who asks for a
version that others wait for already has the whole time for itself, so one version may end several times: with
names only for those who have waited `BARRIER_S`, without names for all who wait for it or an earlier one.

**Absent** are live members whose interest is not held, or that have no link: what is published here now may
miss subscribers there, and receipts name them. So are those that this broker was told of and has not heard
of yet (`mesh.cluster.joining`).

Pure; patterns are checked against the grammar when they come from a peer, never again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mesh.errors import LinkError, TopicError
from mesh.topics import check_pattern
from mesh.wire.link_frames import PATTERNS_MAX, LinkKind, encode

BARRIER_S: Final = 5.0
BARRIER_GRAIN_S: Final = 0.1
"""Who asks for the same version within this time of each other share a barrier, which ends with the last."""
REMOTE_PATTERNS_MAX: Final = 65_536
"""Patterns one broker may want."""
FIRST_VERSION: Final = 1
NAME_SHOWN_MAX: Final = 255
"""Characters of a name that frames to clients carry; URLs to join may be longer."""

Pattern = tuple[str, int]


@dataclass(frozen=True, slots=True)
class BarrierDone:
    """A version is known to all live brokers but those named."""

    version: int
    unreached: tuple[str, ...]


class _Barrier:
    __slots__ = ("due", "due_first", "version")

    def __init__(self, version: int, due: float) -> None:
        self.version = version
        self.due_first = due
        self.due = due


class _Remote:
    """What one member told of its interest, in one boot of its."""

    __slots__ = ("boot", "held", "parts", "patterns", "version", "wanted")

    def __init__(self, boot: int) -> None:
        self.boot = boot
        self.version = 0
        self.held = False
        self.patterns: dict[str, int] = {}
        self.parts: dict[str, int] | None = None
        self.wanted = False  # the whole was asked for and has not come yet


class InterestTable:
    """See the module. Members are ids."""

    def __init__(self, me: int, barrier_s: float = BARRIER_S) -> None:
        self._me = me
        self.version = FIRST_VERSION
        self._own: dict[str, int] = {}
        self._barrier_s = barrier_s
        self._remote: dict[int, _Remote] = {}
        self._live: dict[int, str] = {}
        self._linked: dict[int, _Sent] = {}
        self._acknowledged: dict[int, int] = {}
        self._barriers: list[_Barrier] = []
        self._unheard: tuple[str, ...] = ()
        self._awaits_unheard = False

    # --- the own interest

    @property
    def own(self) -> list[Pattern]:
        """As it is now."""
        return list(self._own.items())

    def set_own(self, patterns: Iterable[Pattern]) -> int:
        """Replace the own interest; returns the version that holds it (the same if nothing changed)."""
        changed = dict(patterns)
        if changed != self._own:
            self._own = changed
            self.version += 1
        return self.version

    def wait(self, version: int, now: float) -> BarrierDone | None:
        """Wait for all to know a version: done already, or `acknowledged`, `members` and `tick` will say."""
        if not self._awaited(version):
            return self._done(version)
        due = now + self._barrier_s
        last = self._barriers[-1] if self._barriers else None
        if last is not None and last.version == version and due - last.due_first <= BARRIER_GRAIN_S:
            last.due = due
        else:
            self._barriers.append(_Barrier(version, due))
        return None

    def pending(self, member: int) -> list[bytes]:
        """The frames that bring a linked member from what it was sent to what is; empty if it is up to
        date."""
        sent = self._linked.get(member)
        if sent is None or sent.version == self.version:
            return []
        if sent.version == 0:
            frames = self._whole(sent)
        else:
            # Compared in C, since both may be long; the order of a set is by chance, hence sorted.
            added = [[*pair] for pair in sorted(self._own.items() - sent.patterns.items())]
            removed = sorted(sent.patterns.keys() - self._own.keys())
            if len(added) > PATTERNS_MAX or len(removed) > PATTERNS_MAX:
                frames = self._whole(sent)
            else:
                frames = [
                    encode(LinkKind.INTEREST_CHANGE, sent.version, self.version, added, removed, *sent.owner)
                ]
        sent.version = self.version
        sent.patterns = self._own  # replaced as a whole, never changed: may be shared
        return frames

    def behind(self) -> list[int]:
        """Linked members that have not been sent the present version."""
        return [member for member, sent in self._linked.items() if sent.version != self.version]

    def _whole(self, sent: _Sent) -> list[bytes]:
        pairs = [[pattern, role] for pattern, role in self._own.items()]
        parts = [pairs[start : start + PATTERNS_MAX] for start in range(0, len(pairs), PATTERNS_MAX)] or [[]]
        last = len(parts) - 1
        return [
            encode(LinkKind.INTEREST, self.version, number, int(number == last), part, *sent.owner)
            for number, part in enumerate(parts)
        ]

    # --- members and links

    def members(self, live: Mapping[int, str]) -> list[BarrierDone]:
        """Who is alive or suspect, by name, this broker not among them. Others are forgotten."""
        self._live = dict(live)
        for member in list(self._remote):
            if member not in live and member not in self._linked:
                del self._remote[member]
        for member in list(self._acknowledged):
            if member not in live and member not in self._linked:
                del self._acknowledged[member]
        return self._settle()

    def set_unheard(self, names: Iterable[str], *, wait: bool) -> list[BarrierDone]:
        """Whom this broker was told of and has heard nothing about. Barriers and `absent` name them; with
        ``wait`` barriers wait for them too, since they may know of others."""
        unheard = tuple(name[:NAME_SHOWN_MAX] for name in names)
        if (unheard, wait) == (self._unheard, self._awaits_unheard):
            return []
        self._unheard, self._awaits_unheard = unheard, wait
        return self._settle()

    def link_up(self, member: int, boot: int, *, names_owner: bool = True) -> list[bytes]:
        """A link is admitted, perhaps in place of another; returns the whole interest to send.

        ``names_owner``: the other side knows the capability `INTEREST_OWNER`.
        """
        remote = self._remote.get(member)
        if remote is None or remote.boot != boot:
            self._remote[member] = _Remote(boot)
            self._acknowledged.pop(member, None)
        else:
            remote.parts = None
            remote.wanted = False
        self._linked[member] = _Sent((self._me,) if names_owner else ())
        return self.pending(member)

    def link_down(self, member: int) -> None:
        """The link is gone; what the member wants is kept while it is live."""
        self._linked.pop(member, None)
        if member not in self._live:
            self._remote.pop(member, None)
            self._acknowledged.pop(member, None)

    def absent(self) -> tuple[str, ...]:
        """Names of those that a publish here may miss now."""
        missing = [
            name
            for member, name in self._live.items()
            if member not in self._linked or not self._remote[member].held
        ]
        return (*self._unheard, *missing)

    # --- what members say

    def acknowledged(self, member: int, version: int) -> list[BarrierDone]:
        """A member holds a version of this broker's interest. Raises `LinkError` for one there never was."""
        if version > self.version:
            raise LinkError(f"the peer holds interest version {version}, this broker is at {self.version}")
        self._acknowledged[member] = max(version, self._acknowledged.get(member, 0))
        return self._settle()

    def wanted(self, member: int) -> list[bytes]:
        """A member asks for the whole; returns it."""
        sent = self._linked.get(member)
        if sent is None:
            return []
        sent.version, sent.patterns = 0, {}
        return self.pending(member)

    def whole_received(
        self, member: int, version: int, part: int, last: bool, patterns: list[Pattern]
    ) -> bool:
        """A part of a member's whole interest; True when it was the last and `patterns` is new."""
        remote = self._remote[member]
        if part == 0:
            remote.parts = {}
        if remote.parts is None:
            return False  # its first part was lost with an earlier link
        remote.parts.update(_checked(patterns))
        if len(remote.parts) > REMOTE_PATTERNS_MAX:
            raise LinkError(f"interest has more than {REMOTE_PATTERNS_MAX} patterns")
        if not last:
            return False
        remote.patterns, remote.parts = remote.parts, None
        remote.version, remote.held, remote.wanted = version, True, False
        return True

    def change_received(
        self, member: int, base: int, version: int, added: list[Pattern], removed: list[str]
    ) -> bool:
        """A difference; False if it does not fit what is held and the whole must be asked for."""
        remote = self._remote[member]
        if not remote.held or remote.version != base:
            return False
        for pattern in removed:
            remote.patterns.pop(pattern, None)
        remote.patterns.update(_checked(added))
        if len(remote.patterns) > REMOTE_PATTERNS_MAX:
            raise LinkError(f"interest has more than {REMOTE_PATTERNS_MAX} patterns")
        remote.version = version
        return True

    def heard_version(self, member: int, version: int) -> bool:
        """The version a member names in its surveys; True (once) if the whole must be asked for."""
        remote = self._remote.get(member)
        if remote is None or member not in self._linked or remote.wanted:
            return False
        if remote.held and remote.version >= version:
            return False
        return self.ask(member)

    def ask(self, member: int) -> bool:
        """Note that the whole of a member's interest is asked for; False if it was asked for already."""
        remote = self._remote[member]
        asked, remote.wanted = remote.wanted, True
        return not asked

    def patterns(self, member: int) -> list[Pattern]:
        """What a member wants."""
        remote = self._remote.get(member)
        return [] if remote is None else list(remote.patterns.items())

    def held_version(self, member: int) -> int:
        """The version that is held of a member's interest, 0 for none."""
        remote = self._remote.get(member)
        return remote.version if remote is not None and remote.held else 0

    @property
    def barriers(self) -> int:
        """Versions that somebody waits for."""
        return len(self._barriers)

    # --- the barrier

    def tick(self, now: float) -> list[BarrierDone]:
        """Barriers that have waited long enough."""
        done: list[BarrierDone] = []
        while self._barriers and self._barriers[0].due <= now:
            barrier = self._barriers.pop(0)
            missing = self._missing(barrier.version)
            done.append(BarrierDone(barrier.version, (*self._unheard, *missing)))
        return done

    def next_deadline(self) -> float:
        """When to call `tick`."""
        return self._barriers[0].due if self._barriers else float("inf")

    def _missing(self, version: int) -> list[str]:
        return [name for member, name in self._live.items() if self._acknowledged.get(member, 0) < version]

    def _awaited(self, version: int) -> bool:
        return (self._awaits_unheard and bool(self._unheard)) or bool(self._missing(version))

    def _done(self, version: int) -> BarrierDone:
        """Nobody is waited for any more."""
        return BarrierDone(version, self._unheard)

    def _settle(self) -> list[BarrierDone]:
        done: list[BarrierDone] = []
        waiting, self._barriers = self._barriers, []
        for number, barrier in enumerate(waiting):
            if self._awaited(barrier.version):
                self._barriers = waiting[number:]  # who misses a version misses all that come after it
                break
            if not done or done[-1].version != barrier.version:
                done.append(self._done(barrier.version))
        return done


class _Sent:
    """What a linked member has been sent of this broker's interest."""

    __slots__ = ("owner", "patterns", "version")

    def __init__(self, owner: tuple[int, ...]) -> None:
        self.owner = owner
        self.version = 0
        self.patterns: dict[str, int] = {}


def _checked(patterns: list[Pattern]) -> list[Pattern]:
    for pattern, _ in patterns:
        try:
            check_pattern(pattern)
        except TopicError as error:
            raise LinkError(f"interest has a pattern that is none: {error}") from error
    return patterns
