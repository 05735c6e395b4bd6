"""Notices to programs of trouble with durable subscriptions. Pure.

===== ========================================== =====================================================
kind  begins                                     is over
===== ========================================== =====================================================
full  the disk has no room for a message         something was stored again, and for `CALM_S` nothing
                                                 was refused
stale a consumer has settled nothing of what it  neither is so any more
      holds for `STALE_S`; or messages wait, and
      nobody has settled any for so long
===== ========================================== =====================================================

Dead letters wait for somebody to look at them, and what is to be tried later for its time: neither is stale.

Each of these is told when it begins and when it is over. ``poison``, a message became a dead letter, is told
with the number since the last time, at most once in `POISON_S` for each subscription.

What happens is noted where it happens, at the cost of a count; `scan` makes notices of it now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mesh.dataplane.durables import Durable
from mesh.wire.durable_frames import DEAD_PREFIX

CALM_S: Final = 10.0
STALE_S: Final = 300.0
POISON_S: Final = 10.0
NAMES_MAX: Final = 8
"""Consumers that a notice names."""
REASON_MAX: Final = 250


@dataclass(frozen=True, slots=True)
class Notice:
    """A message of ``$sys.queue.NAME.KIND``, or without a name of ``$sys.journal.KIND``; ``about`` is its
    body."""

    name: str
    kind: str
    about: Mapping[str, Any]


class _Letters:
    """Dead letters of one subscription since they were told of last."""

    __slots__ = ("attempts", "count", "reason", "told_at")

    def __init__(self) -> None:
        self.count = 0
        self.reason = ""
        self.attempts = 0
        self.told_at = -POISON_S


class _Full:
    """A subscription for which a message was refused. ``stored`` is what it had then."""

    __slots__ = ("last", "refused", "since", "stored")

    def __init__(self, now: float) -> None:
        self.since = now
        self.last = now
        self.refused = 0
        self.stored = 0


class QueueWatch:
    """See the module. By the ids of subscriptions."""

    def __init__(self) -> None:
        self._refused: dict[int, int] = {}
        self._full: dict[int, _Full] = {}
        self._letters: dict[int, _Letters] = {}
        self._progress: dict[int, tuple[int, float]] = {}
        """By consumer: what it has settled, and since when that is so."""
        self._worked: dict[int, tuple[int, float]] = {}
        """The same by subscription, of those in which messages wait."""
        self._stale: dict[int, float] = {}

    def refused(self, wants: tuple[int, ...], count: int) -> None:
        """A full disk refused messages for these subscriptions."""
        for id in wants:
            self._refused[id] = self._refused.get(id, 0) + count

    def buried(self, id: int, reason: str, attempts: int) -> None:
        """A message of a subscription became a dead letter."""
        letters = self._letters.setdefault(id, _Letters())
        letters.count += 1
        letters.reason, letters.attempts = reason[:REASON_MAX], attempts

    def scan(self, durables: Mapping[int, Durable], now: float) -> list[Notice]:
        """What is to be told now."""
        notices: list[Notice] = []
        self._scan_full(durables, now, notices)
        self._scan_letters(durables, now, notices)
        self._scan_work(durables, now, notices)
        return notices

    def _scan_full(self, durables: Mapping[int, Durable], now: float, notices: list[Notice]) -> None:
        refused, self._refused = self._refused, {}
        for id, count in refused.items():
            if id not in durables:
                continue
            full = self._full.get(id)
            if full is None:
                full = self._full[id] = _Full(now)
                notices.append(Notice(durables[id].name, "full", {"state": "begins", "refused": count}))
            full.last, full.stored = now, durables[id].stored
            full.refused += count
        for id, full in list(self._full.items()):
            durable = durables.get(id)
            if durable is None:
                del self._full[id]
            elif durable.stored > full.stored and now >= full.last + CALM_S:
                del self._full[id]
                about = {"state": "over", "refused": full.refused, "for_s": round(now - full.since, 1)}
                notices.append(Notice(durable.name, "full", about))

    def _scan_letters(self, durables: Mapping[int, Durable], now: float, notices: list[Notice]) -> None:
        for id, letters in list(self._letters.items()):
            durable = durables.get(id)
            quiet = now >= letters.told_at + POISON_S
            if durable is None or (not letters.count and quiet):
                del self._letters[id]
            elif letters.count and quiet:
                about = {"dead": letters.count, "reason": letters.reason, "attempts": letters.attempts}
                notices.append(Notice(durable.name, "poison", about))
                letters.count, letters.told_at = 0, now

    def _scan_work(self, durables: Mapping[int, Durable], now: float, notices: list[Notice]) -> None:
        progress: dict[int, tuple[int, float]] = {}
        worked: dict[int, tuple[int, float]] = {}
        stale: dict[int, float] = {}
        for id, durable in durables.items():
            waiting = durable.waiting
            if waiting <= 0:
                continue
            idle = not _may_wait(durable) and _unchanged(worked, self._worked, id, durable.settled, now)
            stuck: list[tuple[int, int]] = []
            if durable.queue is not None and durable.attachments:
                for consumer, held, settled in durable.queue.holders():
                    if _unchanged(progress, self._progress, consumer, settled, now):
                        stuck.append((consumer, held))
            if not stuck and not idle:
                continue
            stale[id] = self._stale.get(id, now)
            if id not in self._stale:
                sessions = [durable.attachments[consumer].session.name for consumer, _ in stuck[:NAMES_MAX]]
                held = sum(held for _, held in stuck)
                about = {"state": "begins", "consumers": sessions, "held": held, "for_s": STALE_S}
                notices.append(Notice(durable.name, "stale", about | {"waiting": waiting}))
        for id, since in self._stale.items():
            if id not in stale and id in durables:
                about = {"state": "over", "for_s": round(now - since, 1)}
                notices.append(Notice(durables[id].name, "stale", about))
        self._progress, self._worked, self._stale = progress, worked, stale


def _unchanged(
    found: dict[int, tuple[int, float]],
    before: Mapping[int, tuple[int, float]],
    id: int,
    settled: int,
    now: float,
) -> bool:
    """Whether nothing was settled for `STALE_S`. Notes in ``found`` since when."""
    known = before.get(id)
    since = now if known is None or known[0] != settled else known[1]
    found[id] = settled, since
    return now >= since + STALE_S


def _may_wait(durable: Durable) -> bool:
    """Whether nobody needs to work on it now."""
    if durable.name.startswith(DEAD_PREFIX):
        return True
    return durable.queue is not None and durable.queue.snapshot().delayed >= durable.waiting


def topic_of(notice: Notice) -> str:
    """That of a notice: of the name what may stand in a topic, `_` for each other character."""
    if not notice.name:
        return f"$sys.journal.{notice.kind}"
    shown = "".join(
        each if each.isascii() and (each.isalnum() or each in "-_") else "_" for each in notice.name
    )
    return f"$sys.queue.{shown[:200]}.{notice.kind}"
