"""A simulated broker keeps its durable subscriptions in a journal on its host's disk."""

from __future__ import annotations

import asyncio
import contextlib

from mesh.errors import Unknown
from simulations.programs.clients import opened
from simulations.world import Process
from tests.simulations.faults.meshes import mesh

HOME = "broker-1"


def test_messages_stored_by_a_broker_are_processed_after_a_power_loss() -> None:
    stored: list[bytes] = []
    worked: list[bytes] = []

    async def worker(process: Process) -> None:
        async with contextlib.aclosing(await opened(process)) as client:
            async with client.subscribe("jobs.#", durable="mail") as work:
                process.exposed = "attached"
                if process.life == 1:
                    await process.stopping.wait()  # it settles nothing
                async for message in work:
                    worked.append(bytes(message.body))
                    message.done()

    async def publisher(process: Process) -> None:
        async with contextlib.aclosing(await opened(process)) as client:
            for number in range(1000):
                body = b"%d" % number
                with contextlib.suppress(Unknown):
                    await client.publish("jobs.a", body, level="stored", timeout=5)
                    stored.append(body)
                await asyncio.sleep(0.01)

    with mesh(1) as world:
        world.add_node("worker", worker, host=HOME).start()
        world.run_until(lambda: world.node("worker").exposed, timeout_s=5, what="the subscription")
        world.add_node("publisher", publisher, host=HOME).start()
        world.run_until(lambda: len(stored) > 50, timeout_s=10, what="the first messages to be stored")
        assert world.disk(HOME).list(f"/state/{HOME}").count("journal.db") == 1
        world.inject("power_off", [HOME])
        world.run_for(1)
        world.inject("start", [HOME])
        world.run_for(2)
        world.inject("start", ["worker"])
        world.run_until(lambda: len(worked) >= len(stored), timeout_s=10, what="the rest")
        world.run_for(1)
        assert worked[: len(stored)] == stored and len(worked) <= len(stored) + 1
        world.inject("crash", ["worker"])
