"""The barrier: who of the live brokers knows a version of what this broker tells the others.

A version is *known* when every live broker has acknowledged it, or a later one. Live are ALIVE and SUSPECT
members, linked or not; who dies or leaves is waited for no longer, who joins is waited for too. `BARRIER_S`
after it was asked for, a barrier ends with the names that are missing. Who asks for a version that others
wait for already has the whole time for itself. So one version may end several times: with names only for
those who have waited `BARRIER_S`, without names for all who wait for it or an earlier one.

Pure. Versions only rise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

BARRIER_S: Final = 5.0
BARRIER_GRAIN_S: Final = 0.1
"""Who asks for the same version within this time of each other share a barrier, which ends with the last."""
NAME_SHOWN_MAX: Final = 255
"""Characters of a name that frames to clients carry; URLs to join may be longer."""


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


class Barriers:
    """See the module. Members are ids."""

    def __init__(self, barrier_s: float = BARRIER_S) -> None:
        self._barrier_s = barrier_s
        self._live: dict[int, str] = {}
        self._acknowledged: dict[int, int] = {}
        self._barriers: list[_Barrier] = []
        self.unheard: tuple[str, ...] = ()
        """Whom this broker was told of and has heard nothing about."""
        self._awaits_unheard = False

    def __len__(self) -> int:
        """Versions that somebody waits for."""
        return len(self._barriers)

    def wait(self, version: int, now: float) -> BarrierDone | None:
        """Wait for all to know a version: done already, or one of the calls below will say."""
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
        """Who is waited for, by name."""
        self._live = dict(live)
        return self._settle()

    def set_unheard(self, names: Iterable[str], *, wait: bool) -> list[BarrierDone]:
        """Barriers name these too; with ``wait`` they wait for them, since they may know of others."""
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
        """What a member acknowledged holds no longer."""
        self._acknowledged.pop(member, None)

    def tick(self, now: float) -> list[BarrierDone]:
        """Barriers that have waited long enough."""
        done: list[BarrierDone] = []
        while self._barriers and self._barriers[0].due <= now:
            barrier = self._barriers.pop(0)
            done.append(BarrierDone(barrier.version, (*self.unheard, *self._missing(barrier.version))))
        return done

    def next_deadline(self) -> float:
        """When to call `tick`."""
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
                self._barriers = waiting[number:]  # who misses a version misses all that come after it
                break
            if not done or done[-1].version != barrier.version:
                done.append(self._done(barrier.version))
        return done
