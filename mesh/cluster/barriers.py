"""The barrier: tracks which live brokers know a version of this broker's announcements.

A version is *known* when every live broker has acknowledged it or a later one. Live are ALIVE and SUSPECT
members, linked or not. A member that dies or leaves is no longer waited for; a new member is. `BARRIER_S`
after it was requested, a barrier ends with the names that are missing. A later request for the same version
still gets the whole time. So one version may end several times: with missing names only for requests that
have waited `BARRIER_S`, without them for all requests of it or an earlier version.

Pure. Versions only rise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

BARRIER_S: Final = 5.0
BARRIER_GRAIN_S: Final = 0.1
"""Requests for the same version within this time share a barrier, which ends with the last of them."""
NAME_SHOWN_MAX: Final = 255
"""Maximum characters of a name in frames to clients. URLs to join may be longer."""


@dataclass(frozen=True, slots=True)
class BarrierDone:
    """All live brokers, except those named, know a version."""

    version: int
    unreached: tuple[str, ...]


class _Barrier:
    __slots__ = ("due", "due_first", "version")

    def __init__(self, version: int, due: float) -> None:
        self.version = version
        self.due_first = due
        self.due = due


class Barriers:
    """Tracks acknowledged versions and barriers. Members are ids."""

    def __init__(self, barrier_s: float = BARRIER_S) -> None:
        self._barrier_s = barrier_s
        self._live: dict[int, str] = {}
        self._acknowledged: dict[int, int] = {}
        self._barriers: list[_Barrier] = []
        self.unheard: tuple[str, ...] = ()
        """Members that this broker was told about but has not heard from or about."""
        self._awaits_unheard = False

    def __len__(self) -> int:
        """Number of versions that somebody waits for."""
        return len(self._barriers)

    def wait(self, version: int, now: float) -> BarrierDone | None:
        """Wait until all know a version. Returns the result if it is already known; otherwise one of the
        calls below does."""
        if not self._awaited(version):
            return self._done(version)
        due = now + self._barrier_s
        last = self._barriers[-1] if self._barriers else None
        if last is not None and last.version == version and due - last.due_first <= BARRIER_GRAIN_S:
            last.due = due
        else:
            self._barriers.append(_Barrier(version, due))
        return None

    def members(self, live: Mapping[int, str]) -> list[BarrierDone]:
        """Set the members to wait for, with their names."""
        self._live = dict(live)
        return self._settle()

    def set_unheard(self, names: Iterable[str], *, wait: bool) -> list[BarrierDone]:
        """Set names that barriers list too. With ``wait``, barriers wait for them, since they may know of
        others."""
        unheard = tuple(name[:NAME_SHOWN_MAX] for name in names)
        if (unheard, wait) == (self.unheard, self._awaits_unheard):
            return []
        self.unheard, self._awaits_unheard = unheard, wait
        return self._settle()

    def acknowledged(self, member: int, version: int) -> list[BarrierDone]:
        """A member knows all versions up to this one."""
        self._acknowledged[member] = max(version, self._acknowledged.get(member, 0))
        return self._settle()

    def forget(self, member: int) -> None:
        """A member's acknowledgements no longer count."""
        self._acknowledged.pop(member, None)

    def tick(self, now: float) -> list[BarrierDone]:
        """Barriers whose time is over."""
        done: list[BarrierDone] = []
        while self._barriers and self._barriers[0].due <= now:
            barrier = self._barriers.pop(0)
            done.append(BarrierDone(barrier.version, (*self.unheard, *self._missing(barrier.version))))
        return done

    def next_deadline(self) -> float:
        """The time of the next call of `tick`."""
        return self._barriers[0].due if self._barriers else inf

    def _missing(self, version: int) -> list[str]:
        return [name for member, name in self._live.items() if self._acknowledged.get(member, 0) < version]

    def _awaited(self, version: int) -> bool:
        return (self._awaits_unheard and bool(self.unheard)) or bool(self._missing(version))

    def _done(self, version: int) -> BarrierDone:
        """Nobody is waited for any more."""
        return BarrierDone(version, self.unheard)

    def _settle(self) -> list[BarrierDone]:
        done: list[BarrierDone] = []
        waiting, self._barriers = self._barriers, []
        for number, barrier in enumerate(waiting):
            if self._awaited(barrier.version):
                self._barriers = waiting[number:]  # a member that misses a version misses all later ones
                break
            if not done or done[-1].version != barrier.version:
                done.append(self._done(barrier.version))
        return done
