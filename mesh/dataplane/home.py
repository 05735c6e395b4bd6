"""The durable subscriptions of this broker: blocks in, work out, all of it in one journal. Pure.

`Home` joins modules that each decide one thing:

* `mesh.dataplane.durables`: which subscriptions are here, and which want a topic;
* `mesh.dataplane.keeping`: blocks on their way to the journal, and the answer to each;
* `mesh.dataplane.attaching`: who may work on a subscription, and how one is made;
* `mesh.dataplane.workers`: the orders of each subscription's `WorkQueue`, as frames and entries;
* `mesh.dataplane.settling`: settled messages on their way to the journal;
* `mesh.dataplane.home_journal`: the state of the journal, and its answers;
* `mesh.dataplane.operating`: operators' questions, with figures from `mesh.dataplane.queue_status`.

The `Exchange` drives it: events of a turn are noted, and `hand_over` does the remaining work at its end. The
journal answers between turns; `HomeHooks.work_pending` then asks for a turn.

**A kept message is always somewhere**: it waits in the journal, is in flight at a consumer, or is settled or
a dead letter, and each state reaches the disk. A message that was delivered but not settled when this broker
ends is delivered again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import nlargest
from math import inf
from operator import attrgetter
from typing import Any, ClassVar, Final, Protocol

from mesh.dataplane.attaching import Attaching, Elsewhere, Telling
from mesh.dataplane.damage import DamagedRows
from mesh.dataplane.durables import Durable, Durables
from mesh.dataplane.home_journal import HomeJournal, JournalHooks
from mesh.dataplane.keeping import Keeping, Told
from mesh.dataplane.operating import Answer, Away, Forget, Homes, Operating
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.queue_status import Gauge, JournalStatus, QueueStatus, status_of
from mesh.dataplane.queue_watch import Notice, QueueWatch
from mesh.dataplane.room_watch import RoomWatch
from mesh.dataplane.sessions import Session
from mesh.dataplane.settling import Settling
from mesh.dataplane.workers import Workers
from mesh.errors import SessionError
from mesh.journal import records
from mesh.journal.port import JournalPort, Result
from mesh.wire.blocks import PIECE
from mesh.wire.durable_frames import DEAD_PREFIX
from mesh.wire.durable_frames import Durable as Kind
from mesh.wire.session_frames import name_of

LOOKED_AT: Final = 256
"""Subscriptions whose bytes and oldest message the status reports. Commits wait while these are read."""


class HomeHooks(JournalHooks, Telling, Protocol):
    """A home calls these methods of its broker."""

    def storing_failed(self, why: str) -> None:
        """The journal failed: nothing is stored until a restart."""

    def wake_at(self, at: float) -> None:
        """Call `Exchange.work` at that time. The earliest time asked for counts."""


class _Fresh:
    """A row that was just committed, as a `mesh.work.rows.StoredRow`."""

    __slots__ = ("block", "count", "row")

    parts: ClassVar[tuple[int, ...]] = ()
    floor: ClassVar[int] = 0
    bitmap: ClassVar[bytes] = b""
    attempts: ClassVar[Mapping[int, int]] = {}

    def __init__(self, row: int, count: int, block: bytes) -> None:
        self.row = row
        self.count = count
        self.block = block


class Home:
    """The home of this broker. Nothing is stored before `opened` or `may_be_opened`."""

    def __init__(self, name: str, hooks: HomeHooks, options: ExchangeOptions | None = None) -> None:
        options = options or ExchangeOptions()
        self._hooks = hooks
        self._now = 0.0
        self._wake_at = inf
        self._handing_over = False
        self._durables = Durables(options)
        self._journal = journal = HomeJournal(hooks, self._failed)
        self._settling = Settling(journal, self._buried)
        self._damage = DamagedRows()
        self._workers = Workers(journal, self._settling, self._damage)
        self._attaching = Attaching(self._durables, journal, self._workers, hooks, options)
        self._watch = QueueWatch()
        self._keeping = Keeping(self._durables, journal, self._stored, self._watch.refused)
        self._room_watch = RoomWatch(self._durables, journal, lambda: self._keeping.stored)
        self._attaching.is_empty = lambda durable: not (durable.stored or self._keeping.is_for(durable.id))
        self._gauge = Gauge(self._durables, journal)
        self._operating = Operating(name, self._durables, journal, self._workers, self._gauge, self.remove)
        self._name = name

    # --- the journal

    def may_be_opened(self) -> None:
        """There is a state folder, but no journal in it yet."""
        self._journal.may_be_opened()

    def opened(self, journal: JournalPort, subscriptions: Sequence[records.Kept] = ()) -> None:
        """The journal is open; ``subscriptions`` are those it keeps."""
        for kept in subscriptions:
            self._durables.add(kept).confirmed = True
        self._journal.opened(journal)

    def not_opened(self, why: str, *, again: bool = False) -> None:
        """The journal cannot be used, with the reason. ``again``: the next call that needs it may try to make
        it."""
        self._journal.not_opened(why, again=again)

    @property
    def refusing(self) -> str:
        """Why nothing is stored here. Empty if blocks are stored, or may be."""
        return self._journal.refusing

    @property
    def failure(self) -> str:
        """Why nothing is stored here. Empty if the only reason is the lack of a state folder."""
        return self._journal.failure

    def _failed(self, now: float) -> None:
        self._hooks.storing_failed(self._journal.failure)
        self._settling.forget()
        self._attaching.detach_all("failed", f"it stores nothing: {self._journal.failure}", now)

    def keep(
        self,
        block: bytes,
        publisher: int,
        boot: int,
        first: int,
        last: int,
        lowest: int,
        offset: int,
        told: Told,
        again: bool = False,
    ) -> None:
        """Keep a well-formed block for every subscription here that wants it; see `mesh.dataplane.keeping`.
        ``again``: it may have come before this broker started."""
        self._keeping.keep(block, publisher, boot, first, last, lowest, offset, told, again)

    # --- other brokers

    @property
    def table(self) -> dict[str, tuple[str, ...]]:
        """Names and patterns of all durable subscriptions here."""
        return self._durables.table()

    def set_elsewhere(self, elsewhere: Elsewhere, senior: Elsewhere) -> None:
        """Set how to find the home of a subscription that is not here, and of one that was made here and
        there at the same time; see `mesh.dataplane.attaching`."""
        self._attaching.elsewhere = elsewhere
        self._attaching.senior = senior

    def set_unsure(self, unsure: Callable[[], str]) -> None:
        """Set the function that says why it is not known what other brokers keep. Attaching clients wait
        until it is known."""
        self._attaching.unsure = unsure

    def barrier_reached(self, version: int, unreached: Sequence[str] = ()) -> None:
        """Every live broker, except those named, has the table up to ``version`` on disk."""
        self._journal.put_down(lambda names, now: self._attaching.reached(version, names), list(unreached))

    def remove(self, name: str, told: Callable[[str], None]) -> None:
        """Remove a subscription with everything that waits in it. ``told`` gets the reason of a failure or an
        empty sentence, perhaps before this returns."""
        durable = self._durables.by_name.get(name)
        if durable is None:
            told(f"there is no durable subscription {name!r} at broker {self._name}")
            return
        entries = [records.Unsubscribe(durable.id)]
        self._journal.submit(entries, partial(self._removed, durable, told))

    def _removed(self, durable: Durable, told: Callable[[str], None], result: Result, now: float) -> None:
        if isinstance(result, Exception):
            told(f"durable subscription {durable.name!r} was not removed: {result}")
            return
        if self._durables.by_id.get(durable.id) is durable:
            self._attaching.detach_from(
                durable, "removed", f"durable subscription {durable.name!r} was removed", now
            )
            self._durables.remove(durable)
            self._workers.forget(durable)
            self._hooks.durable_changed({}, [durable.name])
        told("")

    # --- operators

    def set_homes(self, homes: Homes, away: Away) -> None:
        """Set how to find all brokers that have a durable subscription of a name, and all homes that cannot
        be reached now."""
        self._operating.homes, self._operating.away = homes, away

    def set_forget(self, forget: Forget) -> None:
        """Set how to forget another home."""
        self._operating.forget = forget

    def operate(self, body: bytes, now_us: int, answer: Answer) -> None:
        """Answer an operator's question; see `mesh.dataplane.operating`. ``now_us`` is since the epoch."""
        self._operating.ask(body, now_us, answer)

    def notices(self, now: float) -> list[Notice]:
        """Notices of trouble for programs; see `mesh.dataplane.queue_watch`, `mesh.dataplane.damage` and
        `mesh.dataplane.room_watch`. Call this now and then."""
        return self._watch.scan(self._durables.by_id, now) + self._damage.scan() + self._room_watch.scan(now)

    # --- sessions

    def control(self, session: Session, frame: list[Any], now: float) -> None:
        """A client's frame of kind 64 or up. Raises `SessionError`, `TopicError`."""
        workers = self._workers
        match frame:
            case [Kind.DONE, number, settled]:
                workers.done(session.work.get(number), settled, now)
            case [Kind.RETRY, number, row, index, after_ms]:
                workers.retry(session.work.get(number), row, index, after_ms, now)
            case [Kind.DROP, number, row, index, reason]:
                workers.drop(session.work.get(number), row, index, reason, now)
            case [Kind.ATTACH, number, name, patterns, messages, size]:
                self._attaching.attach(session, number, name, patterns, messages, size, now)
            case [Kind.DETACH, number]:
                self._attaching.detach(session, number, now)
            case [kind, *_]:
                raise SessionError(f"a {name_of(kind)} frame is not for a client to send")

    def session_over(self, session: Session, now: float, *, died: bool) -> None:
        """A session has ended. ``died``: without saying goodbye."""
        if session.work:
            self._attaching.session_over(session, now, died=died)

    def end_what_is_not_allowed(self, session: Session, now: float) -> None:
        """The session's rights have changed."""
        self._attaching.end_what_is_not_allowed(session, now)

    def leave(self, reason: str, now: float) -> None:
        """The broker leaves. Consumers are told, and unsettled messages stay in the journal."""
        self._attaching.leaving = reason
        self._attaching.detach_all("leaving", reason, now)

    def finish(self, now: float) -> None:
        """Hand the journal everything that was settled. It is closed next."""
        self._workers.step(now, commit=True)
        self._settling.flush()
        self._keeping.submit()

    # --- a turn

    @property
    def pending(self) -> bool:
        """True if `hand_over` has work to do."""
        return bool(
            self._journal.news or self._keeping.gathered or self._workers.touched or self._attaching.undecided
        )

    def due(self, now: float) -> bool:
        """True if `hand_over` has work to do at that time."""
        return self.pending or now >= self._wake_at

    def hand_over(self, now: float) -> None:
        """Do the remaining work of this turn."""
        if self._handing_over:  # a hook was called within it, and this turn goes on
            return
        if now >= self._wake_at:
            self._wake_at = inf
        elif not self.pending:
            return
        self._now = now = max(self._now, now)
        self._handing_over = True
        try:
            self._work(now)
        finally:
            self._handing_over = False

    def _work(self, now: float) -> None:
        journal, workers, keeping = self._journal, self._workers, self._keeping
        journal.take_news(now)
        self._attaching.decide(now)
        settling = self._settling
        workers.step(now, commit=not settling.busy and (keeping.gathered or settling.gathered))
        settling.submit(now)
        keeping.submit()
        due = min(workers.next_due, settling.next_due, self._attaching.next_due)
        if due < self._wake_at:
            self._wake_at = due
            self._hooks.wake_at(due)

    def _stored(self, store: records.Store, answer: records.Answer) -> None:
        """A block was committed. Consumers of subscriptions that want it get it at once."""
        whole = not store.block[1] & PIECE
        count = store.last - store.first + 1
        fresh: list[_Fresh] = []
        for id in store.wants:
            durable = self._durables.by_id.get(id)
            if durable is None:
                continue
            durable.stored += count
            if durable.queue is None:
                continue
            if whole and durable.attachments and self._workers.reads_ahead:
                fresh = fresh or [_Fresh(answer.row, count, store.block)]
                durable.queue.committed(fresh)
            else:
                durable.queue.grew(answer.row)
            if durable.attachments:
                self._workers.touch(durable)

    def _buried(self, entry: records.Bury, answer: records.Answer) -> None:
        """A dead letter was committed, or could not be made since the message is not in the journal."""
        buried_in = self._durables.by_id.get(entry.subscription)
        if not answer.row:
            if buried_in is not None:
                self._damage.found(buried_in, entry.row, "it is missing, so it is no dead letter")
            return
        self._watch.buried(entry.subscription, entry.reason, entry.attempts)
        dead = self._durables.by_id.get(answer.subscription)
        if dead is None:
            if buried_in is None:
                return
            name = DEAD_PREFIX + buried_in.name
            dead = self._attaching.add(records.Kept(answer.subscription, name, (), 0, 0, 0, 0))
        if answer.row == entry.row:
            self._damage.found(dead, answer.row, "a worker dropped it, and it is kept as it is")
        dead.stored += 1
        if dead.queue is not None:
            dead.queue.grew(answer.row)
            self._workers.touch(dead)

    # --- numbers

    def queues(self) -> list[QueueStatus]:
        """Every durable subscription here, by name."""
        return [status_of(durable) for _, durable in sorted(self._durables.by_name.items())]

    def look(self) -> None:
        """Ask the journal for the bytes and oldest messages in `queues`, where most messages wait."""
        durables = nlargest(LOOKED_AT, self._durables.by_id.values(), key=attrgetter("waiting"))
        self._gauge.look([durable.name for durable in durables])

    def journal_status(self) -> JournalStatus:
        """Figures of what the journal was given, of its room and of damage in it."""
        keeping, room = self._keeping, self._room_watch
        return JournalStatus(
            self._journal.failure,
            keeping.stored,
            keeping.duplicates,
            keeping.refused,
            room.share,
            room.filling,
            self._damage.rows,
            self._workers.unknown
            + sum(it.queue.counters.in_vain for it in self._durables.by_id.values() if it.queue is not None),
        )
