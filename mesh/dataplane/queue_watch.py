"""Notices to programs of trouble with durable subscriptions. Pure.

===== ========================================== =====================================================
kind  begins                                     is over
===== ========================================== =====================================================
full  the disk has no room for a message         something was stored again, and nothing was
                                                 refused for `CALM_S`
stale a consumer settled none of the messages it  neither holds any more
      holds for `STALE_S`; or messages wait, and
      nobody has settled any for so long
===== ========================================== =====================================================

Dead letters wait for an operator, and messages to retry wait for their time: neither is stale.

A notice is sent when each of these begins and when it is over. ``poison`` means that messages became dead
letters. It carries their number since the last notice, and is sent at most once in `POISON_S` for each
subscription.

Events are counted where they happen; `scan` makes notices of them now and then.
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
    """A message on ``$sys.queue.NAME.KIND``, or on ``$sys.journal.KIND`` if it has no name. ``about`` is its
    body."""

    name: str
    kind: str
    about: Mapping[str, Any]


class _Letters:
    """Dead letters of one subscription since its last notice."""

    __slots__ = ("attempts", "count", "reason", "told_at")

    def __init__(self) -> None:
        self.count = 0
        self.reason = ""
        self.attempts = 0
        self.told_at = -POISON_S


class _Full:
    """A subscription for which a message was refused. ``stored`` is its count at that time."""

    __slots__ = ("last", "refused", "since", "stored")

    def __init__(self, now: float) -> None:
        self.since = now
        self.last = now
        self.refused = 0
        self.stored = 0


class QueueWatch:
    """Watches subscriptions, by their ids."""

    def __init__(self) -> None:
        self._refused: dict[int, int] = {}
        self._full: dict[int, _Full] = {}
        self._letters: dict[int, _Letters] = {}
        self._progress: dict[int, tuple[int, float]] = {}
        """By consumer: its settled messages, and since when that number is unchanged."""
        self._worked: dict[int, tuple[int, float]] = {}
        """The same by subscription, for those in which messages wait."""
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
        """The notices to send now."""
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
    """True if nothing was settled for `STALE_S`. Records in ``found`` since when."""
    known = before.get(id)
    since = now if known is None or known[0] != settled else known[1]
    found[id] = settled, since
    return now >= since + STALE_S


def _may_wait(durable: Durable) -> bool:
    """True if it needs no consumer now."""
    if durable.name.startswith(DEAD_PREFIX):
        return True
    return durable.queue is not None and durable.queue.snapshot().delayed >= durable.waiting


def topic_of(notice: Notice) -> str:
    """The topic of a notice: the subscription's name with `_` for each character that a topic cannot hold."""
    if not notice.name:
        return f"$sys.journal.{notice.kind}"
    shown = "".join(
        each if each.isascii() and (each.isalnum() or each in "-_") else "_" for each in notice.name
    )
    return f"$sys.queue.{shown[:200]}.{notice.kind}"
