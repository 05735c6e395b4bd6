"""Workers of different speed at real brokers, in virtual time: a slow one holds up nobody."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from mesh import Client
from mesh.wire.blocks import COUNT_MAX
from tests.mesh.loopback import Cluster, whole

pytestmark = [pytest.mark.virtual, pytest.mark.long]

FAST_S, SLOW_S = 0.05, 0.5
"""Seconds that a message takes."""


@pytest.mark.parametrize("at", ["home", "entry"])
async def test_a_worker_ten_times_slower_costs_its_share_and_no_more(at: str) -> None:
    """Three workers, window 1, a sealed block of 4 096: whole blocks took up to 3.8 times the ideal."""
    done: Counter[int] = Counter()
    finished_at = 0.0
    loop = asyncio.get_running_loop()

    async def work(url: str, each_s: float) -> None:
        nonlocal finished_at
        async with Client(url) as client, client.subscribe("jobs.#", durable="mail", window=1) as jobs:
            async for job in jobs:
                await asyncio.sleep(each_s)
                assert job.done()
                done[int(job.body)] += 1
                finished_at = loop.time()

    async with Cluster() as cluster:
        home = await cluster.broker("home", state_dir="/state")
        entry = await cluster.broker("entry", home, state_dir="/state")
        await whole([home, entry])
        async with Client(home.url) as client, client.subscribe("jobs.#", durable="mail"):
            pass
        async with Client(entry.url) as client:
            bodies = [b"%4d" % number for number in range(COUNT_MAX)]
            assert (await client.publish_many("jobs.a", bodies, level="stored")).homes == ("home",)
        url = (home if at == "home" else entry).url
        async with asyncio.TaskGroup() as group:
            began_at = loop.time()
            workers = [group.create_task(work(url, each_s)) for each_s in (FAST_S, FAST_S, SLOW_S)]
            while done.total() < COUNT_MAX:
                await asyncio.sleep(FAST_S)
            for worker in workers:
                worker.cancel()
    assert set(done.values()) == {1} and len(done) == COUNT_MAX
    ideal_s = COUNT_MAX / (2 / FAST_S + 1 / SLOW_S)
    assert finished_at - began_at <= 1.15 * ideal_s
