"""Notices of trouble with a durable subscription to a program at another broker than its home."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mesh import Client
from mesh.database.room import RESERVE
from mesh.dataplane.queue_watch import CALM_S, POISON_S, STALE_S
from mesh.dataplane.room_watch import LOOK_S
from mesh.errors import NotAccepted
from simulations import Mesh, World
from tests.mesh.loopback import home_of

HOME = "broker-1"


class Watched:
    """A mesh of two whose second broker has a client that records each message of ``$sys.queue.#``."""

    def __init__(self, world: World) -> None:
        self.mesh = Mesh(world, brokers=2)
        self.world = world
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.mesh.client("watcher", self._watch, at="broker-2")
        world.run_for(1.0)

    async def _watch(self, client: Client) -> None:
        async with client.subscribe("$sys.queue.#") as notices:
            async for notice in notices:
                self.heard.append((notice.topic, json.loads(notice.body)))

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        self.world.run_for(2.0)
        heard, self.heard = self.heard, []
        assert all(about["broker"] == HOME for _, about in heard)
        return heard


def test_a_consumer_that_never_settles_is_reported_once_and_others_are_served() -> None:
    worked: list[bytes] = []
    released = asyncio.Event()

    async def lazy(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="mail", window=1) as jobs:
            job = await anext(jobs)
            await released.wait()
            job.done()
            async for job in jobs:
                job.done()

    async def busy(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="mail", window=1) as jobs:
            async for job in jobs:
                worked.append(bytes(job.body))
                job.done()

    async def publish(client: Client) -> None:
        for number in range(30):
            await client.publish("jobs.a", b"%d" % number, level="stored")

    with World(1) as world:
        watched = Watched(world)
        mesh = watched.mesh
        mesh.client("lazy", lazy)
        world.run_for(1.0)
        mesh.client("busy", busy, at="broker-2")
        world.run_for(1.0)
        mesh.run(publish, at="broker-2")
        assert len(worked) == 29 and watched.take() == [], "the other consumer is served"
        world.run_for(STALE_S)
        ((topic, about),) = watched.take()
        assert topic == "$sys.queue.mail.stale" and about["state"] == "begins"
        assert (about["queue"], about["held"], len(about["consumers"])) == ("mail", 1, 1)
        mesh.run(publish, at="broker-2")
        world.run_for(2 * STALE_S)
        assert len(worked) == 59 and watched.take() == [], "it is told once"
        world.scheduler.after(0, released.set)
        ((topic, about),) = watched.take()
        assert (topic, about["state"]) == ("$sys.queue.mail.stale", "over")
        assert home_of(mesh.broker(HOME)).queues()[0].waiting == 0


def test_a_full_disk_is_reported_when_it_begins_and_when_it_ends() -> None:
    stored: list[bytes] = []
    refused: list[str] = []

    async def store(client: Client) -> None:
        body = b"%d" % (len(stored) + len(refused))
        try:
            await client.publish("jobs.a", body, level="stored")
        except NotAccepted as error:
            refused.append(str(error))
        else:
            stored.append(body)

    async def make(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="mail"):
            pass

    async def drain(client: Client) -> list[bytes]:
        async with client.subscribe(durable="mail") as jobs:
            found = [await anext(jobs) for _ in range(jobs.waiting)]
            assert all(job.done() for job in found)
            return [bytes(job.body) for job in found]

    with World(2) as world:
        watched = Watched(world)
        mesh = watched.mesh
        mesh.run(make)
        mesh.run(store, at="broker-2")
        world.inject("full_disk", [HOME])
        for _ in range(3):
            mesh.run(store, at="broker-2")
        assert len(refused) == 3 and len(set(refused)) == 1
        assert "broker-2 refused the message: home broker-1: the disk of" in refused[0]
        ((topic, about),) = watched.take()
        assert (topic, about["state"]) == ("$sys.queue.mail.full", "begins")
        world.run_for(60.0)
        assert mesh.run(drain) == [b"0"], "consuming goes on"
        world.heal()
        world.run_for(CALM_S)
        assert watched.take() == [], "nobody has tried"
        mesh.run(store, at="broker-2")
        ((topic, about),) = watched.take()
        assert (topic, about["state"], about["refused"]) == ("$sys.queue.mail.full", "over", 3)
        assert mesh.run(drain) == [b"4"] == stored[1:]


def test_a_journal_is_reported_before_it_is_full() -> None:
    """A program was first told when its message was refused."""

    async def store(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="mail"):
            pass
        await client.publish_many("jobs.a", [bytes(16_000)] * 100, level="stored")

    heard: list[dict[str, Any]] = []

    async def watch(client: Client) -> None:
        async with client.subscribe("$sys.journal.#") as notices:
            async for notice in notices:
                assert notice.topic == "$sys.journal.filling"
                heard.append(json.loads(notice.body))

    with World(2) as world:
        mesh = Mesh(world, brokers=2)
        mesh.client("watcher", watch, at="broker-2")
        mesh.run(store)
        world.run_for(2 * LOOK_S)
        assert heard == []
        taken = sum(len(file.content) for file in world.disk(HOME).files.values())
        world.inject("full_disk", [HOME], value=taken + RESERVE + 2_200_000)
        mesh.run(store)
        world.run_for(2 * LOOK_S)
        (about,) = heard
        assert (about["state"], about["queues"], about["broker"]) == ("begins", ["mail"], HOME)
        assert about["used"] > 3_000_000 and 0 < about["usable"] < 800_000
        world.heal()
        world.run_for(2 * LOOK_S)
        assert [each["state"] for each in heard] == ["begins", "over"]


def test_dead_letters_are_reported_with_their_number_and_the_reason_of_the_last() -> None:
    async def drop(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="post.box") as jobs:
            for number in range(6):
                await client.publish("jobs.a", b"%d" % number, level="stored")
                (await anext(jobs)).drop(f"no customer {number}")
                await asyncio.sleep(1.5)

    with World(3) as world:
        watched = Watched(world)
        watched.mesh.run(drop)
        world.run_for(2 * POISON_S)
        heard = watched.take()
        assert {topic for topic, _ in heard} == {"$sys.queue.post_box.poison"}
        assert [about["dead"] for _, about in heard] == [1, 5] and heard[1][1]["attempts"] == 1
        assert heard[1][1]["reason"] == "no customer 5" and heard[1][1]["queue"] == "post.box"
