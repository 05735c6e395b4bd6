"""The data plane of whole brokers in simulated worlds, while they are struck or have much to do."""

from __future__ import annotations

import asyncio

import pytest

from mesh import Client
from simulations import Mesh, World


@pytest.mark.parametrize("away_s", [6.0, 45.0])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_owed_to_a_broker_that_stood_still_is_delivered_or_counted_and_never_both(
    seed: int, away_s: float
) -> None:
    """It was stopped by SIGSTOP and held for dead: what was under way was counted as lost, and delivered when
    it went on."""
    got: list[int] = []
    published: list[int] = []

    async def reads(client: Client) -> None:
        async with client.subscribe("t") as subscription:
            async for delivery in subscription:
                got.append(int(delivery.body))  # noqa: PERF401

    async def floods(client: Client) -> None:
        for number in range(8000):
            await client.publish("t", b"%d" % number, level="sent")
            published.append(number)
            if number % 20 == 0:
                await asyncio.sleep(0.01)

    with World(seed) as world:
        mesh = Mesh(world, brokers=3)
        mesh.client("reads", reads, at="broker-2")
        world.run_for(1.0)
        mesh.client("floods", floods, at="broker-1")
        world.run_for(0.5)
        world.inject("pause", ["broker-2"], for_s=away_s)
        world.run_for(away_s - 0.5)
        here = mesh.broker("broker-1").inspect()
        assert here.exchange.unresolved > 0
        assert "link_lost" not in here.exchange.drops
        world.run_for(10.0)
        mesh.wait_whole()
        world.run_for(10.0)
        here, there = (mesh.broker(name).inspect().exchange for name in ("broker-1", "broker-2"))
        assert len(got) == len(set(got)) and here.unresolved == 0
        assert here.published == there.msgs_in + here.dropped + here.unwanted, (here.drops, here.unwanted)
        assert len(got) == there.delivered or away_s > 30.0, "its client gave it up by then"
