"""A broker is the same member after a restart, whatever the disk did meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import shutil
from pathlib import Path

import pytest

from mesh.broker import identity as identity_module
from mesh.broker.identity import PEERS_MAX, Identity, KnownPeer, StateStatus, draw_id, format_id
from mesh.errors import Locked, StorageError
from mesh.storage import ThreadStorage
from tests.mesh.faulty_storage import FaultyStorage

PEER = KnownPeer(7, "bravo", "tcp://10.0.0.2:7770")


def rng(seed: int = 1) -> random.Random:
    return random.Random(seed)


async def test_id_incarnation_and_peers_survive_a_restart_and_boot_does_not(tmp_path: Path) -> None:
    storage = ThreadStorage()
    first = await Identity.load(name="a", state_dir=str(tmp_path), storage=storage, rng=rng(1))
    first.remember(5, [PEER])
    await first.aclose()
    second = await Identity.load(name="a", state_dir=str(tmp_path), storage=storage, rng=rng(2))
    assert second.id == first.id
    assert second.boot != first.boot
    assert second.incarnation == 6
    assert second.peers == (PEER,)
    await second.aclose()
    await storage.aclose()


async def test_the_raised_incarnation_is_on_disk_before_the_broker_starts(tmp_path: Path) -> None:
    """A broker killed at once then returns with a higher incarnation than the mesh knows."""
    storage = FaultyStorage()
    for expected in (1, 2, 3):
        identity = await Identity.load(name="a", state_dir="/s", storage=storage, rng=rng())
        assert identity.incarnation == expected
        storage.locked.clear()  # as the kernel does for a killed process


async def test_the_id_is_for_one_run_without_a_state_folder() -> None:
    storage = FaultyStorage()
    one = await Identity.load(name="a", state_dir=None, storage=storage, rng=rng(1))
    two = await Identity.load(name="a", state_dir=None, storage=storage, rng=rng(2))
    assert one.id != two.id
    one.remember(9, [PEER])
    await one.aclose()
    assert storage.contents == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"schema": 1, "id": "00000000000000',
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b'{"schema": 0, "id": "1", "incarnation": 1, "peers": []}',
        b'{"schema": "2", "id": "1", "incarnation": 1, "peers": []}',
        b'{"schema": 1, "id": "0", "incarnation": 1, "peers": []}',
        b'{"schema": 1, "id": "ffffffffffffffff", "incarnation": 1, "peers": []}',
        b'{"schema": 1, "id": "1", "incarnation": -1, "peers": []}',
        b'{"schema": 1, "id": "1", "incarnation": true, "peers": []}',
        b'{"schema": 1, "id": "1", "incarnation": 1, "peers": [{}]}',
        b'{"schema": 1, "id": 1, "incarnation": 1, "peers": []}',
    ],
)
async def test_an_unreadable_file_costs_the_id_and_is_reported(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason was in Python's words, such as "list indices must be integers" and "'schema'"."""
    storage = FaultyStorage()
    storage.contents["/s/a/identity.json"] = content
    with caplog.at_level(logging.WARNING, logger="mesh"):
        identity = await Identity.load(name="a", state_dir="/s", storage=storage, rng=rng())
    assert "cannot be understood" in caplog.text
    assert not re.search(r"indices|\('|codec|int\(\)", caplog.text)
    assert identity.id == draw_id(rng())
    assert identity.incarnation == 1
    assert json.loads(storage.contents["/s/a/identity.json"])["id"] == format_id(identity.id)


async def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is() -> None:
    """It used to be overwritten, and its id was lost."""
    storage = FaultyStorage()
    content = b'{"schema": 2, "id": "1", "more": "than we know"}'
    storage.contents["/s/a/identity.json"] = content
    with pytest.raises(StorageError, match="written by a newer version .* name another state folder"):
        await Identity.load(name="a", state_dir="/s", storage=storage, rng=rng())
    assert storage.contents["/s/a/identity.json"] == content
    assert not storage.locked


async def test_a_flipped_bit_costs_the_id_at_most() -> None:
    """One bit turned schema 1 into 9: the broker took the file for a newer version's and did not start.
    Another changed the incarnation or the id, and nobody noticed."""
    storage = FaultyStorage()
    first = await Identity.load(name="a", state_dir="/s", storage=storage, rng=rng(1))
    first.remember(5, [PEER])
    await first.aclose()
    saved = storage.contents["/s/a/identity.json"]
    for at in range(len(saved) * 8):
        flipped = bytearray(saved)
        flipped[at // 8] ^= 1 << at % 8
        fresh = Identity(draw_id(rng(2)), 99, 1)
        read = identity_module._decode(bytes(flipped), fresh, "identity.json")
        assert read is fresh or (read.id, read.incarnation) == (first.id, 6), flipped


async def test_the_end_of_a_failure_to_save_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    storage = FaultyStorage()
    identity = await Identity.load(name="a", state_dir="/s", storage=storage, rng=rng())
    assert identity.status() == StateStatus(0, None)
    storage.fail = True
    identity.remember(7, [])
    await identity._save()
    assert identity.status() == StateStatus(1, "No space left on device")
    storage.fail = False
    await identity._save()
    assert identity.status() == StateStatus(1, None)
    assert "identity.json is saved again" in caplog.text
    await identity.aclose()


async def test_two_brokers_of_one_name_cannot_share_a_state_folder(tmp_path: Path) -> None:
    storage = ThreadStorage()
    first = await Identity.load(name="a", state_dir=str(tmp_path), storage=storage, rng=rng())
    with pytest.raises(Locked, match="another name or state folder"):
        await Identity.load(name="a", state_dir=str(tmp_path), storage=storage, rng=rng())
    other = await Identity.load(name="b", state_dir=str(tmp_path), storage=storage, rng=rng())
    await first.aclose()
    await other.aclose()
    await storage.aclose()


async def test_an_unwritable_state_folder_is_one_sentence_and_keeps_no_lock() -> None:
    storage = FaultyStorage()
    storage.fail = True
    with pytest.raises(StorageError, match="cannot keep state in /s/a: No space left on device"):
        await Identity.load(name="a", state_dir="/s", storage=storage, rng=rng())
    assert storage.locked == {}


async def test_a_state_folder_removed_while_it_is_opened_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new folder has its own lock, since a second broker might use it. If it is removed each time, that
    is reported."""
    storage, read, takers = ThreadStorage(), ThreadStorage.read, ["once"]

    async def taken_away_before(self: ThreadStorage, path: str) -> bytes | None:
        if takers:
            shutil.rmtree(tmp_path / "a")
        if takers == ["once"]:
            takers.clear()
        return await read(self, path)

    monkeypatch.setattr(ThreadStorage, "read", taken_away_before)
    first = await Identity.load(name="a", state_dir=str(tmp_path), storage=storage, rng=rng())
    with pytest.raises(Locked):
        await Identity.load(name="a", state_dir=str(tmp_path), storage=storage, rng=rng())
    await first.aclose()
    takers.append("always")
    with pytest.raises(StorageError, match="cannot keep state in .*: its folder does not exist"):
        await Identity.load(name="a", state_dir=str(tmp_path), storage=storage, rng=rng())
    await storage.aclose()


async def test_changes_are_saved_together_and_a_failing_disk_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(identity_module, "SAVE_PAUSE_S", 0.01)
    storage = FaultyStorage()
    identity = await Identity.load(name="a", state_dir="/s", storage=storage, rng=rng())
    before = storage.writes
    task = asyncio.create_task(identity.run())
    storage.fail = True
    for incarnation in range(10, 20):
        identity.remember(incarnation, [PEER])
    while identity.save_errors < 3:
        await asyncio.sleep(0.005)
    storage.fail = False
    while json.loads(storage.contents["/s/a/identity.json"])["incarnation"] != 19:
        await asyncio.sleep(0.005)
    assert storage.writes == before + 1
    assert caplog.text.count("cannot save") == 1
    task.cancel()
    await asyncio.wait([task])
    await identity.aclose()
    assert storage.locked == {}


async def test_closing_gives_up_on_a_disk_that_hangs_and_unlocks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(identity_module, "CLOSE_TIMEOUT_S", 0.05)
    storage = FaultyStorage()
    identity = await Identity.load(name="a", state_dir="/s", storage=storage, rng=rng())
    identity.remember(7, [PEER])
    storage.moving.clear()
    await identity.aclose()
    assert "is not saved: the disk did not answer" in caplog.text
    assert storage.locked == {}


@pytest.mark.parametrize("noticed", ["by the last attempt", "by an attempt of a broker that leaves"])
async def test_a_broker_that_stops_does_not_promise_to_try_again(
    noticed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It logged "trying again every second", and ended."""
    storage = FaultyStorage()
    identity = await Identity.load(name="a", state_dir="/s", storage=storage, rng=rng())
    storage.fail = True
    identity.remember(7, [PEER])
    if noticed == "by an attempt of a broker that leaves":
        identity.stopping = True
        task = asyncio.create_task(identity.run())
        while not identity.save_errors:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert not caplog.text
    await identity.aclose()
    (said,) = caplog.messages
    assert said.startswith("/s/a/identity.json lacks the latest changes (")
    assert storage.locked == {}


async def test_only_so_many_peers_are_kept() -> None:
    identity = await Identity.load(name="a", state_dir=None, storage=FaultyStorage(), rng=rng())
    identity.remember(1, [PEER] * (PEERS_MAX + 10))
    assert len(identity.peers) == PEERS_MAX


def test_ids_are_positive_63_bit_and_never_zero() -> None:
    class Zero(random.Random):
        def getrandbits(self, k: int, /) -> int:
            return 0

    assert draw_id(Zero()) == 1
    assert format_id(255) == "00000000000000ff"
