"""A message that kills each receiver becomes one dead letter, through the real client and broker."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest

from simulations.programs.clients import opened
from simulations.world import Process
from tests.simulations.faults.meshes import mesh

pytestmark = pytest.mark.long

HOME = "broker-1"
MESSAGES = 256
POISON = b"100"
WORKERS = ("worker-1", "worker-2")


def test_one_poison_message_among_255_prefetched_is_one_dead_letter() -> None:
    """Messages prefetched with it were condemned, too."""
    got: Counter[bytes] = Counter()
    attempts: dict[bytes, set[int]] = {}
    dead: list[tuple[bytes, object, object]] = []

    async def worker(process: Process) -> None:
        async with contextlib.aclosing(await opened(process)) as client:
            async with client.subscribe("jobs.#", durable="mail", window=MESSAGES) as jobs:
                process.exposed = "works"
                async for job in jobs:
                    attempts.setdefault(job.body, set()).add(job.attempt)
                    if job.body == POISON:
                        process.exposed = "dies"
                        await process.stopping.wait()
                    got[job.body] += 1
                    job.done()

    async def publisher(process: Process) -> None:
        async with contextlib.aclosing(await opened(process)) as client:
            bodies = [b"%d" % number for number in range(MESSAGES)]
            await client.publish_many("jobs.a", bodies, level="stored")
            process.exposed = "published"

    async def undertaker(process: Process) -> None:
        async with contextlib.aclosing(await opened(process)) as client:
            async with client.subscribe(durable="$dlq.mail") as letters:
                async for job in letters:
                    dead.append((job.body, job.headers["dead-attempts"], job.headers["dead-reason"]))
                    job.done()

    deaths = 0
    with mesh(1) as world:
        for name in WORKERS:
            world.add_node(name, worker, host=HOME).start()
        nodes = [world.node(name) for name in WORKERS]
        world.run_until(lambda: all(node.exposed for node in nodes), timeout_s=5, what="the workers")
        world.add_node("undertaker", undertaker, host=HOME).start()
        world.add_node("publisher", publisher, host=HOME).start()
        while not dead:
            world.run_until(
                lambda: dead or any(node.exposed == "dies" for node in nodes),
                timeout_s=600,
                what="the poison, or its end",
            )
            for node in nodes:
                if node.exposed == "dies":
                    deaths += 1
                    world.inject("crash", [node.name], for_s=0.5)
        world.run_for(30)
        assert [letter[:2] for letter in dead] == [(POISON, 20)] and "died" in str(dead[0][2])
        assert len(got) == MESSAGES - 1
        assert {body for body, of in attempts.items() if of != {1}} == {POISON}
        assert deaths <= 22, "20 alone, and the first in company"
        for name in (*WORKERS, "undertaker", "publisher"):
            world.inject("crash", [name])
