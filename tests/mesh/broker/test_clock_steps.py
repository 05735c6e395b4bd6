"""The clock of a home steps back and forth: nothing stored is lost, delivered twice or delayed."""

from __future__ import annotations

import asyncio

import pytest

from mesh import Client
from mesh.wire import blocks
from mesh.wire.session_frames import Kind
from mesh.wire.session_opening import client_id, verified
from simulations import Mesh, World
from simulations.programs.brokers import url_of
from tests.mesh.broker.raw_sessions import raw_session

HOME = "broker-1"
YEAR_S = 365 * 86400.0


async def make(client: Client) -> None:
    async with client.subscribe("jobs.#", durable="mail"):
        pass


@pytest.mark.parametrize("step_s", [-10 * YEAR_S, -3600.0, 3600.0, 10 * YEAR_S])
def test_stored_messages_are_worked_off_once_and_retries_come_in_time(step_s: float) -> None:
    worked: list[bytes] = []
    stored: list[bytes] = []
    paused_s: list[float] = []

    async def work(client: Client) -> None:
        loop = asyncio.get_running_loop()
        retried_at: dict[str, float] = {}
        async with client.subscribe("jobs.#", durable="mail", window=4) as jobs:
            async for job in jobs:
                if job.body == b"10" and job.attempt == 1:
                    retried_at[job.id] = loop.time()
                    job.retry(after=5.0)
                    continue
                if job.attempt > 1:
                    paused_s.append(loop.time() - retried_at[job.id])
                worked.append(bytes(job.body))
                job.done()

    async def publish(client: Client) -> None:
        for number in range(40):
            body = b"%d" % number
            await client.publish("jobs.a", body, level="stored")
            stored.append(body)
            await asyncio.sleep(0.25)

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(make, at=HOME)
        mesh.client("worker", work, at="broker-2")
        world.run_for(1.0)
        world.scheduler.after(int(2.6e9), world.inject, "clock_step", [HOME], (), step_s)
        mesh.run(publish, at="broker-2")
        world.run_for(6.0)
        assert sorted(worked) == sorted(stored) and len(stored) == 40
        assert len(paused_s) == 1 and 4.9 < paused_s[0] < 5.5
        (queue,) = (each for each in mesh.broker(HOME).statistics()["queues"] if each["name"] == "mail")
        assert queue["waiting"] == 0 and queue["redelivered"] == 1
        mesh.finish()


@pytest.mark.parametrize("step_s", [-YEAR_S, 6 * 86400.0])
def test_a_retry_is_known_as_a_duplicate_after_a_step_and_a_restart(step_s: float) -> None:
    """Only a publisher that was silent for seven days is forgotten."""
    block = blocks.seal(
        b"jobs.a",
        [b"once"],
        publisher=verified(client_id(b"s" * 32)),
        boot=7,
        sequence=1,
        level=blocks.STORED,
    )

    async def publish(client: Client) -> None:
        async with raw_session(url) as publisher:
            publisher.publish(block)
            assert (await publisher.hear(Kind.ACK))[1:] == [[[1, 1]], [], [HOME]]

    async def drain(client: Client) -> list[bytes]:
        async with client.subscribe(durable="mail") as jobs:
            return [bytes((await anext(jobs)).body) for _ in range(jobs.waiting)]

    with World(2) as world:
        mesh = Mesh(world, brokers=1)
        url = url_of(world.network.hosts[HOME].address)
        mesh.run(make)
        mesh.run(publish)
        world.inject("clock_step", [HOME], (), step_s)
        mesh.run(publish)
        world.inject("power_off", [HOME])
        world.inject("start", [HOME])
        mesh.wait_whole()
        mesh.run(publish)
        assert mesh.run(drain) == [b"once"]
