"""Consumers work off what is kept for a durable subscription, and it survives a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.wire.durable_frames import Durable, Kept
from tests.mesh.dataplane.homes import World

KEPT = [(Kept.KEPT, "")]


def bodies(works: list[object]) -> list[bytes]:
    return [body for work in works for body in work.bodies]  # type: ignore[attr-defined]


def test_a_consumer_gets_and_settles_kept_messages_and_a_restart_brings_back_the_rest(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    worker = world.client()
    worker.attach("mail", "jobs.#")
    assert worker.heard(Durable.ATTACHED) == [[1, 0, []]]
    assert world.keep(b"one", b"two", b"three") == KEPT
    (work,) = worker.take()
    assert (work.number, work.first, work.attempt, work.flags) == (1, 0, 1, 0)
    assert (work.bodies, work.block.topic) == ([b"one", b"two", b"three"], b"jobs.a")
    worker.say(Durable.DONE, 1, [[work.row, 0, b"\x05"]])
    world.wait(0.05)
    assert [(row.floor, row.bitmap) for row in world.rows()] == [(1, b"\x02")]
    assert world.keep(b"four") == KEPT

    world = world.restart()
    assert world.queue().waiting == 2
    worker = world.client()
    worker.attach()
    assert worker.heard(Durable.ATTACHED) == [[1, 2, []]]
    works = worker.take()
    assert bodies(list(works)) == [b"two", b"four"]
    worker.done(*works)
    world.wait(0.05)
    assert world.rows() == [] and world.queue().waiting == 0


@pytest.mark.parametrize("fails", [False, True])
def test_a_consumer_gets_a_block_after_its_commit_and_never_if_that_fails(
    tmp_path: Path, fails: bool
) -> None:
    world = World(tmp_path)
    worker = world.client()
    worker.attach("mail", "jobs.#")
    world.journal.failing = fails
    said = world.keep(b"one", pump=False)
    while world.turn():
        pass
    worker.read()
    assert world.journal.jobs and not said and not worker.work, "it is not on disk yet"
    world.pump()
    assert [kept for kept, _ in said] == [Kept.DOUBT if fails else Kept.KEPT]
    assert bodies(list(worker.take())) == ([] if fails else [b"one"])


def test_a_topic_without_a_subscription_is_not_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.keep(b"x") == [(Kept.UNWANTED, "")]
    assert world.disk is None, "there is no journal until the first subscription"
    world.client().attach("mail", "jobs.#")
    assert world.keep(b"x", topic=b"news") == [(Kept.UNWANTED, "")]
    assert world.keep(b"x") == KEPT
    assert world.journal.commits == 2


@pytest.mark.parametrize("live", [True, False])
def test_one_block_is_work_for_each_subscription_that_wants_it(tmp_path: Path, live: bool) -> None:
    world = World(tmp_path)
    worker = world.client()
    for number, (name, pattern) in enumerate((("a", "jobs.#"), ("b", "jobs.*"), ("c", "news")), 1):
        worker.attach(name, pattern, number=number)
        if not live:
            worker.say(Durable.DETACH, number)
    assert world.keep(b"x") == KEPT
    if not live:
        for number, name in enumerate("abc", 1):
            worker.attach(name, number=number)
    assert sorted(work.number for work in worker.take()) == [1, 2]
    assert len(world.rows("a")) == len(world.rows("b")) == 1


def test_a_broker_with_a_failed_journal_takes_no_further_turns(tmp_path: Path) -> None:
    """A retry that was due stayed due forever: the broker asked for one turn after another."""
    world = World(tmp_path)
    worker = world.client()
    worker.attach("mail", "jobs.#")
    world.keep(b"x")
    (work,) = worker.take()
    worker.retry(work, after_ms=300)
    world.wait(0.1)
    world.journal.failing = True
    world.keep(b"y")
    assert world.failures
    world.now += 1.0
    turns = 0
    while world.turn():
        turns += 1
        assert turns < 10
