"""A disk that is nearly full: dead letters need room, and what others settle makes some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mesh.dataplane.settling import Settling
from mesh.errors import StoreFull
from mesh.journal.records import Answer, Bury, Done, Entry, Verdict
from mesh.wire.durable_frames import Durable
from tests.mesh.dataplane.homes import RawClient, World
from tests.mesh.dataplane.test_workers import DEAD_PREFIX, worker

PAGES_LEFT = 8


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def fill(world: World) -> None:
    """Leave only a few pages for the database."""
    db = world.journal.journal._db
    ((pages,),) = db.execute("pragma page_count").fetchall()
    db.execute(f"pragma max_page_count = {pages + PAGES_LEFT}").fetchall()


def attached(world: World, name: str, pattern: str) -> RawClient:
    client = world.client()
    client.attach(name, pattern, window=4096, size=1 << 26)
    return client


def test_dead_letters_without_room_do_not_block_other_subscriptions(world: World) -> None:
    """All that was settled shared one submission, which was refused as a whole again and again. No
    messages were removed any more, so there was never room."""
    mail, log = worker(world, window=4096, size=1 << 26), attached(world, "log", "jobs.#")
    other = attached(world, "other", "o.#")
    for _ in range(40):
        world.keep(bytes(60_000))
    world.keep(b"x", topic=b"o.a")
    dropped, logged, others = mail.take(), log.take(), other.take()
    fill(world)
    for job in dropped:
        mail.tell(Durable.DROP, 1, job.row, job.first, "of no use")
    world.pump()
    world.wait(1.0)
    assert world.home._settling.refused, "a dead letter takes room while the log has its message"
    other.done(*others)
    world.wait(5.0)
    assert world.rows("other") == [] and len(world.rows("log")) == 40
    log.done(*logged)
    world.wait(60.0)
    assert world.rows("log") == [] == world.rows()
    assert len(world.rows(DEAD_PREFIX + "mail")) == 40 == world.queue(DEAD_PREFIX + "mail").waiting


def test_settlements_that_do_not_fit_at_once_are_written_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of dead letters were one commit, for which the log had no room, however often it was tried.
    In parts each makes room for the next."""
    mail = worker(world, window=4096, size=1 << 26)
    for _ in range(40):
        world.keep(b"x")
    commit = world.journal.commit

    def with_little_room(entries: Sequence[Entry], now_us: int) -> Sequence[Answer]:
        if len(entries) > 8:
            raise StoreFull("the log has no room")
        return commit(entries, now_us)

    world.journal.brim = True
    for job in mail.take():
        mail.drop(job)
        world.wait(0.1)
    world.journal.brim = False
    monkeypatch.setattr(world.journal, "commit", with_little_room)
    world.wait(60.0)
    assert world.rows() == [] and len(world.rows(DEAD_PREFIX + "mail")) == 40


def test_a_dead_letter_without_room_holds_up_no_settlements() -> None:
    """Each submission that fitted let the next one try the letter again, and a refusal stops all for a
    second: one entry of forty was written in two minutes, until no more could wait."""
    asked: list[tuple[Sequence[Entry], Callable[[object, float], None]]] = []
    written = 0

    class Full:
        """A journal with no room for letters."""

        def submit(self, entries: Sequence[Entry], then: Callable[[object, float], None]) -> None:
            asked.append((entries, then))

    settling = Settling(Full(), lambda *_: None)  # type: ignore[arg-type]
    settling.add(1, [Bury(1, 1, 0, "bad", 1), Done(1, 1)])
    for turn in range(2400):
        now = turn * 0.05
        for subscription in range(2, 22):
            settling.add(subscription, [Done(subscription, turn)])
        settling.submit(now)
        while asked:
            entries, then = asked.pop()
            if any(type(entry) is Bury for entry in entries):
                then(StoreFull("full"), now)
            else:
                written += len(entries)
                then([Answer(Verdict.DONE)] * len(entries), now)
            settling.submit(now)
    assert written > 0.95 * 2400 * 20 and 110 < settling.refused < 130


def test_settlements_of_a_held_subscription_are_gathered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn of the loop added a group of its own until no more could wait, and all delivery stopped."""
    mail = worker(world, window=4096, size=1 << 26)
    for _ in range(202):
        world.keep(b"x")
    dropped, *jobs = mail.take()
    commit = world.journal.commit

    def without_room_for_letters(entries: Sequence[Entry], now_us: int) -> Sequence[Answer]:
        if any(type(entry) is Bury for entry in entries):
            raise StoreFull("no room")
        return commit(entries, now_us)

    monkeypatch.setattr(world.journal, "commit", without_room_for_letters)
    mail.drop(dropped)
    world.wait(0.1)
    for job in jobs:
        mail.done(job)
        world.pump()
    settling = world.home._settling
    (held,) = settling._held.values()
    assert len(held) <= 2 and not settling._waiting and settling.refused


def test_a_submission_looks_at_nothing_that_is_held_back() -> None:
    """Each submission looked through all that waited, while dead letters had no room: 60 000 groups, a
    hundred times a second."""

    class Looked(list[Entry]):
        """Entries that count how often somebody looks through them."""

        looks = 0

        def __iter__(self) -> Iterator[Entry]:
            Looked.looks += 1
            return super().__iter__()

    asked: list[tuple[Sequence[Entry], Callable[[object, float], None]]] = []

    class Full:
        def submit(self, entries: Sequence[Entry], then: Callable[[object, float], None]) -> None:
            asked.append((entries, then))

    settling = Settling(Full(), lambda *_: None)  # type: ignore[arg-type]
    settling.add(1, [Bury(1, 1, 0, "bad", 1)])
    settling.submit(0.0)
    asked.pop()[1](StoreFull("full"), 0.0)
    for row in range(1000):
        settling.add(1, Looked([Done(1, row)]))
    Looked.looks = 0
    for turn in range(100):
        settling.add(2, [Done(2, turn)])
        settling.submit(0.5)
        asked.pop()[1]([Answer(Verdict.DONE)], 0.5)
    assert Looked.looks == 0
    settling.submit(1.5)
    ((entries, _),) = asked
    assert [type(entry) for entry in entries] == [Bury], "its time has come"


def test_entries_of_a_subscription_keep_their_order_while_it_is_held_back() -> None:
    """Some of it waits when its first dead letter comes, and some comes later."""
    asked: list[tuple[Sequence[Entry], Callable[[object, float], None]]] = []

    class Full:
        def submit(self, entries: Sequence[Entry], then: Callable[[object, float], None]) -> None:
            asked.append((entries, then))

    settling = Settling(Full(), lambda *_: None)  # type: ignore[arg-type]
    settling.add(1, [Bury(1, 1, 0, "bad", 1)])
    settling.submit(0.0)
    (_, refused) = asked.pop()
    settling.add(1, [Done(1, 2)])
    settling.add(3, [Done(3, 1)])
    refused(StoreFull("full"), 0.0)
    settling.add(3, [Bury(3, 2, 0, "bad", 1)])
    settling.add(1, [Done(1, 3)])
    settling.add(3, [Done(3, 3)])
    written: list[Entry] = []
    for now in (0.5, 2.0, 2.1, 2.2):
        settling.submit(now)
        while asked:
            entries, then = asked.pop()
            written += entries
            then([Answer(Verdict.DONE)] * len(entries), now)
    assert [entry.row for entry in written if entry.subscription == 1] == [1, 2, 3]  # type: ignore[union-attr]
    assert [entry.row for entry in written if entry.subscription == 3] == [1, 2, 3]  # type: ignore[union-attr]
    assert not settling.full and not settling.gathered and not settling.busy
