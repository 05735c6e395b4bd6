"""A home whose disk is full: it refuses new messages, consuming makes room, and it stores again.

The disk is a tmpfs, which only root may mount. It has 64 MB; ``MANGROVE_DISK_MB=256`` gives it another size.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from mesh import Broker, Client, NotAccepted
from mesh.clients.work import Work
from mesh.database.room import LOG_SIZE, RESERVE
from tests.acceptance.storing import broker, is_listening
from tests.mesh.loopback import LOCAL, ROOMY, eventually
from tests.support.killable import Killable
from tests.support.ports import free_port

pytestmark = pytest.mark.long

DISK_MB: Final = int(os.environ.get("MANGROVE_DISK_MB", "64"))
BODY: Final = 10_000
AT_ONCE: Final = 50
"""Messages of one call, half a megabyte."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "mangrove-tests", folder],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def free_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


class Stage:
    """A home with a publisher."""

    def __init__(self, disk: Path, broker: Broker, client: Client) -> None:
        self.disk = disk
        self.broker = broker
        self.client = client
        self.stored: set[bytes] = set()
        self.got: Counter[bytes] = Counter()
        self._numbers = 0

    async def publish(self, count: int = AT_ONCE) -> str:
        """Publish so many, each with its own receipt. Returns the last sentence of a refusal."""
        bodies = [b"%d " % (self._numbers + index) + bytes(BODY) for index in range(count)]
        self._numbers += count
        calls = [self.client.publish("jobs.a", body, level="stored", timeout=120) for body in bodies]
        refused = ""
        for body, outcome in zip(bodies, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(outcome, NotAccepted):
                refused = str(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self.stored.add(body)
        return refused

    def goes_on_from(self, before: Stage) -> None:
        """The broker was restarted."""
        self._numbers = before._numbers
        self.stored = before.stored - before.got.keys()

    async def fill(self) -> str:
        """Publish until the disk is full, to the last message. Returns the sentence that says so."""
        while not await self.publish():
            pass
        while not (refused := await self.publish(1)):
            pass
        return refused

    async def work(self, work: Work, count: int) -> None:
        """Work on so many messages."""
        async for batch in work.batches():
            self.got.update(batch.bodies)
            batch.done()
            if self.got.total() >= count:
                return

    @property
    def queue(self) -> dict[str, Any]:
        (queue,) = self.broker.statistics()["queues"]
        return dict(queue)

    async def settled(self, waiting: int = 0) -> None:
        await eventually(lambda: self.queue["waiting"] == waiting, f"{waiting} wait")


@asynccontextmanager
async def stage(disk: Path) -> AsyncIterator[Stage]:
    async with Broker(name="home", listen=LOCAL, state_dir=disk, **ROOMY) as broker:
        async with Client(broker.url) as client:
            yield Stage(disk, broker, client)


async def make_mail(client: Client) -> None:
    async with client.subscribe("jobs.#", durable="mail"):
        pass


async def fill_and_drain(made: Stage) -> None:
    why = await made.fill()
    assert f"{RESERVE} are reserved for consuming" in why
    assert free_bytes(made.disk) >= RESERVE - LOG_SIZE
    assert made.queue["waiting"] == len(made.stored) - made.got.total()
    async with made.client.subscribe(durable="mail", window=AT_ONCE) as work:
        await made.work(work, len(made.stored))
    await made.settled()
    assert made.got.keys() == made.stored and set(made.got.values()) == {1}


async def test_a_full_disk_refuses_is_drained_and_accepts_again(disk: Path) -> None:
    async with stage(disk) as made:
        await make_mail(made.client)
        await fill_and_drain(made)
        await made.fill()
        assert len(made.stored) * BODY > DISK_MB << 20, "more than half of the disk, each time"
        before = made
    async with stage(disk) as made, made.client.subscribe("$sys.queue.mail.full") as told:
        made.goes_on_from(before)  # it starts on a full disk
        await fill_and_drain(made)
        assert b'"begins"' in (await anext(told)).body
        assert not await made.publish()


@pytest.mark.parametrize("reserve", [True, False])
async def test_a_file_of_another_program_fills_the_disk(disk: Path, reserve: bool) -> None:
    """With the reserved room for consuming, or without it."""
    async with stage(disk) as made:
        await make_mail(made.client)
        while len(made.stored) * BODY < DISK_MB << 18:
            assert not await made.publish()
        stranger = disk / "stranger"
        write(stranger, free_bytes(disk) - (RESERVE if reserve else 0))
        assert await made.publish(1)
        async with made.client.subscribe(durable="mail", window=AT_ONCE) as work:
            await made.work(work, len(made.stored))
        if reserve:
            await made.settled()
            await made.fill()  # the room of consumed messages
        stranger.unlink()
        assert not await made.publish()
        kept = made.stored - made.got.keys()
        await made.settled(len(kept))
        assert made.got.keys() | kept == made.stored and set(made.got.values()) == {1}
    async with stage(disk) as made, made.client.subscribe(durable="mail") as work:
        assert work.waiting == len(kept)
        await made.work(work, len(kept))
        assert made.got.keys() == kept


async def test_a_home_killed_on_a_completely_full_disk_starts_on_it(disk: Path, tmp_path: Path) -> None:
    """It ended with: cannot keep state."""
    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    home = Killable(broker, tmp_path / "home.txt", lambda said: None)
    flags = ("--name", "home", "--listen", url, "--state-dir", str(disk), "--log-dir", str(disk / "log"))

    async def start() -> None:
        home.start(*flags)
        await eventually(lambda: is_listening(port), "the home listens")

    await start()
    try:
        async with Client(url) as client:
            await make_mail(client)
            for number in range(20):
                await client.publish("jobs.a", b"%d" % number, level="stored", timeout=120)
        stranger = disk / "stranger"
        write(stranger, 1 << 40)
        assert free_bytes(disk) < 4096
        home.kill()
        await start()
        async with Client(url) as client, client.subscribe(durable="mail") as work:
            with pytest.raises(NotAccepted, match="make room or consume"):
                await client.publish("jobs.a", b"refused", level="stored", timeout=120)
            jobs = [await anext(work) for _ in range(20)]
            assert sorted(int(job.body) for job in jobs) == list(range(20))
            assert all(job.done() for job in jobs)
            stranger.unlink()
            await client.publish("jobs.a", b"20", level="stored", timeout=120)
            last = await anext(work)
            assert bytes(last.body) == b"20" and last.done()
        home.kill(signal.SIGTERM)
        await start()
        async with Client(url) as client, client.subscribe(durable="mail") as work:
            assert work.waiting == 0, "what was settled is written down"
    finally:
        home.kill()
    told = home.said
    assert "identity.json (No space left on device); trying again" in told
    assert "identity.json is saved again" in told


def write(path: Path, size: int) -> None:
    """So many bytes, or as many as fit."""
    with path.open("wb", buffering=0) as file:
        try:
            for at in range(0, size, 1 << 20):
                file.write(bytes(min(1 << 20, size - at)))
        except OSError as error:
            assert error.errno == errno.ENOSPC
