"""A durable subscription is removed while consumers and publishers work: all are told, once."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from mesh import Client
from mesh.errors import Detached, NotAccepted
from tests.mesh.loopback import Cluster, eventually, home_of

pytestmark = pytest.mark.virtual


async def test_a_removal_is_reported_to_consumers_and_publishers_and_affects_no_other_subscription() -> None:
    stored: list[bytes] = []
    refused: list[str] = []
    ended: list[str] = []
    kept: set[bytes] = set()
    going_on = asyncio.Event()
    going_on.set()
    waiting = asyncio.Event()
    """The publisher has no message under way."""

    async def publish(client: Client) -> None:
        for number in range(10_000):
            body = b"%d" % number
            if not going_on.is_set():
                waiting.set()
            await going_on.wait()
            try:
                receipt = await client.publish("jobs.a", body, level="stored")
            except NotAccepted as error:
                refused.append(str(error))
                return
            assert receipt.homes == ("home",)
            stored.append(body)

    async def work(client: Client, hold: bool) -> None:
        async with client.subscribe("jobs.#", durable="mail", window=16) as jobs:
            held = []
            try:
                async for job in jobs:
                    held.append(job)
                    if not hold:
                        job.done()
            except Detached as error:
                ended.append(str(error))
                for _ in range(3):
                    assert [each for each in held if each.done()] == [], "nobody is there to be told"

    async def archive(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="archive") as jobs:
            with contextlib.suppress(Detached):
                async for job in jobs:
                    kept.add(bytes(job.body))
                    job.done()

    async with Cluster() as cluster:
        home, other = await cluster.mesh("home", "other", state_dir="/state")
        async with Client(home.url) as here, Client(other.url) as there, asyncio.TaskGroup() as tasks:
            for name in ("mail", "archive"):
                async with here.subscribe("jobs.#", durable=name):
                    pass
            keeping = tasks.create_task(archive(there))
            workers = [tasks.create_task(work(each, each is here)) for each in (here, there)]
            table = home_of(home).queues
            await eventually(lambda: sum(queue.consumers for queue in table()) == 3, "three consumers")
            publisher = tasks.create_task(publish(there))
            await eventually(lambda: len(stored) > 100, "messages to be stored")

            said = json.loads(await there.request(f"$sys.queues.{home.id}", b'{"do": "rm", "name": "mail"}'))
            assert "error" not in said and said["removed"] >= 1
            await asyncio.wait(workers)
            assert ended == ["broker home: durable subscription 'mail' was removed"] * 2
            assert not publisher.done(), "the archive wants it"
            again = json.loads(await there.request(f"$sys.queues.{home.id}", b'{"do": "rm", "name": "mail"}'))
            assert "there is no durable subscription 'mail'" in again["error"]

            await eventually(lambda: len(stored) > 300, "more to be stored")
            going_on.clear()
            await waiting.wait()
            await eventually(lambda: len(kept) == len(stored), "the archive has all that was stored")
            await there.request(f"$sys.queues.{home.id}", b'{"do": "rm", "name": "archive"}')
            going_on.set()
            await asyncio.wait([publisher, keeping])
            assert len(refused) == 1 and "nobody keeps jobs.a" in refused[0]
    assert kept == set(stored)
