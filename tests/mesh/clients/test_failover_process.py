"""Clients under load while broker processes are killed, and restarted one after the other.

``MANGROVE_KILLS=100 pytest -o faulthandler_timeout=0 tests/mesh/clients/test_failover_process.py`` kills a
hundred times.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from mesh import BlockingClient, Client
from mesh.clients.subscription import Subscription
from tests.mesh.broker.test_broker_process import BrokerProcess, processes, wait_for_states
from tests.mesh.loopback import eventually
from tests.support.ports import free_port

pytestmark = pytest.mark.process

NAMES = ("alpha", "bravo", "charlie", "delta", "echo")
KILLS: Final = int(os.environ.get("MANGROVE_KILLS", "5"))
WAIT_S = 300.0
"""How long a publish may take on a busy machine."""


class Load:
    """Publishes at level accepted without a pause, until `enough`. It records what was accepted, and by which
    broker."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.accepted: dict[bytes, str] = {}
        self.enough = False

    async def run(self) -> None:
        number = 0
        while not self.enough:
            number += 1
            receipt = await self.client.publish("jobs.a", b"%d" % number, timeout=WAIT_S)
            self.accepted[b"%d" % number] = receipt.broker
            await asyncio.sleep(0.002)


class Mesh:
    """The processes, each at a port that it keeps, and their addresses."""

    def __init__(self, brokers: list[BrokerProcess]) -> None:
        self.brokers = {broker.name: broker for broker in brokers}
        self.urls = {broker.name: f"tcp://127.0.0.1:{free_port()}" for broker in brokers}

    async def start(self, name: str) -> None:
        joins = [f"--join={url}" for other, url in self.urls.items() if other != name]
        await self.brokers[name].start("--listen", self.urls[name], *joins)

    async def start_all(self) -> None:
        for name in self.brokers:
            await self.start(name)
        await self.wait_whole()

    async def wait_whole(self) -> None:
        for url in self.urls.values():
            await wait_for_states(url, dict.fromkeys(self.brokers, "alive"))


async def read(subscription: Subscription, got: Counter[bytes]) -> None:
    async for batch in subscription.batches():
        got.update(batch.bodies)


@pytest.mark.timeout(60.0 + 90.0 * KILLS)
async def test_a_publisher_loses_and_duplicates_nothing_when_its_broker_is_killed(
    tmp_path: Path,
) -> None:
    async with processes(tmp_path, *NAMES[:3]) as brokers:
        mesh = Mesh(brokers)
        await mesh.start_all()
        stays = "alpha"  # the subscriber's broker, which is not killed
        async with Client(mesh.urls[stays]) as reader, Client(list(mesh.urls.values())) as publisher:
            async with reader.subscribe("jobs.#") as subscription:
                got: Counter[bytes] = Counter()
                reading = asyncio.create_task(read(subscription, got))
                load = Load(publisher)
                publishing = asyncio.create_task(load.run())
                kills = 0
                while kills < KILLS:
                    there, before = publisher.broker, len(load.accepted)
                    await eventually(lambda before=before: len(load.accepted) > before + 20, "it publishes")
                    if there == stays:
                        pipe = publisher._connection.writer.pipe
                        assert pipe is not None
                        pipe.close("cut by the test")
                    else:
                        kills += 1
                        await mesh.brokers[there].end(signal.SIGKILL)
                    before = len(load.accepted)
                    await eventually(lambda before=before: len(load.accepted) > before + 20, "it goes on")
                    if there != stays:
                        await mesh.start(there)
                        await mesh.wait_whole()
                load.enough = True
                await publishing
                await eventually(lambda: set(load.accepted) <= set(got), "all came")
                reading.cancel()
                assert subscription.interrupted == 0 and max(got.values()) == 1
                assert set(got) == set(load.accepted)


async def test_a_rolling_restart_of_five_processes_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    async with processes(tmp_path, *NAMES) as brokers:
        mesh = Mesh(brokers)
        await mesh.start_all()
        urls = list(mesh.urls.values())
        blocking = BlockingClient(urls)
        await asyncio.to_thread(blocking.open)
        async with Client(urls) as reader, Client(urls) as publisher:
            async with reader.subscribe("jobs.#") as subscription:
                got: Counter[bytes] = Counter()
                reading = asyncio.create_task(read(subscription, got))
                load = Load(publisher)
                publishing = asyncio.create_task(load.run())
                said = []
                for name in NAMES:
                    assert await mesh.brokers[name].end(signal.SIGTERM) == 0
                    said.append(b"blocking %s" % name.encode())
                    await asyncio.to_thread(blocking.publish, "jobs.b", said[-1], timeout=WAIT_S)
                    await mesh.start(name)
                    await mesh.wait_whole()
                load.enough = True
                await publishing
                await eventually(lambda: {*load.accepted, *said} <= set(got), "all came")
                reading.cancel()
                assert subscription.interrupted == 0 and max(got.values()) == 1
                assert len(set(load.accepted.values())) > 1
        await asyncio.to_thread(blocking.close)
