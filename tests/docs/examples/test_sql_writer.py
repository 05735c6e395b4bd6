"""The SQL writer: each reading is one row, whatever dies and whenever."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from mesh import Client
from simulations import Mesh, World
from tests.docs.examples.programs import program

writer = program("sql_writer")


def rows(path: Path) -> list[tuple[str, float]]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(database.execute("select sensor, celsius from reading"))


async def make_queue(client: Client) -> None:
    async with client.subscribe("readings.#", durable=writer.QUEUE):
        pass


async def publish(client: Client) -> None:
    """Until all hundred are stored, in steps."""
    for number in range(0, 100, 10):
        bodies = [json.dumps({"celsius": celsius}).encode() for celsius in range(number, number + 10)]
        await client.publish_many("readings.cellar", bodies, level="stored", timeout=60)
        await asyncio.sleep(0.3)


class Database(sqlite3.Connection):
    """Counts commits; after some of them the program is killed before it can say that messages are done."""

    commits = 0
    kill_at: tuple[int, ...] = ()
    world: World

    def __exit__(self, *error: object) -> bool:  # type: ignore[override]
        result = super().__exit__(*error)  # type: ignore[arg-type]
        Database.commits += 1
        if Database.commits in Database.kill_at:
            self.world.node("writer").crash()
        return bool(result)


def test_each_reading_is_one_row_although_the_writer_dies_between_commit_and_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "readings.db"
    inserted: list[int] = []
    insert = writer.insert

    def insert_and_count(database: sqlite3.Connection, rows: object) -> int:
        inserted.append(insert(database, rows))
        return inserted[-1]

    monkeypatch.setattr(writer, "insert", insert_and_count)

    writer.opened(path).close()
    databases = [sqlite3.connect(path, factory=Database) for _ in range(4)]
    lives = iter(databases)

    with World(1) as world:
        Database.world, Database.commits, Database.kill_at = world, 0, (2, 3, 6)
        mesh = Mesh(world, brokers=2)
        mesh.run(make_queue)
        mesh.client("publisher", publish, at="broker-2")
        mesh.client("writer", lambda client: writer.write(client, next(lives)))
        for _ in range(30):
            world.run_for(1)
            if not world.node("writer").alive:
                world.inject("start", ["writer"])
        assert next(lives, None) is None, "it died three times"
    for database in databases:
        database.close()
    assert rows(path) == [("cellar", float(celsius)) for celsius in range(100)]
    assert 0 in inserted, "some came again, and were known"


def test_a_locked_database_delays_the_messages_and_loses_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "readings.db"

    with (
        closing(writer.opened(path)) as other,
        closing(sqlite3.connect(path, timeout=0)) as database,
        World(1) as world,
    ):
        mesh = Mesh(world, brokers=1)
        mesh.run(make_queue)
        other.execute("begin exclusive")
        mesh.client("writer", lambda client: writer.write(client, database))
        mesh.client("publisher", publish)
        world.run_for(300)
        assert "database is locked" in caplog.text
        other.rollback()
        world.run_for(20)
    assert len(rows(path)) == 100


def test_a_malformed_reading_becomes_a_dead_letter_and_the_others_are_written(tmp_path: Path) -> None:
    path = tmp_path / "readings.db"
    bad = [b"", b"[]", b"{}", b'{"celsius": "warm"}', b'{"celsius": null}', b'{"celsius": NaN}', b"\xff"]

    async def publish(client: Client) -> None:
        await client.publish_many("readings.attic", [*bad, b'{"celsius": 20}'], level="stored")

    async def letters(client: Client) -> list[bytes]:
        async with client.subscribe(durable=f"$dlq.{writer.QUEUE}") as dead:
            return [(await anext(dead)).body for _ in range(dead.waiting)]

    with closing(writer.opened(path)) as database, World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.run(make_queue)
        mesh.run(publish)
        mesh.client("writer", lambda client: writer.write(client, database))
        world.run_for(5)
        assert sorted(mesh.run(letters)) == sorted(bad)
    assert rows(path) == [("attic", 20.0)]


def test_values_that_are_not_finite_numbers_are_refused() -> None:
    job = SimpleNamespace(topic="readings.a", body=b'{"celsius": 20.5}')
    assert writer.row_of(job) == ("a", 20.5)
    job.body = b'{"celsius": {}}'
    with pytest.raises(ValueError, match="no reading"):
        writer.row_of(job)
