"""Damaged messages hold up no others, never vanish, and are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mesh.dataplane import damage
from mesh.dataplane.queue_watch import Notice
from mesh.wire.durable_frames import DEAD_PREFIX, Durable
from tests.mesh.dataplane.homes import NOW_US, World
from tests.mesh.dataplane.test_workers import BODY, bodies, keep_body, worker
from tests.mesh.journal.test_damage import flip, make_unreadable

DEAD = DEAD_PREFIX + "mail"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def notices(world: World) -> list[Notice]:
    return [notice for notice in world.home.notices(world.now) if notice.kind == "damaged"]


def shown(world: World, name: str = "mail") -> dict[str, int]:
    """The figures of damage that ``mesh queue show`` gets."""
    said: list[bytes] = []
    world.home.operate(json.dumps({"do": "show", "name": name}).encode(), NOW_US, said.append)
    world.pump()
    queue = json.loads(said[0])["queue"]
    return {key: queue[key] for key in ("waiting", "dead", "damaged", "unreadable")}


@pytest.mark.parametrize("at", [0, 1000])
def test_a_body_with_a_damaged_first_piece_is_a_dead_letter_that_stays_damaged(world: World, at: int) -> None:
    """Its dead letter was delivered as sound, with the flipped bit. If the bit was in the head of the piece,
    the body was in no queue any more, and nothing said so."""
    worker(world).say(Durable.DETACH, 1)
    keep_body(world)
    (body,) = world.rows()
    flip(world.journal.journal, body.parts[0], at)
    one = worker(world)
    assert one.take() == []
    world.wait(0.2)
    assert (world.queue().waiting, world.queue(DEAD).waiting, len(world.rows(DEAD))) == (0, 1, 1)
    reader = world.client()
    reader.attach(DEAD)
    assert reader.take() == [] and not world.failures
    world.wait(200.0)
    assert reader.take() == [] and world.queue(DEAD).waiting == 1, "it is tried again, and stays"
    assert world.home.journal_status().damaged == 2, "once in each subscription"


def test_a_message_whose_block_is_damaged_meanwhile_can_be_dropped(world: World) -> None:
    """Nothing waited and there was no dead letter: the message was gone."""
    one = worker(world)
    world.keep(b"pay 100")
    (job,) = one.take()
    flip(world.journal.journal, job.row, -1)
    one.drop(job)
    world.wait(0.5)
    assert (world.queue().waiting, world.queue(DEAD).waiting) == (0, 1)
    (notice,) = notices(world)
    assert notice.name == DEAD and notice.about["rows"] == [job.row]
    world = world.restart()
    assert (world.queue().waiting, world.queue(DEAD).waiting) == (0, 1)


def test_reading_dead_letters_removes_none_that_lacks_a_piece(world: World) -> None:
    """A reader that only attached had the dead letter dropped, which removes a dead letter permanently."""
    worker(world).say(Durable.DETACH, 1)
    keep_body(world)
    (body,) = world.rows()
    world.journal.damaged = {body.parts[3]}
    worker(world).take()
    world.wait(0.1)
    reader = world.client()
    reader.attach(DEAD)
    assert bodies(reader.take())
    world.wait(0.2)
    assert len(world.rows(DEAD)) == 1
    world.journal.damaged = set()
    world.wait(61.0)
    works = reader.take()
    assert b"".join(bodies(works)) == BODY, "it is tried again"
    assert shown(world, DEAD) == {"waiting": 1, "dead": 0, "damaged": 1, "unreadable": 1}


def test_an_unreadable_page_costs_its_body_and_no_start(world: World) -> None:
    """The home stored nothing any more, and so at each start as soon as a worker attached."""
    worker(world).say(Durable.DETACH, 1)
    keep_body(world, b"#" * 70_000)
    world.keep(b"other")
    world.journal.journal.close()
    make_unreadable(world.folder, b"#" * 1000)
    for start in (1, 2):
        world = World(world.folder)
        world.sequence = 50 * start
        one = worker(world)
        works = one.take()
        world.wait(0.2)
        assert bodies(works)[-1:] == [b"other"] and not world.failures
        assert world.queue(DEAD).waiting == 1
        world.journal.journal.close()


def test_damage_is_counted_once_and_reported_with_its_rows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was counted where nobody looks: a queue had messages that no consumer got, without a word."""
    worker(world).say(Durable.DETACH, 1)
    for number in range(12):
        world.keep(b"%d" % number)
    rows = [row.row for row in world.rows()]
    world.journal.journal.fetch(rows[0])
    for row in rows[:10]:
        flip(world.journal.journal, row, -1)
    one = worker(world)
    assert bodies(one.take()) == [b"10", b"11"]
    (notice,) = notices(world)
    assert (notice.name, notice.about["damaged"], notice.about["rows"]) == ("mail", 10, rows[:8])
    assert "do not have the CRC" in notice.about["reason"] and notices(world) == []
    one.say(Durable.DETACH, 1)
    worker(world)
    assert notices(world) == [] and world.home.journal_status().damaged == 10
    assert shown(world) == {"waiting": 12, "dead": 0, "damaged": 10, "unreadable": 0}


def test_rows_that_cannot_be_found_are_reported_once_all_others_were_read(world: World) -> None:
    """The queue had messages that no consumer got, without a word."""
    worker(world).say(Durable.DETACH, 1)
    for number in range(4):
        world.keep(b"%d" % number)
    world.journal.journal._db.execute("delete from waiting where row = 2")
    world.journal.journal.close()
    world = World(world.folder)
    world.sequence = 50
    assert len(bodies(worker(world).take())) == 3
    (notice,) = notices(world)
    assert notice.about["damaged"] == 1 and "waiting rows that cannot be found: 1" in notice.about["reason"]


def test_rows_that_vanish_while_a_home_works_are_reported_when_a_consumer_has_read_the_others(
    world: World,
) -> None:
    """They were looked for once in the life of a home, and then at its next start."""
    one = worker(world)
    one.done(*one.take())
    world.wait(2)
    one.say(Durable.DETACH, 1)
    for number in range(4):
        world.keep(b"%d" % number)
    world.journal.journal._db.execute("delete from waiting where row = 2")
    assert len(bodies(worker(world).take())) == 3
    (notice,) = notices(world)
    assert "waiting rows that cannot be found: 1" in notice.about["reason"]


def test_settlements_without_effect_are_in_the_status(world: World) -> None:
    """A message settled under a number that has no consumer was counted where nobody looks."""
    one = worker(world)
    world.keep(b"0")
    (job,) = one.take()
    one.done(job)
    one.done(job)
    one.say(Durable.DONE, 9, [[job.row, 0, b"\x03"]])
    assert world.home.journal_status().in_vain == 3


def test_memory_for_damaged_rows_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "KNOWN_MAX", 3)
    worker(world)
    durable = world.home._durables.by_name["mail"]
    met = damage.DamagedRows()
    for row in (1, 2, 3, 3, 4, 1):
        met.found(durable, row, "bad")
    assert met.rows == 5 and len(met._known) == 3, "the oldest is forgotten, and counted again"
