"""Consumers get work within their windows. Messages that they do not settle are delivered to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.dataplane import settling, workers
from mesh.dataplane.options import ExchangeOptions
from mesh.wire import blocks
from mesh.wire.durable_frames import DEAD_PREFIX, REDELIVERED, SUSPECT, Durable, Kept
from mesh.wire.session_frames import Kind, Role
from tests.mesh.dataplane.homes import LONG_S, RawClient, Work, World
from tests.mesh.dataplane.neighbourhood import FakePipe

BODY = bytes(range(256)) * 4000
"""A body of some 16 pieces."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def worker(world: World, **given: int) -> RawClient:
    client = world.client()
    client.attach("mail", "jobs.#", **given)
    return client


def bodies(works: list[Work]) -> list[bytes]:
    return [body for work in works for body in work.bodies]


def keep_body(world: World, body: bytes = BODY, topic: bytes = b"jobs.a") -> None:
    first = world.sequence
    world.sequence += 1
    sealed = blocks.seal_pieces(topic, body, publisher=5, boot=3, sequence=first, level=blocks.STORED)
    said = [world.keep_block(piece, first, 1, offset=number) for number, piece in enumerate(sealed)]
    assert said[-1] == [(Kept.KEPT, "")]


def unsettled(world: World, name: str = "mail") -> int:
    """Unsettled messages in the journal."""
    return sum(
        row.count - row.floor - int.from_bytes(row.bitmap, "little").bit_count() for row in world.rows(name)
    )


# --- windows


def test_a_consumer_holds_no_more_than_its_window_and_gets_more_as_it_settles(world: World) -> None:
    one = worker(world, window=4)
    world.keep(*[b"%d" % number for number in range(10)])
    first = one.take()
    assert bodies(first) == [b"0", b"1", b"2", b"3"]
    assert one.take() == []
    one.done(*first)
    assert bodies(one.take()) == [b"4", b"5", b"6", b"7"]


def test_several_consumers_share_the_backlog(world: World) -> None:
    both = [worker(world, window=2), worker(world, window=2)]
    world.keep(*[b"%d" % number for number in range(100)])
    got: list[bytes] = []
    while len(got) < 100:
        for one in both:
            work = one.take()
            got += bodies(work)
            one.done(*work)
    assert sorted(got, key=int) == [b"%d" % number for number in range(100)]
    world.wait(0.1)
    assert world.rows() == []


def test_a_consumer_that_reads_nothing_gets_no_more_than_its_connection_holds(tmp_path: Path) -> None:
    """Its window is open, but messages that it does not read wait on disk and not in memory, and others get
    them."""
    world = World(tmp_path, options=ExchangeOptions(unwritten_bytes_max=100_000))
    stuck = worker(world, window=10_000, size=1 << 30)
    stuck.reading = False
    for _ in range(100):
        world.keep(*[bytes(1000)] * 40)
    port_holds = sum(map(len, stuck.pipe.data))
    assert port_holds < 100_000 + workers.PIECES_AT_ONCE * blocks.SPLIT
    other = worker(world, window=10_000, size=1 << 30)
    got = 0
    while works := other.take():
        got += len(bodies(works))
        other.done(*works)
    assert got >= 3_800
    stuck.reading = True
    world.pump()
    assert got + len(bodies(stuck.take())) == 4_000


def test_all_subscriptions_of_a_full_connection_wait_and_continue_together(tmp_path: Path) -> None:
    """Each of them overfilled the connection once before it was stopped."""
    world = World(tmp_path, options=ExchangeOptions(unwritten_bytes_max=50_000))
    client = world.client()
    client.reading = False
    for number in range(1, 31):
        client.tell(Durable.ATTACH, number, f"sub{number}", ["jobs.#"], 10_000, 1 << 30)
    world.pump()
    for _ in range(20):
        world.keep(*[bytes(1000)] * 10)
    assert sum(map(len, client.pipe.data)) < 50_000 + 11_000
    client.reading = True
    assert len(bodies(client.take())) == 30 * 200


def test_the_read_ahead_of_all_queues_is_bounded_and_each_continues(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each subscription with a stuck consumer held a megabyte, and a client may have thousands."""
    monkeypatch.setattr(workers, "AHEAD_BYTES_MAX", 200_000)
    client = world.client()
    for number in range(1, 21):
        client.attach(f"sub{number}", "jobs.#", number=number)
        client.say(Durable.DETACH, number)
    for _ in range(20):
        world.keep(*[bytes(1000)] * 10)
    sent, world = world.sequence, world.restart()
    world.sequence = sent
    client = world.client()
    for number in range(1, 21):
        client.attach(f"sub{number}", number=number, window=1)
    for _ in range(3):
        world.keep(*[bytes(1000)] * 10)
    durables = world.home._durables.by_name.values()
    held = sum(durable.work().ahead for durable in durables)
    assert held < 200_000 + 20 * 11_000 and held == world.home._workers._ahead
    got = 0
    while works := client.take():
        got += len(works)
        for work in works:
            client.done(work)
    assert got == 20 * 230 and world.home._workers._ahead == 0


def test_the_bytes_read_for_redelivery_by_all_queues_are_bounded_and_each_continues(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each subscription held the bytes of eight blocks for consumers without room: half a megabyte."""
    monkeypatch.setattr(workers, "AHEAD_BYTES_MAX", 200_000)
    holder, client = world.client(), world.client()
    for number in range(1, 21):
        holder.attach(f"sub{number}", "jobs.#", number=number, window=1000, size=1 << 30)
        client.attach(f"sub{number}", number=number, window=1)
    for _ in range(10):
        world.keep(*[bytes(1000)] * 10)
    works = holder.take() + client.take()
    assert sum(len(work.bodies) for work in works) == 20 * 100
    holder.leave()
    durables = world.home._durables.by_name.values()
    for _ in range(3):
        world.pump()
    held = sum(len(row.block or b"") for durable in durables for row in durable.work()._rows.values())
    assert held < 200_000 + 20 * 11_000
    assert held <= sum(durable.work().ahead for durable in durables) == world.home._workers._ahead
    got = 0
    while works:
        for work in works[-20:]:
            client.done(work)
            got += len(work.bodies)
        works = client.take()
    assert got == 20 * 100 and world.home._workers._ahead == 0


def test_live_messages_and_work_share_a_connection(world: World) -> None:
    one = worker(world)
    one.say(Kind.SUBSCRIBE, 2, ["news"], int(Role.LISTEN), 100, 1 << 20)
    world.exchange.publish("news", [b"live"], "sent", world.now)
    world.keep(b"work")
    assert bodies(one.take()) == [b"work"]
    statistics = world.exchange.statistics()
    assert statistics.delivered == 1, "work is counted by its queue"
    one.die()
    assert world.exchange.statistics().drops.get("subscriber_gone", 0) == 0


# --- how sessions end


@pytest.mark.parametrize("end", ["leave", "die", "detach"])
def test_unsettled_messages_go_to_other_consumers(world: World, end: str) -> None:
    one = worker(world, window=3)
    world.keep(b"0", b"1", b"2")
    (work,) = one.take()
    one.tell(Durable.DONE, 1, [[work.row, 0, b"\x01"]])
    if end == "leave":
        one.leave()
    elif end == "die":
        one.die()
    else:
        one.say(Durable.DETACH, 1)
    other = worker(world)
    got = other.take()
    if end == "die":
        assert [work.flags for work in got] == [REDELIVERED | SUSPECT], "one at a time"
        other.done(*got)
        got += other.take()
    else:
        assert [work.flags for work in got] == [REDELIVERED]
    assert bodies(got) == [b"1", b"2"]


def test_a_session_that_says_hello_again_has_died_and_its_number_is_free(world: World) -> None:
    one = worker(world)
    world.keep(b"0")
    (work,) = one.take()
    again = RawClient(world, "worker", pipe=one.pipe)
    world.clients.remove(one)
    assert world.queue().consumers == 1, "another backtrace is another session"
    again.attach("mail")
    again.pipe = FakePipe()
    one.say(Durable.DONE, 1, [[work.row, 0, b"\x01"]])
    assert world.queue().waiting == 0


def test_frames_that_were_not_written_when_a_session_ends_are_not_lost(world: World) -> None:
    one = worker(world)
    one.tell(Durable.DETACH, 9)
    world.keep(b"0", pump=False)
    world.turn()
    world.journal.step()
    one.leave()
    assert bodies(worker(world).take()) == [b"0"]


# --- settling


def test_invalid_settlements_are_counted_and_ignored(world: World) -> None:
    one, other = worker(world, window=1), worker(world, window=1)
    world.keep(b"0", b"1")
    (mine,), (theirs,) = one.take(), other.take()
    for _ in range(3):
        one.say(Durable.DONE, 1, [[theirs.row, theirs.first, b"\x01"]])  # another's message
        one.say(Durable.DONE, 1, [[99, 0, b"\x03"], [mine.row, 7, b"\x01"]])  # there is no such row
        one.say(Durable.DONE, 5, [[mine.row, 0, b"\x01"]])  # under a number that nobody has
        for kind, what in ((Durable.RETRY, 0), (Durable.DROP, "why")):
            one.say(kind, 1, theirs.row, theirs.first, what)
            one.say(kind, 5, mine.row, 0, what)
    one.done(mine)
    for _ in range(3):
        one.done(mine)
        one.retry(mine)
        one.drop(mine)
    assert one.heard(Kind.ERROR) == [] and world.queue().waiting == 1
    counters = world.queue().counters
    assert counters is not None
    assert (counters.settled, counters.retried, counters.buried) == (1, 0, 0)
    assert (counters.unknown, counters.settled_before, counters.not_held) == (9, 9, 9)
    assert world.home._workers.unknown == 9


def test_a_former_holder_may_still_settle_a_message_that_it_gave_back(world: World) -> None:
    one = worker(world)
    world.keep(b"0")
    (work,) = one.take()
    one.retry(work, after_ms=60_000)
    one.done(work)
    world.wait(0.1)
    assert world.rows() == [] and world.queue().waiting == 0


def test_a_retry_comes_after_its_given_delay_or_by_back_off(world: World) -> None:
    one = worker(world)
    world.keep(b"0")
    (work,) = one.take()
    one.retry(work, after_ms=700)
    world.wait(0.69)
    assert one.take() == []
    world.wait(0.02)
    (work,) = one.take()
    assert (work.attempt, work.flags) == (2, REDELIVERED)
    one.retry(work)
    world.wait(0.19)
    assert one.take() == []
    world.wait(0.02)
    (work,) = one.take()
    assert work.attempt == 3
    world = world.restart()
    (work,) = worker(world).take()
    assert work.attempt == 3, "attempts are on disk"


def test_settlements_are_on_disk_after_50_ms_or_with_the_next_commit(world: World) -> None:
    one = worker(world)
    world.keep(b"0")
    one.done(*one.take())
    assert len(world.rows()) == 1
    world.wait(0.05)
    assert world.rows() == []
    world.keep(b"1")
    one.done(*one.take())
    before = world.journal.commits
    world.keep(b"2")
    assert world.journal.commits == before + 1 and len(world.rows()) == 1


def test_dead_letters_are_consumed_like_any_other_messages(world: World) -> None:
    one = worker(world)
    world.keep(b"0", b"bad")
    (work,) = one.take()
    one.drop(work, 1, "not a number")
    assert [queue.name for queue in world.home.queues()] == ["$dlq.mail", "mail"]
    assert world.table == {"mail": ("jobs.#",), "$dlq.mail": ()}
    one.attach("$dlq.mail", number=2)
    assert one.heard(Durable.ATTACHED)[-1] == [2, 1, []]
    (dead,) = one.take()
    assert dead.bodies == [b"bad"] and dead.block.headers is not None
    assert blocks.unpack_headers(dead.block.headers[0]) == {
        "dead-in": "mail",
        "dead-attempts": 1,
        "dead-at-us": 1_700_000_000_000_000,
        "dead-reason": "not a number",
    }
    world.keep(b"worse")
    (later,) = one.take()
    one.drop(later)
    assert one.take()[0].bodies == [b"worse"], "who works on dead letters gets new ones"
    one.drop(dead)
    world.wait(0.1)
    assert unsettled(world, DEAD_PREFIX + "mail") == 1, "what is dropped there is gone"
    assert world.queue(DEAD_PREFIX + "mail").waiting == 1


def test_twenty_attempts_make_a_dead_letter(world: World) -> None:
    one = worker(world)
    world.keep(b"bad")
    for attempt in range(1, 21):
        (work,) = one.take()
        assert work.attempt == attempt
        one.retry(work, after_ms=0)
    assert one.take() == [] and world.queue(DEAD_PREFIX + "mail").waiting == 1
    assert world.rows() == []


# --- a disk that fails


def test_settlements_on_a_full_disk_are_written_once_there_is_room(world: World) -> None:
    one = worker(world, window=3)
    world.keep(b"0", b"1", b"2", b"3")
    (work,) = one.take()
    world.journal.brim = True
    one.drop(work, 0, "bad")
    one.tell(Durable.DONE, 1, [[work.row, 1, b"\x01"]])
    world.wait(5.0)
    assert unsettled(world) == 4 and world.home._settling.refused >= 3
    assert bodies(one.take()) == [b"3"], "others are delivered meanwhile"
    one.tell(Durable.DONE, 1, [[work.row, 2, b"\x01"]])
    world.wait(1.0)
    world.journal.brim = False
    world.wait(1.0)
    assert unsettled(world) == 1 and unsettled(world, DEAD_PREFIX + "mail") == 1
    assert world.queue(DEAD_PREFIX + "mail").waiting == 1


def test_settlements_are_never_written_out_of_order(world: World) -> None:
    """A full disk refused the first submission and accepted the second. The first was then repeated, and
    messages that the second had settled were delivered again."""
    one = worker(world)
    world.keep(b"0", b"1", b"2")
    (work,) = one.take()
    for record in (0, 1):
        one.tell(Durable.DONE, 1, [[work.row, record, b"\x01"]])
        world.now += 0.05
        world.turn()
    world.journal.brim = True
    world.journal.step(1)
    world.journal.brim = False
    world.wait(3.0)
    assert [row.floor for row in world.rows()] == [2]


def test_delivery_stops_while_too_many_settlements_cannot_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "ENTRIES_MAX", 5)
    one = worker(world, window=1)
    for number in range(20):
        world.keep(b"%d" % number)
    world.journal.brim = True
    got = 0
    for _ in range(20):
        works = one.take()
        got += len(works)
        one.done(*works)
        world.wait(0.1)
    assert got < 10
    world.journal.brim = False
    world.wait(2.0)
    while works := one.take():
        got += len(works)
        one.done(*works)
    world.wait(2.0)
    assert got == 20 and world.rows() == []


def test_a_journal_that_cannot_be_read_ends_all_work_with_one_sentence(world: World) -> None:
    one = worker(world, window=1)
    world.journal.unreadable = True
    world.keep(b"0")
    one.say(Durable.DETACH, 1)
    one.attach("mail", number=2)
    assert world.failures == ["the journal cannot be read: the disk is gone"]
    assert [each[1] for each in one.heard(Durable.DETACHED)] == ["failed"]


def test_a_damaged_row_stays_on_disk_and_blocks_no_other(world: World) -> None:
    for number in range(3):
        world.client().attach("mail", "jobs.#")
        world.keep(b"%d" % number)
    world = world.restart()
    world.journal.damaged = {row.row for row in world.rows()[1:2]}
    one = worker(world)
    assert bodies(one.take()) == [b"0", b"2"]
    assert world.home.journal_status().damaged == 1


# --- large bodies


def test_a_large_body_comes_in_pieces_that_make_it(world: World) -> None:
    one = worker(world)
    keep_body(world)
    works = one.take()
    assert b"".join(bodies(works)) == BODY and {work.row for work in works} == {works[0].row}
    assert [work.block.offset for work in works] == [n * blocks.SPLIT for n in range(len(works))]
    one.done(works[0])
    world.wait(0.1)
    assert world.rows() == []


def test_messages_behind_a_large_body_keep_their_order(world: World) -> None:
    one = worker(world)
    one.say(Durable.DETACH, 1)
    world.keep(b"before", b"before too")
    keep_body(world)
    world.keep(b"behind", b"behind too")
    keep_body(world, BODY[::-1])
    one.attach("mail", number=2, size=1 << 26)
    works = one.take()
    assert bodies(works)[:2] == [b"before", b"before too"]
    assert b"".join(bodies(works)[2:]) == BODY + b"behindbehind too" + BODY[::-1]


def test_a_large_body_is_read_no_faster_than_its_consumer_takes_it(tmp_path: Path) -> None:
    world = World(tmp_path, options=ExchangeOptions(unwritten_bytes_max=100_000))
    one = worker(world)
    keep_body(world)
    one.take()
    one.say(Durable.DETACH, 1)
    one.reading = False
    one.attach("mail", number=2, size=1 << 26)
    for _ in range(3):
        keep_body(world, BODY[::-1])
    part = workers.PIECES_AT_ONCE * blocks.SPLIT
    assert sum(map(len, one.pipe.data)) < 100_000 + part + 10_000
    one.reading = True
    assert b"".join(bodies(one.take())) == BODY + BODY[::-1] * 3


def test_room_that_comes_while_pieces_are_read_sends_none_of_them_twice(tmp_path: Path) -> None:
    """The connection was full because of another subscription, had room again, and the same pieces were read
    once more."""
    world = World(tmp_path, options=ExchangeOptions(unwritten_bytes_max=30_000))
    one = worker(world)
    one.say(Durable.DETACH, 1)
    keep_body(world)
    one.attach("other", "other", number=2, window=1)
    for _ in range(2):
        world.keep(bytes(40_000), topic=b"other")
    (first,) = one.take()
    one.tell(Durable.ATTACH, 3, "mail", [], 16, 1 << 24)
    world.turn()
    world.journal.step()
    world.turn()
    assert len(world.journal.jobs) == 1, "the first pieces are being read"
    one.tell(Durable.DONE, 2, [[first.row, 0, b"\x01"]])
    assert one.read(), "what filled the connection is taken"
    works = one.take()
    assert works.pop(0).number == 2 and b"".join(bodies(works)) == BODY


def test_a_consumer_that_leaves_during_a_large_body_leaves_it_to_others(tmp_path: Path) -> None:
    world = World(tmp_path, options=ExchangeOptions(unwritten_bytes_max=100_000))
    one = worker(world)
    one.reading = False
    keep_body(world)
    one.die()
    other = worker(world)
    world.wait(0.2)
    works = other.take()
    assert b"".join(bodies(works)) == BODY and works[0].attempt == 2


def test_a_body_that_lacks_a_piece_becomes_a_dead_letter_that_says_so(world: World) -> None:
    keep_later = worker(world)
    keep_later.say(Durable.DETACH, 1)
    keep_body(world)
    world.keep(b"behind")
    (body, _) = world.rows()
    world.journal.damaged = {body.parts[3]}
    one = worker(world)
    assert bodies(one.take())[-1] == b"behind"
    world.wait(0.1)
    (dead,) = world.rows(DEAD_PREFIX + "mail")
    head = world.journal.journal.fetch(dead.parts[0])
    told = blocks.unpack_headers(blocks.open_block(head.block).headers[0])  # type: ignore[index, union-attr]
    assert told is not None and f"piece {body.parts[3]} cannot be read" in str(told["dead-reason"])


def test_a_row_that_cannot_be_read_behind_a_body_is_tried_again_later(world: World) -> None:
    worker(world).say(Durable.DETACH, 1)
    keep_body(world)
    world.keep(b"behind")
    one = world.client()
    one.tell(Durable.ATTACH, 1, "mail", [], 16, 1 << 24)
    row = world.rows()[1].row
    for _ in range(3):  # it is read ahead with the body, and again when the body is sent
        world.turn()
        world.journal.step()
    world.journal.damaged = {row}
    assert bodies(one.take())[-1] != b"behind" and world.queue().waiting == 2
    world.journal.damaged = set()
    world.wait(61.0)
    (again,) = one.take()
    assert (again.bodies, again.attempt) == ([b"behind"], 1)


def test_a_timer_that_fires_early_catches_up_at_the_next_tick(tmp_path: Path) -> None:
    """Work that was due then waited until anything else happened."""
    world = World(tmp_path)
    client = world.client()
    client.attach("mail", "jobs.#")
    assert world.keep(b"a", b"b") == [(Kept.KEPT, "")]
    (job,) = client.take()
    client.say(Durable.DONE, 1, [[job.row, 0, b"\x01"]])
    due, world.wake = world.wake, LONG_S
    world.exchange.work(due - 1e-9)
    world.now = due + 0.5
    assert unsettled(world) == 2
    world.exchange.tick(world.now)
    world.pump()
    assert unsettled(world) == 1
