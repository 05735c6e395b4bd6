"""A broker whose journal cannot be used serves everything else, says why, and loses nothing in the
journal."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mesh import Broker, Client
from mesh.broker.journal_opening import JOURNAL
from mesh.environment import Environment
from mesh.errors import NotAccepted
from mesh.journal.journal import Journal
from mesh.journal.port import OpenedJournal
from mesh.journal.schema import VERSION
from mesh.journal.thread import JournalThread
from tests.mesh.database.disks import faulty_disk

LOCAL = "tcp://127.0.0.1:0"


def in_folder(folder: Path) -> Path:
    return folder / "home" / JOURNAL


async def with_a_message(folder: Path, mesh: str = "mangrove") -> None:
    """Run a broker that stores a message and then ends."""
    async with (
        Broker(name="home", listen=LOCAL, state_dir=folder, mesh=mesh) as broker,
        Client(broker.url) as client,
    ):
        async with client.subscribe("jobs.#", durable="mail"):
            pass
        await client.publish("jobs.a", b"kept", level="stored")


async def refused(folder: Path, environment: Environment | None = None) -> str:
    """A broker there serves everything except level stored. Returns its answer to clients that store and
    subscribe, which is the same three times over and in its status."""
    async with (
        Broker(name="home", listen=LOCAL, state_dir=folder, environment=environment) as broker,
        Client(broker.url) as client,
    ):
        assert (await client.publish("jobs.a", b"x", level="accepted")).level == "accepted"
        for _ in range(3):
            with pytest.raises(NotAccepted) as unstored:
                await client.publish("jobs.a", b"x", level="stored")
            with pytest.raises(NotAccepted) as caught:
                async with client.subscribe("jobs.#", durable="mail"):
                    pass
        failing: str = broker.statistics()["journal"]["failing"]
        assert str(caught.value) == f"broker home: it stores nothing: {failing}"
        assert str(unstored.value) == f"broker home refused the message: {failing}"
        return failing


async def works_off(folder: Path) -> None:
    """A broker there still has the message."""
    async with Broker(name="home", listen=LOCAL, state_dir=folder) as broker, Client(broker.url) as client:
        async with client.subscribe(durable="mail") as jobs:
            assert jobs.waiting == 1
            job = await anext(jobs)
            assert bytes(job.body) == b"kept" and job.done()


async def test_a_journal_of_another_mesh_is_left_alone_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await with_a_message(tmp_path, "other")
    sentence = (
        f"the journal {in_folder(tmp_path)} belongs to mesh 'other', and this broker is of 'mangrove'; name"
        " another state folder"
    )
    assert await refused(tmp_path) == sentence
    assert [record.message for record in caplog.records if "stores no messages" in record.message] == [
        f"broker home stores no messages: {sentence}"
    ]


async def test_a_journal_of_another_broker_is_left_alone_and_named(tmp_path: Path) -> None:
    """The journal was copied from another host."""
    await with_a_message(tmp_path / "one")
    await with_a_message(tmp_path / "two")
    before = in_folder(tmp_path / "one").read_bytes()
    in_folder(tmp_path / "two").write_bytes(before)
    assert "belongs to broker" in await refused(tmp_path / "two")
    assert in_folder(tmp_path / "two").read_bytes() == before
    await works_off(tmp_path / "one")


async def test_a_journal_of_a_newer_version_is_left_alone_and_named(tmp_path: Path) -> None:
    def change(*statements: str) -> None:
        db = sqlite3.connect(in_folder(tmp_path))
        for statement in statements:
            db.execute(statement)
        db.close()

    await with_a_message(tmp_path)
    change("create table news(x)", f"pragma user_version = {VERSION + 1}")
    sentence = await refused(tmp_path)
    assert (
        f"by a newer version (its schema is {VERSION + 1}, this version knows {VERSION}); run that"
        in sentence
    )
    change("drop table news", f"pragma user_version = {VERSION}")
    await works_off(tmp_path)


async def test_a_journal_that_may_only_be_read_is_named(tmp_path: Path) -> None:
    await with_a_message(tmp_path)
    with read_only() as environment:
        assert "cannot be written; give this user the right to" in await refused(tmp_path, environment)
    await works_off(tmp_path)


@contextmanager
def read_only() -> Iterator[Environment]:
    """A disk on which journals cannot be written, since root may write any file."""
    with faulty_disk() as disk:
        disk.read_only = True

        async def open_journal(path: str, *, broker: str, mesh: str) -> OpenedJournal:
            def opened() -> Journal:
                return Journal.open(path, broker=broker, mesh=mesh, now_us=0, vfs=disk.name)

            journal = JournalThread(opened, time.time)
            await journal.open()
            return journal

        yield replace(Environment.real(), open_journal=open_journal)


async def test_a_journal_that_was_cut_is_set_aside_and_the_next_start_says_where_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await with_a_message(tmp_path)
    journal = in_folder(tmp_path)
    journal.write_bytes(journal.read_bytes()[: 3 * 16384])
    sentence = await refused(tmp_path)
    (aside,) = journal.parent.glob(f"{JOURNAL}.damaged-*")
    assert "is damaged" in sentence and f"was set aside as {aside}" in sentence
    assert "start this broker again to continue without" in sentence
    caplog.clear()
    await with_a_message(tmp_path)
    assert f"what waited in it is in {aside}" in caplog.text


async def test_a_client_that_waits_for_a_journal_learns_why_it_cannot_be_made(
    tmp_path: Path,
) -> None:
    """An error other than `StorageError` was not reported, and the client waited forever."""
    real, tries = Environment.real(), 0

    async def open_journal(path: str, *, broker: str, mesh: str) -> OpenedJournal:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError("can't start new thread")
        return await real.open_journal(path, broker=broker, mesh=mesh)

    environment = replace(real, open_journal=open_journal)
    async with (
        Broker(name="home", listen=LOCAL, state_dir=tmp_path, environment=environment) as broker,
        Client(broker.url) as client,
    ):
        with pytest.raises(NotAccepted, match="can't start new thread"):
            async with client.subscribe("jobs.#", durable="mail"):
                pass
        async with client.subscribe("jobs.#", durable="mail") as jobs:
            await client.publish("jobs.a", b"x", level="stored")
            assert (await anext(jobs)).done()


async def test_a_state_folder_whose_name_is_not_utf8_is_named_with_escapes(tmp_path: Path) -> None:
    """No frame could carry the sentence about it, so clients waited forever."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/st\xffate")
    async with Broker(name="home", listen=LOCAL, state_dir=folder) as broker, Client(broker.url) as client:
        for _ in range(3):
            with pytest.raises(NotAccepted) as caught:
                async with client.subscribe("jobs.#", durable="mail"):
                    pass
            said = str(caught.value)
            assert r"/st\udcffate/home/journal.db cannot be opened: SQLite takes paths in UTF-8 only" in said
