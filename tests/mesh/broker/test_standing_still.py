"""A process that hangs looks dead: no stored message is lost, and repeated messages are marked."""

from __future__ import annotations

import asyncio

import pytest

from mesh import Client
from mesh.clients.jobs import Job
from mesh.errors import MeshError, Unknown
from simulations import Mesh, World

HOME = "broker-1"


async def make(client: Client) -> None:
    async with client.subscribe("jobs.#", durable="mail"):
        pass


def test_the_message_of_a_consumer_that_hangs_is_redelivered_to_another_and_marked_so() -> None:
    held: list[Job] = []
    told: list[bool] = []
    taken: list[tuple[bytes, bool]] = []

    async def still(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="mail", window=1) as jobs:
            held.append(await anext(jobs))
            await asyncio.sleep(1.0)  # it is stopped meanwhile
            told.append(held[0].done())
            await asyncio.Event().wait()

    async def other(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="mail", window=4) as jobs:
            async for job in jobs:
                taken.append((bytes(job.body), job.redelivered))
                job.done()

    async def store(client: Client) -> None:
        await client.publish("jobs.a", b"1", level="stored")

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(make, at=HOME)
        mesh.client("still", still)
        world.run_for(1.0)
        mesh.run(store, at="broker-2")
        world.run_until(lambda: held, timeout_s=5, what="the message")
        world.inject("pause", ["still"], for_s=60.0)
        mesh.client("other", other, at="broker-2")
        world.run_for(30.0)
        assert taken == [(b"1", True)] and not told
        world.run_for(40.0)
        assert len(told) == 1
        (queue,) = (each for each in mesh.broker(HOME).statistics()["queues"] if each["name"] == "mail")
        assert (queue["waiting"], queue["settled"], queue["redelivered"]) == (0, 1, 1)
        mesh.finish()


@pytest.mark.parametrize("who", ["broker-1", "broker-2"])
def test_a_publisher_does_not_take_a_broker_that_hangs_for_a_refusal(who: str) -> None:
    """Either the home or the entry broker hangs: the outcome is unknown, and acknowledged messages are
    there."""
    stored: list[bytes] = []
    outcomes: list[type[MeshError]] = []

    async def publish(client: Client) -> None:
        for number in range(60):
            body = b"%d" % number
            try:
                await client.publish("jobs.a", body, level="stored", timeout=2.0)
                stored.append(body)
            except MeshError as error:
                outcomes.append(type(error))
            await asyncio.sleep(0.1)

    async def drain(client: Client) -> list[bytes]:
        async with client.subscribe(durable="mail") as jobs:
            return [bytes((await anext(jobs)).body) for _ in range(jobs.waiting)]

    with World(2) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(make, at=HOME)
        mesh.client("publisher", publish, at="broker-2")
        world.run_for(1.0)
        world.inject("pause", [who], for_s=3.0)
        world.run_for(60.0)
        assert Unknown in outcomes and len(stored) > 30
        found = mesh.run(drain, at=HOME)
        assert set(stored) <= set(found) and len(found) == len(set(found))
        mesh.finish()
