"""The durable subscriptions of all homes survive restarts, bad disks and bad files."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping

import msgpack
import pytest

from mesh.broker.durable_file import DurableFile, _crc
from mesh.broker.identity import StateStatus
from mesh.cluster.durable_table import Difference, HomeTable, Subscriptions, table_frames
from mesh.errors import StorageError
from tests.mesh.faulty_storage import FaultyStorage

PATH = "/s/a/durable.msgpack"
DIFFERENT = Difference({"jobs": ("j",)}, ("mail",))
MANY: Subscriptions = {f"s{number}": (f"t{number}.#", "u") for number in range(2000)}


class Gossip:
    """Tables, and which of them are on disk."""

    def __init__(self, **tables: Subscriptions) -> None:
        self.homes = {
            number: HomeTable(2 * number, name, f"tcp://{name}:1", subscriptions)
            for number, (name, subscriptions) in enumerate(tables.items(), start=1)
        }
        self.held: Mapping[int, int] = {}

    def versions(self) -> dict[int, int]:
        return {home: table.version for home, table in self.homes.items()}

    def saved(self, versions: Mapping[int, int]) -> None:
        self.held = dict(versions)


async def load(storage: FaultyStorage, state_dir: str | None = "/s") -> DurableFile:
    return await DurableFile.load(name="a", state_dir=state_dir, storage=storage, now_us=77)


def contents(tables: Mapping[int, HomeTable]) -> dict[int, tuple[object, ...]]:
    return {
        home: (table.version, table.name, table.client_url, table.subscriptions)
        for home, table in tables.items()
    }


async def test_written_tables_are_there_in_the_next_run() -> None:
    storage, tables = FaultyStorage(), Gossip(a={"mail": ("m.#",), "$dlq.mail": ()}, gone={}, great=MANY)
    file = await load(storage)
    assert file.tables == {}
    file.changed(tables)
    await file.aclose(tables)
    assert tables.held == tables.versions()
    again = await load(storage)
    assert contents(again.tables) == contents(tables.homes)
    assert again.tables[3].weight == 4000


async def test_a_change_during_a_write_is_written_by_the_next_one() -> None:
    """The versions reported as on disk are those at the start of the write."""
    storage, tables = FaultyStorage(), Gossip(a={"mail": ("m",)})
    file = await load(storage)
    running = asyncio.create_task(file.run(tables))
    storage.moving.clear()
    file.changed(tables)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for version in (4, 6, 8):
        tables.homes[1].change(version, DIFFERENT)
        file.changed(tables)
    assert tables.held == {} and storage.writes == 0
    storage.moving.set()
    while tables.held != {1: 8}:
        assert tables.held in ({}, {1: 2})
        await asyncio.sleep(0)
    assert storage.writes == 2
    running.cancel()
    await asyncio.wait([running])
    assert contents((await load(storage)).tables) == contents(tables.homes)


async def test_everything_counts_as_written_without_a_state_folder() -> None:
    storage, tables = FaultyStorage(), Gossip(a={"mail": ("m",)})
    file = await load(storage, None)
    file.changed(tables)
    await file.aclose(tables)
    assert storage.contents == {} and tables.held == {1: 2} and file.status() is None


@pytest.mark.virtual
async def test_a_failing_disk_is_reported_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    storage, tables = FaultyStorage(), Gossip(a={"mail": ("m",)})
    file = await load(storage)
    running = asyncio.create_task(file.run(tables))
    storage.fail = True
    file.changed(tables)
    await asyncio.sleep(3.5)
    assert file.status() == StateStatus(4, "No space left on device")
    assert caplog.text.count("cannot save") == 1 and tables.held == {}
    storage.fail = False
    await asyncio.sleep(1.0)
    assert tables.held == {1: 2} and file.status() == StateStatus(4, None) and "is saved again" in caplog.text
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.virtual
async def test_closing_gives_up_on_a_disk_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    storage, tables = FaultyStorage(), Gossip(a={})
    file = await load(storage)
    file.changed(tables)
    storage.moving.clear()
    await file.aclose(tables)
    assert "durable.msgpack is not saved: the disk did not answer in 3 s" in caplog.text


GOOD = list(table_frames(5, HomeTable(4, "e", "", {"mail": ("m",)})))
FLIPPED = bytearray(msgpack.packb([1, _crc(1, GOOD), GOOD]))
FLIPPED[-3] ^= 1
HALF = list(table_frames(5, HomeTable(4, "e", "", MANY)))[1:]
FOREIGN = [msgpack.packb([36])]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is not msgpack"),
        (b"\xc1", "it is not msgpack"),
        (msgpack.packb({}), "does not begin with its schema"),
        (msgpack.packb([0, _crc(0, []), []]), "it is of schema 0"),
        (msgpack.packb([1, 0]), "it holds no frames"),
        (msgpack.packb([9, _crc(1, GOOD), GOOD]), "its checksum is wrong"),
        (msgpack.packb([3, _crc(1, GOOD) ^ 64, GOOD]), "its checksum is wrong"),  # two flipped bits
        (msgpack.packb([999, _crc(1, GOOD), GOOD]), "its checksum is wrong"),
        (msgpack.packb([1, 0, [7]]), "it holds no frames"),
        (bytes(FLIPPED), "its checksum is wrong"),
        (msgpack.packb([1, _crc(1, GOOD), GOOD])[:-9], "it is not msgpack"),
        (msgpack.packb([1, _crc(1, HALF), HALF]), "part 1 of the durable subscriptions .* out of turn"),
        (msgpack.packb([1, _crc(1, FOREIGN), FOREIGN]), "a frame of kind 36"),
    ],
)
async def test_an_unreadable_file_is_set_aside_and_reported(
    content: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FaultyStorage()
    storage.contents[PATH] = content
    with caplog.at_level(logging.WARNING, logger="mesh"):
        file = await load(storage)
    assert file.tables == {}
    assert storage.contents == {PATH + ".damaged-77": content}
    assert re.search(f"cannot be understood .*{why}", caplog.text)


async def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is() -> None:
    storage = FaultyStorage()
    storage.contents[PATH] = content = msgpack.packb([2, _crc(2, GOOD), GOOD])
    with pytest.raises(StorageError, match="written by a newer version .* name another state folder"):
        await load(storage)
    assert storage.contents == {PATH: content}
