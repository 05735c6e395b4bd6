"""Programs are notified of full disks, idle consumers and dead letters, and when each trouble is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.dataplane.queue_watch import CALM_S, POISON_S, STALE_S, Notice, topic_of
from mesh.topics import check_topic
from tests.mesh.dataplane.homes import RawClient, World


def started(folder: Path, window: int = 16) -> tuple[World, RawClient]:
    world = World(folder)
    worker = world.client("worker")
    worker.attach("mail", "jobs.#", window=window)
    return world, worker


def told(world: World) -> list[tuple[str, str, object]]:
    notices = world.home.notices(world.now)
    assert all(notice.name == "mail" for notice in notices)
    return [(notice.kind, notice.about.get("state", ""), notice.about.get("dead")) for notice in notices]


def test_a_full_disk_is_reported_once_and_ends_once_it_accepts_messages_and_is_calm(tmp_path: Path) -> None:
    world, _ = started(tmp_path)
    world.journal.full = True
    world.keep(b"a")
    assert told(world) == [("full", "begins", None)]
    world.wait(60.0)
    world.keep(b"b")
    assert told(world) == [], "it is known"
    world.journal.full = False
    world.wait(CALM_S)
    assert told(world) == [], "nobody has tried"
    world.keep(b"c")
    assert told(world) == [("full", "over", None)]
    world.journal.full = True
    world.keep(b"d")
    assert told(world) == [("full", "begins", None)]
    world.journal.full = False
    world.keep(b"e")
    assert told(world) == [], "an occasional message does not make it flicker"


def test_a_consumer_that_settles_nothing_is_reported_while_others_are_served(tmp_path: Path) -> None:
    world, lazy = started(tmp_path, window=1)
    busy = world.client("busy")
    busy.attach("mail", window=1)
    world.keep(b"a")
    (held,) = lazy.take() or busy.take()
    world.keep(b"b")
    lazy, busy = (lazy, busy) if busy.take() else (busy, lazy)
    assert told(world) == []
    world.wait(STALE_S / 2)
    busy.work.clear()
    assert told(world) == []
    world.keep(b"c")
    world.wait(STALE_S / 2)
    notices = world.home.notices(world.now)
    assert notices[0].kind == "stale" and notices[0].about["state"] == "begins"
    assert told(world) == []
    lazy.leave()
    busy.leave()
    assert told(world) == [], "what they had waits"
    other = world.client("other")
    other.attach("mail", window=1)
    other.done(*other.take())
    assert told(world) == [("stale", "over", None)]
    assert held.bodies == [b"a"]


def test_messages_without_a_consumer_are_reported_until_one_works_on_them(tmp_path: Path) -> None:
    """They waited forever, and nobody was told."""
    world, worker = started(tmp_path, window=1)
    worker.leave()
    world.keep(b"a")
    world.keep(b"b")
    assert told(world) == []
    world.wait(STALE_S - 1)
    assert told(world) == []
    world.wait(1.0)
    (notice,) = world.home.notices(world.now)
    assert (notice.kind, notice.about["waiting"], notice.about["consumers"]) == ("stale", 2, [])
    world.wait(2 * STALE_S)
    assert told(world) == [], "once"
    worker = world.client("worker")
    worker.attach("mail", window=1)
    assert told(world) == [], "it has done nothing yet"
    worker.done(*worker.take())
    assert told(world) == [("stale", "over", None)]
    worker.done(*worker.take())
    world.wait(2 * STALE_S)
    assert told(world) == [], "nothing waits"


def test_dead_letters_and_delayed_retries_are_not_reported_as_stale(tmp_path: Path) -> None:
    world, worker = started(tmp_path, window=2)
    world.keep(b"a", b"b")
    (work,) = worker.take()
    worker.drop(work, 0)
    worker.retry(work, 1, after_ms=int(3 * STALE_S * 1000))
    world.wait(1.0)
    assert told(world) == [("poison", "", 1)]
    for _ in range(4):
        world.wait(STALE_S / 2)
        assert told(world) == []
    worker.leave()
    for _ in range(3):  # its time comes during the second
        world.wait(STALE_S / 2)
        assert told(world) == []
    world.wait(STALE_S)
    assert told(world) == [("stale", "begins", None)]


def test_a_consumer_that_settles_occasionally_is_not_stale(tmp_path: Path) -> None:
    world, worker = started(tmp_path, window=2)
    for _ in range(10):
        world.keep(b"a")
    for _ in range(5):
        works = worker.take()
        assert told(world) == []
        world.wait(STALE_S * 0.9)
        assert told(world) == []
        worker.done(works[0])


def test_dead_letters_are_counted_and_reported_periodically(tmp_path: Path) -> None:
    world, worker = started(tmp_path)
    for number in range(3):
        world.keep(b"%d" % number)
    works = worker.take()
    worker.drop(works[0], reason="bad " * 100)
    world.wait(1.0)
    (notice,) = world.home.notices(world.now)
    assert notice.kind == "poison" and notice.about["dead"] == 1 and len(str(notice.about["reason"])) == 250
    worker.drop(works[1])
    worker.drop(works[2])
    world.wait(1.0)
    assert told(world) == []
    world.wait(POISON_S)
    assert told(world) == [("poison", "", 2)]
    world.wait(3 * POISON_S)
    assert told(world) == []


@pytest.mark.parametrize("name", ["mail", "post.box", "$dlq.mail", "Büro 7", "x" * 255, "ß" * 127])
def test_every_name_has_a_topic(name: str) -> None:
    topic = topic_of(Notice(name, "poison", {}))
    check_topic(topic)
    assert topic.startswith("$sys.queue.") and topic.count(".") == 3
