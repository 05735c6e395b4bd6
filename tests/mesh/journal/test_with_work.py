"""A work queue over a journal: stored messages are worked off, die when they should, and survive a
restart."""

from __future__ import annotations

from pathlib import Path

from mesh.journal import records
from mesh.journal.journal import Journal
from mesh.wire import blocks
from mesh.work import orders
from mesh.work.options import WorkOptions
from mesh.work.queue import WorkQueue
from mesh.work.rows import StoredRow
from tests.mesh.journal.journals import bodies, done, opened, pieces, store, subscribed, waiting

BODY = bytes(200_000)


class Home:
    """One subscription. Its journal carries out the orders of its queue."""

    def __init__(self, journal: Journal, subscription: int) -> None:
        self.journal = journal
        self.subscription = subscription
        self.queue = WorkQueue(WorkOptions(attempts_max=3))
        self.now = 0.0

    def work(self) -> list[orders.Deliver]:
        """Carry out orders until there are none. Returns the deliveries."""
        delivered: list[orders.Deliver] = []
        while given := self.queue.orders(self.now, commit=True):
            entries: list[records.Entry] = []
            for order in given:
                match order:
                    case orders.Deliver():
                        delivered.append(order)
                    case orders.Load(after_row, rows_max, bytes_max):
                        found = self.journal.read(self.subscription, after_row, bytes_max, rows_max)
                        rows: list[StoredRow] = [row for row in found if isinstance(row, records.Waiting)]
                        self.queue.loaded(rows, found[-1].row if found else 0)
                    case orders.Fetch(row):
                        block = self.journal.fetch(row)
                        assert isinstance(block, records.Block)
                        self.queue.fetched(row, block.block)
                    case orders.Settle(row, floor, bitmap, whole):
                        entries.append(
                            records.Done(self.subscription, row)
                            if whole
                            else records.Settle(self.subscription, row, floor, bitmap)
                        )
                    case orders.Attempts(row, attempts):
                        entries.append(records.Attempts(self.subscription, row, attempts))
                    case orders.Bury(row, index, reason, attempts):
                        entries.append(records.Bury(self.subscription, row, index, reason, attempts))
            if entries:
                done(self.journal, *entries)
        return delivered


def bodies_of(order: orders.Deliver) -> list[bytes]:
    return list(blocks.open_block(order.block).bodies[order.first : order.first + order.count])


def test_a_poison_message_becomes_one_dead_letter_and_the_others_are_done(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(
        journal,
        *(store(number * 10, mail, count=10) for number in range(1, 6)),
        *pieces(100, mail, body=BODY),
    )
    home = Home(journal, mail)
    poison, seen, large = b"body 23", set[bytes](), 0
    for session in range(1, 40):
        home.queue.attach(session, window=8)
        died = False
        while not died and (delivered := home.work()):
            for order in delivered:
                large += bool(order.parts)
                found = [BODY] if order.parts else bodies_of(order)
                died = died or poison in found
                if poison not in found:
                    seen.update(found)
                    home.queue.done(session, order.row, order.first, (1 << order.count) - 1, home.now)
        home.queue.detach(session, home.now, died=died)
        home.work()
        home.now += 100
        if session == 2:  # results so far are known after a restart
            journal.close()
            journal = opened(tmp_path)
            home = Home(journal, mail)
        if not waiting(journal, mail):
            break
    assert waiting(journal, mail) == []
    dead = {kept.name: kept.id for kept in journal.subscriptions()}["$dlq.mail"]
    assert bodies(journal, dead) == [poison]
    assert seen == {b"body %d" % n for ten in range(1, 6) for n in range(ten * 10, ten * 10 + 10)} - {
        poison
    } | {BODY}
    assert large == 1
    journal.close()
