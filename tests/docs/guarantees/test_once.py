"""Cases in which `@idempotent` and `Inbox` no longer recognise an earlier message."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mesh import Inbox, idempotent
from mesh.clients.jobs import Job
from simulations import World
from tests.docs.guarantees.parties import DAY_S, Worker, bodies, publishing, with_a_queue


class Killed(BaseException):
    """The process is gone at this place."""


def delivered_twice(count: int) -> tuple[list[Job], list[Job]]:
    """Messages of a durable subscription as a consumer got them, and as the next one did."""
    with World(1) as world:
        mesh = with_a_queue(world)
        first = Worker(mesh, says=lambda job: None, name="first")
        mesh.run(publishing(*bodies(count)))
        world.run_until(lambda: len(first.got) == count, timeout_s=10, what="the work")
        world.inject("crash", ["first"])
        second = Worker(mesh, name="second")
        world.run_until(lambda: len(second.got) == count, timeout_s=60, what="the work again")
    return first.jobs, sorted(second.jobs, key=lambda job: int(job.body))


def test_idempotent_repeats_a_message_older_than_its_window(tmp_path: Path) -> None:
    done: list[bytes] = []

    @idempotent(tmp_path / "done.db", window=3)
    def handle(job: Job) -> None:
        done.append(job.body)

    first, again = delivered_twice(5)
    for job in [*first, again[2], again[0]]:
        handle(job)
    assert done == [*bodies(5), b"1"], "the third is within the window, the first is not"


def test_idempotent_repeats_a_message_that_a_crash_kept_from_being_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[bytes] = []

    @idempotent(tmp_path / "done.db")
    def handle(job: Job) -> None:
        done.append(job.body)
        if len(done) == 1:
            raise Killed

    (first,), (again,) = delivered_twice(1)
    with pytest.raises(Killed):
        handle(first)
    handle(again)
    handle(again)
    assert done == [b"1", b"1"]


def test_the_inbox_does_not_cover_effects_outside_its_database(tmp_path: Path) -> None:
    inbox, mails = Inbox(sqlite3.paramstyle), list[bytes]()

    def handle(database: sqlite3.Connection, job: Job, *, dies: bool = False) -> None:
        with database:
            cursor = database.cursor()
            if inbox.is_new(cursor, job):
                cursor.execute("insert into paid values(?)", (job.body,))
                mails.append(job.body)
                if dies:
                    raise Killed

    (first,), (again,) = delivered_twice(1)
    with closing(sqlite3.connect(tmp_path / "accounts.db")) as database:
        inbox.create(database.cursor())
        database.execute("create table paid(body)")
        database.commit()
        with pytest.raises(Killed):
            handle(database, first, dies=True)
        handle(database, again)
        handle(database, again)
        assert database.execute("select body from paid").fetchall() == [(b"1",)], "in the database it is once"
    assert mails == [b"1", b"1"]


def test_the_inbox_repeats_a_forgotten_message(tmp_path: Path) -> None:
    now_s = 1e9
    inbox = Inbox(sqlite3.paramstyle, wall_time=lambda: now_s)
    (first,), (again,) = delivered_twice(1)
    with closing(sqlite3.connect(tmp_path / "accounts.db")) as database:
        cursor = database.cursor()
        inbox.create(cursor)
        assert inbox.is_new(cursor, first) and not inbox.is_new(cursor, again)
        now_s += 8 * DAY_S
        inbox.forget(cursor, older_than_s=7 * DAY_S)
        assert inbox.is_new(cursor, again)
