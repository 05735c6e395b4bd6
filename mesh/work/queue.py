"""`WorkQueue`: one durable subscription, worked off by any number of consumers.

A consumer is one session. A message is in exactly one of these places:

    fresh       nobody had it: in the journal, or read ahead (`backlog.py`)
    in flight   one consumer has it and has not settled it; a consumer's window bounds how many
    returned    its consumer left, or its delay is over: it is delivered again as soon as somebody has room
    suspect     its consumer died while it was in flight: it is delivered again by itself (`probing.py`)
    delayed     it is to be tried again, and not yet
    settled     done, or buried as a dead letter

The session is the lease: there is no deadline, and a message comes back when its session ends. An attempt is
counted by ``retry``, or when the consumer died with only this message in flight. So a crash does not condemn
a whole window. After ``attempts_max`` attempts the message is buried.

``done`` settles what the session holds, and what it held before: the work was done, even if another consumer
has the message now. Anything else that a consumer says about messages that it does not hold is counted and
ignored.

Returned messages go before fresh ones, and fresh messages go in the order of the journal. So one consumer
gets the first deliveries of a publisher and topic in order. Shares are even: if there is less than all
windows could take, each gets its part of it.

The cost of a step depends on the messages it moves, by rows at a time where messages are neighbours. It never
depends on the number of waiting messages. Memory holds the bytes read ahead, and those of the next few rows
that are delivered again. The bytes of messages in flight or delayed are read again when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mesh.work.backlog import Backlog
from mesh.work.consumers import Consumer, Roster
from mesh.work.masks import first_run, indices, packed, span
from mesh.work.options import WorkOptions
from mesh.work.orders import Attempts, Bury, Deliver, Fetch, Order, Settle
from mesh.work.probing import Probing
from mesh.work.rows import Row, StoredRow
from mesh.work.statistics import WorkCounters, WorkSnapshot
from mesh.work.waiting import Delays, Shelf

FETCH_AHEAD: Final = 8
"""Rows to be delivered again whose bytes are read before their turn comes."""
NEVER: Final = float("inf")
BYTES_MAX: Final = 1 << 62
"""No bound."""


class WorkQueue:
    """The state of one durable subscription's messages. Each event changes it; `orders` then says what
    there is to do."""

    def __init__(self, options: WorkOptions | None = None) -> None:
        self._options = options or WorkOptions()
        self._consumers: dict[int, Consumer] = {}
        self._roster = Roster()
        self._rows: dict[int, Row] = {}
        self._backlog = Backlog(self._options.ahead_bytes)
        self._returned = Shelf()
        self._suspects = Shelf()
        self._delays = Delays()
        self._probing = Probing(self._options.patience_s, self._options.patience_max_s)
        self._unsaved: dict[int, Row] = {}
        self._save_at = NEVER
        self._in_flight = 0
        self._fetched = 0  # bytes of rows that were read again, or are being read
        self._orders: list[Order] = []
        self.counters = WorkCounters()

    # --- consumers

    def attach(self, consumer: int, window: int, bytes_max: int = BYTES_MAX) -> None:
        """Note that a session begins to work. It may have ``window`` messages unsettled, and about
        ``bytes_max`` bytes."""
        if consumer in self._consumers:
            raise ValueError(f"consumer {consumer} is attached already")
        self._consumers[consumer] = one = Consumer(consumer, window, bytes_max)
        self._roster.place(one)

    def resize(self, consumer: int, window: int) -> None:
        """Change a consumer's window: 0 while its connection has no room. It keeps the messages that it
        holds."""
        one = self._consumers[consumer]
        one.window = window
        self._roster.place(one)

    def detach(self, consumer: int, now: float, *, died: bool) -> None:
        """Note that a session is over: its unsettled messages are delivered again.

        ``died``: it ended without saying so. Then its messages become suspects; if it is a single one, its
        attempt has failed.
        """
        one = self._consumers.pop(consumer)
        self._roster.remove(one)
        self._probing.dismiss(one)
        self._in_flight -= one.in_flight
        alone = died and one.in_flight == 1
        for row in one.rows.values():
            records = row.out.pop(consumer)
            row.remember(consumer, records)
            if died:
                self._probing.accuse(row, records, alone=alone)
            if alone:
                self._failed(
                    row, records.bit_length() - 1, "its consumer died while it had only this", now, None
                )
            else:
                self._return(row, records)
        if not self._consumers:
            self._rest()

    # --- rows

    def committed(self, stored: Sequence[StoredRow]) -> None:
        """Add rows that the journal just committed, in their order."""
        for row in self._backlog.committed(stored, wanted=bool(self._consumers)):
            self._rows[row.number] = row

    def grew(self, row: int) -> None:
        """Note that the journal has rows up to this one, which are not at hand: they are read in their
        turn."""
        self._backlog.grew(row)

    def loaded(self, stored: Sequence[StoredRow], through: int) -> None:
        """Answer a `Load` with rows in their order, and the last row that was looked at (0 if there are no
        more). Damaged rows are left out, and stay in the journal."""
        for row in self._backlog.loaded(stored, through, wanted=bool(self._consumers)):
            if row.fresh:
                self._rows[row.number] = row
            else:
                self._orders.append(settlement(row))

    def fetched(self, row: int, block: bytes) -> None:
        """Answer a `Fetch` with the row's bytes."""
        known = self._rows.get(row)
        if known is not None:
            known.fetching = False
            if self._consumers and (row in self._returned or row in self._suspects):
                known.block = block
            else:
                self._forget(known)

    def unreadable(self, row: int, now: float) -> None:
        """Answer a `Fetch` whose row cannot be read. Its messages that were to be delivered are tried again
        later."""
        known = self._rows.get(row)
        if known is None:
            return
        known.fetching = False
        self._forget(known)
        records = self._returned.discard(row, known.whole) | self._suspects.discard(row, known.whole)
        for index in indices(records):
            self._delays.add(row, index, now + self._options.back_off_max_s)
        self.counters.unreadable += records.bit_count()

    def undeliverable(self, consumer: int, row: int, first: int, count: int, now: float) -> None:
        """Note that records to be delivered cannot be read. Those that the consumer still has go later to a
        consumer with room; no attempt is counted."""
        known = self._rows.get(row)
        records = span(first, count) & known.out.get(consumer, 0) if known is not None else 0
        if known is None or not records:
            return
        self._release(known, self._consumers[consumer], records)
        for index in indices(records):
            self._delays.add(row, index, now + self._options.back_off_max_s)
        self.counters.unreadable += records.bit_count()

    # --- consumers' settlements

    def done(self, consumer: int, row: int, first: int, bitmap: int, now: float) -> None:
        """Settle messages of a row: bit i of ``bitmap`` stands for record ``first`` + i."""
        counters = self.counters
        known = self._rows.get(row)
        if known is None or first >= known.whole.bit_length():
            counters.unknown += bitmap.bit_count()
            return
        said = bitmap << first
        records = said & known.whole
        own = records & known.out.get(consumer, 0)
        if own:
            self._release(known, self._consumers[consumer], own)
        late = 0
        if own != said:
            settled = records & known.settled
            late = records & ~settled & ~own & known.former.get(consumer, 0)
            counters.unknown += said.bit_count() - records.bit_count()
            counters.settled_before += settled.bit_count()
            counters.not_held += (records ^ settled ^ own ^ late).bit_count()
            if late:
                counters.late += late.bit_count()
                self._take_from_wherever(known, late)
        if own or late:
            counters.settled += (own | late).bit_count()
            self._settle(known, own | late, now)

    def retry(self, consumer: int, row: int, index: int, now: float, after_s: float | None = None) -> None:
        """Have a failed message tried again: after a time, or with a back-off that doubles."""
        known = self._given_back(consumer, row, index)
        if known is not None:
            self.counters.retried += 1
            self._failed(known, index, "it was to be tried again", now, after_s)

    def drop(self, consumer: int, row: int, index: int, now: float, reason: str) -> None:
        """Make a message a dead letter at once, since it can never be processed."""
        known = self._given_back(consumer, row, index)
        if known is not None:
            self._bury(known, index, reason, known.attempts.get(index, 0) + 1, now)

    # --- rows that an operator takes out

    def in_hand(self, row: int) -> bool:
        """True if a consumer has messages of that row, or if its settlements are not written yet."""
        known = self._rows.get(row)
        return row in self._unsaved or (known is not None and bool(known.out))

    def withdraw(self, row: int) -> bool:
        """Note that a row is gone from the journal. A consumer that has messages of it settles them in vain.
        False if they were settled before."""
        known = self._rows.get(row)
        if known is None:
            return not self._backlog.has_read(row)
        for consumer, held in list(known.out.items()):
            self._release(known, self._consumers[consumer], held)
        self._backlog.discard(known)
        self._returned.discard(row, known.whole)
        self._suspects.discard(row, known.whole)
        self._delays.discard(row, known.whole)
        self._probing.acquit(known, known.whole)
        self._unsaved.pop(row, None)
        self._remove(known)
        return True

    # --- orders

    def orders(self, now: float, *, commit: bool = False, ahead: bool = True) -> list[Order]:
        """Everything to do now. ``commit``: a commit is about to be made, and may take settlements along.
        ``ahead``: rows to be delivered again may be read before their turn comes."""
        for number, index in self._delays.due(now):
            self._return(self._rows[number], 1 << index)
        if self._consumers:
            self._hand_out(now)
            self._fetch(self._returned, FETCH_AHEAD if ahead else 1)
            self._fetch(self._suspects, FETCH_AHEAD if ahead else 1)
            if self._held < self._options.held_max:
                load = self._backlog.load()
                if load is not None:
                    self._orders.append(load)
        if commit or now >= self._save_at:
            self._save()
        orders, self._orders = self._orders, []
        return orders

    @property
    def ahead(self) -> int:
        """Bytes that were read ahead, about, and those that were read again."""
        return self._backlog.size + self._fetched

    @property
    def all_read(self) -> bool:
        """True if the journal has no row behind the last one that was read."""
        return self._backlog.all_read

    @property
    def has_fresh(self) -> bool:
        """True if a message that no consumer had is at hand."""
        return bool(self._backlog.rows)

    @property
    def unsaved(self) -> bool:
        """True if some settlements are not in the journal yet."""
        return bool(self._unsaved)

    @property
    def next_due(self) -> float | None:
        """When `orders` has something to do although nothing has happened."""
        due = min(self._save_at, self._delays.next_due, self._probing.next_due)
        return due if due < NEVER else None

    def snapshot(self) -> WorkSnapshot:
        """Number of messages in memory by place."""
        return WorkSnapshot(
            consumers=len(self._consumers),
            fresh=self._backlog.count,
            in_flight=self._in_flight,
            returned=self._returned.count,
            suspects=self._suspects.count,
            delayed=self._delays.count,
        )

    def holders(self) -> Iterator[tuple[int, int, int]]:
        """Yield each consumer that has messages: its number, how many it has, and how many it had before."""
        for consumer in self._consumers.values():
            if consumer.in_flight:
                yield consumer.number, consumer.in_flight, consumer.released

    # --- handing out

    @property
    def _held(self) -> int:
        return self._returned.count + self._suspects.count + self._delays.count

    def _hand_out(self, now: float) -> None:
        roster, backlog, returned = self._roster, self._backlog, self._returned
        if self._suspects.count or self._probing.probers:
            self._hand_out_suspects(now)
        share = -(-(returned.count + backlog.count) // (len(roster) or 1))
        while (consumer := roster.next()) is not None:
            room = min(consumer.window - consumer.in_flight, share)
            row = self._first_readable(returned)
            if row is not None:
                self._give_again(row, returned, consumer, room)
            elif backlog.rows:
                row = backlog.rows[0]
                records = self._give(row, row.fresh, consumer, room)
                if backlog.took(row, records):
                    row.let_go()
            else:
                break

    def _hand_out_suspects(self, now: float) -> None:
        suspects, probing, roster = self._suspects, self._probing, self._roster
        half = (len(self._consumers) + 1) // 2
        limit = half if self._backlog.count or self._returned.count else len(self._consumers)
        probing.lose_patience(now)
        self._dismiss(limit)
        while probing.wants(suspects.count, limit) and (consumer := roster.next()) is not None:
            if len(probing.probers) >= half and consumer.in_flight:
                break
            probing.appoint(consumer, now)
            roster.place(consumer)
        for consumer in probing.ready():
            row = self._first_readable(suspects)
            if row is None:
                break
            records = self._give_again(row, suspects, consumer, 1)
            consumer.suspect = row.number, records.bit_length() - 1
            consumer.since = now
        self._dismiss(limit)

    def _dismiss(self, limit: int) -> None:
        for consumer in self._probing.unneeded(self._suspects.count, limit):
            self._probing.dismiss(consumer)
            self._roster.place(consumer)

    def _give_again(self, row: Row, shelf: Shelf, consumer: Consumer, room: int) -> int:
        records = self._give(row, shelf.records(row.number), consumer, room, shelf)
        shelf.discard(row.number, records)
        self._let_go(row)
        return records

    def _give(self, row: Row, offered: int, consumer: Consumer, room: int, shelf: Shelf | None = None) -> int:
        """Give a consumer the first of these records that are neighbours, as many as there is room for.
        Returns them."""
        first, count = first_run(offered)
        attempt, count = row.of_one_attempt(first, min(count, room, consumer.fits(row)))
        records = span(first, count)
        consumer.take(row, records)
        self._roster.place(consumer)
        self._in_flight += count
        self.counters.delivered += count
        if shelf is not None:
            self.counters.redelivered += count
        assert row.block is not None
        self._orders.append(
            Deliver(
                consumer.number,
                row.number,
                first,
                count,
                attempt,
                shelf is not None,
                shelf is self._suspects,
                row.block,
                row.parts,
            )
        )
        return records

    def _first_readable(self, shelf: Shelf) -> Row | None:
        """The row that is next, once its bytes are here."""
        for number in shelf.rows(1):
            row = self._rows[number]
            if row.block is not None:
                return row
        return None

    def _fetch(self, shelf: Shelf, count: int) -> None:
        for number in shelf.rows(count):
            row = self._rows[number]
            if row.block is None and not row.fetching:
                row.fetching = True
                row.fetched = row.size
                self._fetched += row.size
                self._orders.append(Fetch(number))

    def _let_go(self, row: Row) -> None:
        """Drop the bytes of a row unless they are about to be delivered."""
        if not row.fresh and row.number not in self._returned and row.number not in self._suspects:
            self._forget(row)

    def _remove(self, row: Row) -> None:
        """Remove a row of which nothing is left to do."""
        del self._rows[row.number]
        self._fetched -= row.fetched
        row.fetched = 0

    def _forget(self, row: Row) -> None:
        row.let_go()
        if not row.fetching:  # otherwise when its bytes have come
            self._fetched -= row.fetched
            row.fetched = 0

    def _rest(self) -> None:
        """Keep the state of messages but drop their bytes: there are no consumers any more."""
        for row in self._backlog.put_back():
            del self._rows[row.number]
        for shelf in (self._returned, self._suspects):
            for number in shelf.rows(FETCH_AHEAD):
                if not self._rows[number].fresh:
                    self._forget(self._rows[number])

    # --- taking back

    def _release(self, row: Row, consumer: Consumer, records: int) -> None:
        consumer.release(row, records)
        self._in_flight -= records.bit_count()
        self._roster.place(consumer)

    def _given_back(self, consumer: int, row: int, index: int) -> Row | None:
        """The row, if this consumer held that record; it no longer holds it."""
        known = self._rows.get(row)
        if known is None or not 0 <= index < known.whole.bit_length():
            self.counters.unknown += 1
            return None
        record = 1 << index
        if not known.out.get(consumer, 0) & record:
            if known.settled & record:
                self.counters.settled_before += 1
            else:
                self.counters.not_held += 1
            return None
        self._release(known, self._consumers[consumer], record)
        known.remember(consumer, record)
        self._probing.acquit(known, record)
        return known

    def _take_from_wherever(self, row: Row, records: int) -> None:
        """Take records that a former owner settles away from other consumers, or from those waiting to be
        delivered again."""
        number = row.number
        records ^= self._returned.discard(number, records)
        records ^= self._suspects.discard(number, records)
        records ^= self._delays.discard(number, records)
        self._let_go(row)
        for consumer, held in list(row.out.items()) if records else ():
            if held & records:
                self._release(row, self._consumers[consumer], held & records)

    def _return(self, row: Row, records: int) -> None:
        """Have records delivered again: the suspects among them one by one."""
        suspects = records & row.suspected
        if suspects:
            self._suspects.add(row.number, suspects)
        if records != suspects:
            self._returned.add(row.number, records ^ suspects)

    def _failed(self, row: Row, index: int, reason: str, now: float, after_s: float | None) -> None:
        """Count an attempt: the message is tried again later, or buried."""
        options = self._options
        attempts = row.attempts.get(index, 0) + 1
        if options.attempts_max is not None and attempts >= options.attempts_max:
            self._bury(row, index, f"{reason}, at attempt {attempts}", attempts, now)
            return
        row.attempts[index] = attempts
        row.attempts_unsaved = True
        self._is_unsaved(row, now)
        if after_s is None:
            after_s = min(options.back_off_s * 2.0 ** min(attempts - 1, 64), options.back_off_max_s)
        self._delays.add(row.number, index, now + max(0.0, after_s))

    def _bury(self, row: Row, index: int, reason: str, attempts: int, now: float) -> None:
        if self._options.attempts_max is not None:
            self.counters.buried += 1
            self._orders.append(Bury(row.number, index, reason, attempts))
        else:
            self.counters.settled += 1
        self._settle(row, 1 << index, now)
        self._save_at = now  # together with the dead letter, in one commit

    def _settle(self, row: Row, records: int, now: float) -> None:
        row.settled |= records
        self._probing.acquit(row, records)
        if row.attempts:
            for index in [index for index in row.attempts if records >> index & 1]:
                del row.attempts[index]
        self._is_unsaved(row, now)
        if row.settled == row.whole:
            self._remove(row)

    # --- state for the journal

    def _is_unsaved(self, row: Row, now: float) -> None:
        self._unsaved[row.number] = row
        self._save_at = min(self._save_at, now + self._options.save_s)

    def _save(self) -> None:
        for row in self._unsaved.values():
            if row.attempts_unsaved and row.settled != row.whole:
                self._orders.append(Attempts(row.number, dict(row.attempts)))
            row.attempts_unsaved = False
            self._orders.append(settlement(row))
        self._unsaved = {}
        self._save_at = NEVER


def settlement(row: Row) -> Settle:
    """The settled records of a row, for the journal."""
    floor, bitmap = packed(row.settled)
    return Settle(row.number, floor, bitmap, row.settled == row.whole)
