"""Figures of durable subscriptions and of their journal. Pure.

The counters of this broker are always known. Bytes and the oldest message are in the journal. `Gauge.look`
asks for them in advance, so that no message waits for the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mesh.dataplane.durables import Durable, Durables
from mesh.dataplane.home_journal import HomeJournal
from mesh.work.statistics import WorkCounters, WorkSnapshot


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """One durable subscription. ``counters`` and ``memory`` are None if it has not had a consumer."""

    name: str
    patterns: tuple[str, ...]
    waiting: int
    """Messages that are not settled."""
    consumers: int
    counters: WorkCounters | None
    memory: WorkSnapshot | None
    size: int | None = None
    """Bytes of the waiting blocks when the journal was last asked."""
    oldest_us: int | None = None
    """Arrival of the oldest one, since the epoch. None if nothing waited then, or if the journal was not
    asked."""

    def entry(self, now_us: int) -> dict[str, Any]:
        """Its entry in the status, without the patterns. Counters are since this broker started."""
        counters, memory = self.counters, self.memory
        old = self.waiting > 0 and self.oldest_us is not None
        return {
            "name": self.name,
            "waiting": self.waiting,
            "bytes": self.size,
            "oldest_s": round(max(0, now_us - (self.oldest_us or 0)) / 1e6, 1) if old else None,
            "consumers": self.consumers,
            "in_flight": 0 if memory is None else memory.in_flight,
            "to_redeliver": 0 if memory is None else memory.returned + memory.suspects + memory.delayed,
            "delivered": 0 if counters is None else counters.delivered,
            "redelivered": 0 if counters is None else counters.redelivered,
            "settled": 0 if counters is None else counters.settled,
            "retried": 0 if counters is None else counters.retried,
            "buried": 0 if counters is None else counters.buried,
        }


@dataclass(frozen=True, slots=True)
class JournalStatus:
    """The journal: messages since this broker started, and why it stores none (empty if it does)."""

    failing: str
    stored: int
    duplicates: int
    """Messages that came again after they were kept."""
    refused: int
    """Messages refused because the disk was full or too slow."""
    share: float | None = None
    """Part of its room that is taken, when it was looked at last; None: not known."""
    filling: bool = False
    """The notice `mesh.dataplane.room_watch` gives has begun and is not over."""
    damaged: int = 0
    """Rows that were found damaged; see `mesh.dataplane.damage`."""
    in_vain: int = 0
    """Messages that consumers settled and did not hold."""


class Gauge:
    """See the module."""

    def __init__(self, durables: Durables, journal: HomeJournal) -> None:
        self._durables = durables
        self._journal = journal
        self._looking = False

    def look(self, names: Sequence[str], then: Callable[[float], None] | None = None) -> None:
        """Ask the journal how much waits in these subscriptions. ``then`` is called when that is known, or
        cannot be. A caller that only wants fresh figures passes no ``then``: it asks nothing while an earlier
        look is in progress."""
        wanted = [self._durables.by_name[name].id for name in names if name in self._durables.by_name]
        if then is None:
            if self._looking or not wanted or not self._journal.is_open:
                return
            self._looking = True

        def question(journal: Any) -> dict[int, tuple[int, int | None]]:
            sizes = {kept.id: kept.size for kept in journal.subscriptions()}
            return {id: (sizes[id], journal.oldest_us(id)) for id in wanted if id in sizes}

        def told(found: Any, now: float) -> None:
            if then is None:
                self._looking = False
            if not isinstance(found, Exception):
                for id, (size, oldest_us) in found.items():
                    durable = self._durables.by_id.get(id)
                    if durable is not None:
                        durable.size, durable.oldest_us = size, oldest_us
            if then is not None:
                then(now)

        if self._journal.is_open:
            self._journal.ask(question, told)
        else:
            self._journal.put_down(told, {})


def status_of(durable: Durable) -> QueueStatus:
    queue = durable.queue
    return QueueStatus(
        durable.name,
        durable.patterns,
        max(0, durable.waiting),
        len(durable.attachments),
        replace(queue.counters) if queue is not None else None,
        queue.snapshot() if queue is not None else None,
        durable.size,
        durable.oldest_us,
    )
