"""Replaces `tests.mesh.cluster` in the base's acceptance tests.

One broker is the base's, in this process; the others are processes of the present code.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from mesh.broker import Broker  # the base's
from mesh.client import Client

PERIOD_S = 0.3
DEADLINE_S = 0.15
LOCAL = "tcp://127.0.0.1:0"
LIMIT_S = 60.0
BASE_NAMES = os.environ["MIXED_BASE_NAMES"].split()


class Present:
    """A broker of the present code, with the attributes that these tests use."""

    def __init__(self, name, url):
        self.name = name
        self.url = url


class Cluster:
    def __init__(self):
        self._stack = AsyncExitStack()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        await self._stack.aclose()

    async def broker(self, name, join=None):
        urls = [join.url] if join else []
        if name in BASE_NAMES:
            broker = Broker(name=name, listen=LOCAL, join=urls, period_s=PERIOD_S, deadline_s=DEADLINE_S)
            return await self._stack.enter_async_context(broker)
        return await self._stack.enter_async_context(present(name, urls))

    async def mesh(self, *names):
        brokers = []
        for name in names:
            brokers.append(await self.broker(name, brokers[0] if brokers else None))
        async with asyncio.timeout(LIMIT_S):
            for broker in brokers:
                while not await sees(broker.url, names):
                    await asyncio.sleep(0.05)
        return brokers


async def sees(url, names):
    """True if a broker sees all of them alive and has a link to each."""
    async with Client(url) as client:
        members = (await client.status())["members"]
    others = [member for member in members if member["link"] is not None]
    return sorted(m["name"] for m in members) == sorted(names) and len(others) == len(names) - 1


@asynccontextmanager
async def present(name, urls):
    """`mesh broker`, run by the interpreter that starts brokers of the present version."""
    with tempfile.TemporaryDirectory() as folder:
        ports = Path(folder, "ports.json")
        command = [sys.executable, "-m", "mesh", "broker", "--name", name, "--listen", LOCAL]
        command += ["--period", str(PERIOD_S), "--deadline", str(DEADLINE_S), "--ports-file", str(ports)]
        for url in urls:
            command += ["--join", url]
        process = subprocess.Popen(command)
        try:
            async with asyncio.timeout(LIMIT_S):
                while not ports.exists():
                    assert process.poll() is None, f"{name} ended with {process.returncode}"
                    await asyncio.sleep(0.05)
            document = json.loads(ports.read_text())
            yield Present(name, document["url"])
        finally:
            process.terminate()
            assert process.wait(LIMIT_S) == 0
