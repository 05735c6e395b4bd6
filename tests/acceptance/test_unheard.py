"""Messages stored while nobody listens, then drained while others arrive: counts are exact, memory is
bounded.

``MANGROVE_UNHEARD=1000000`` stores so many.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from mesh import Client
from tests.mesh.loopback import LOCAL, eventually
from tests.support.children import ends_with_tests

UNHEARD: Final = int(os.environ.get("MANGROVE_UNHEARD", "20000"))
MEANWHILE: Final = UNHEARD // 4
"""Messages that arrive while it is drained."""
AT_ONCE: Final = 4096
SIZE: Final = 128
GROWTH_MAX: Final = 32 << 20
"""Bytes by which the home's memory may grow, however many messages wait: blocks read ahead, the caches of
SQLite, the credit of a publisher and of a consumer."""

pytestmark = [pytest.mark.process, pytest.mark.timeout(600 + UNHEARD // 200)]


@asynccontextmanager
async def home(folder: Path) -> AsyncIterator[str]:
    """A broker process; its address."""
    ports = folder / "ports.json"
    words = ["broker", "--listen", LOCAL, "--ports-file", str(ports), "--state-dir", str(folder / "state")]
    process = await asyncio.create_subprocess_exec(
        *ends_with_tests([sys.executable, "-m", "mesh", *words]), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await eventually(ports.exists, "the home is ready")
        yield json.loads(ports.read_text())["listeners"][0]
    finally:
        process.terminate()
        await process.wait()


async def publish(client: Client, first: int, count: int) -> None:
    """Each body begins with the number of its message."""
    end = first + count
    for start in range(first, end, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, end))
        bodies = [b"%-*d" % (SIZE, number) for number in numbers]
        await client.publish_many("jobs.a", bodies, level="stored", timeout=600)


async def test_a_backlog_stored_without_consumers_is_drained_while_messages_arrive(tmp_path: Path) -> None:
    times = asyncio.get_running_loop().time
    async with home(tmp_path) as url, Client(url) as client, Client(url) as other:
        async with client.subscribe("jobs.#", durable="mail"):
            pass
        await publish(client, 0, AT_ONCE)  # memory that it needs in any case
        began_at, before = times(), await status(client)
        await publish(client, AT_ONCE, UNHEARD - AT_ONCE)
        stored_at, full = times(), await status(client)
        assert full["queues"][0]["waiting"] == UNHEARD
        peak = full["rss_bytes"]
        got = bytearray(UNHEARD + MEANWHILE)
        left = len(got)
        async with client.subscribe(durable="mail") as work:
            assert work.waiting == UNHEARD
            meanwhile = asyncio.create_task(publish(other, UNHEARD, MEANWHILE))
            async for batch in work.batches():
                for body in batch.bodies:
                    got[int(body)] += 1
                batch.done()
                left -= len(batch)
                if left * 10 // len(got) != (left + len(batch)) * 10 // len(got):
                    peak = max(peak, (await status(other))["rss_bytes"])
                if left <= 0:
                    break
            await meanwhile
        drained_at = times()
        assert got.count(1) == len(got)
        while (last := await status(client))["queues"][0]["waiting"]:
            pass
        assert last["queues"][0]["settled"] == len(got) and last["queues"][0]["redelivered"] == 0
        growth = peak - before["rss_bytes"]
        print(
            f"{UNHEARD} stored in {stored_at - began_at:.1f} s, drained with {MEANWHILE} more in"
            f" {drained_at - stored_at:.1f} s, memory from {before['rss_bytes'] / 1e6:.0f} MB to"
            f" {peak / 1e6:.0f} MB"
        )
        assert growth < GROWTH_MAX


async def status(client: Client) -> dict[str, Any]:
    """A status that was made after the request."""
    found = await client.status()
    while (again := await client.status())["uptime_s"] == found["uptime_s"]:
        pass
    return again
