"""Several brokers in one process over TCP loopback, and a plain socket that sends anything."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mesh.broker.broker import Broker
from mesh.dataplane.home import Home
from tests.support import waiting

PERIOD_S = 0.3
DEADLINE_S = 0.15
ROOMY = {"period_s": 1.0, "deadline_s": 1.0}
"""For brokers in real time: a busy machine needs longer to answer, and would often be suspected."""
LOCAL = "tcp://127.0.0.1:0"

# Protocol numbers of dialers, as every SP implementation writes them.
PAIR, PUB, SUB, REQ, REP, PUSH, SURVEYOR, RESPONDENT, BUS = 16, 32, 33, 48, 49, 80, 98, 99, 112


async def eventually(condition: Callable[[], object], what: str, timeout_s: float | None = None) -> None:
    """Wait until ``condition()`` is true; fail with ``what`` otherwise."""
    loop = asyncio.get_running_loop()
    timeout_s = timeout_s or waiting.patience_s
    deadline = loop.time() + timeout_s
    while not condition():
        if loop.time() > deadline:
            raise AssertionError(f"never happened within {timeout_s} s: {what}")
        await asyncio.sleep(0.02)


def states(broker: Broker) -> dict[str, str]:
    """States by name, as this broker sees them."""
    return {member["name"]: member["state"] for member in broker.members()}


def linked(broker: Broker) -> set[str]:
    """Names of the brokers to which it has a link."""
    return {member["name"] for member in broker.members() if member["link"] is not None}


async def whole(brokers: list[Broker]) -> None:
    """Wait until every broker sees every other alive and has a link to it."""
    names = {broker.name for broker in brokers}

    def complete() -> bool:
        return all(
            states(broker) == dict.fromkeys(names, "alive") and linked(broker) == names - {broker.name}
            for broker in brokers
        )

    await eventually(complete, f"a full mesh of {sorted(names)}")


def rows(folder: Path) -> list[dict[str, Any]]:
    """Every row of every event log in a folder."""
    return [
        json.loads(line) for path in sorted(folder.glob("*.jsonl*")) for line in path.read_text().splitlines()
    ]


def home_of(broker: Broker) -> Home:
    """The home that keeps its durable subscriptions."""
    return broker._running.home_shell.home


async def crash(broker: Broker) -> None:
    """End it as SIGKILL would: without a goodbye, everything closed at once."""
    node = broker._node
    assert node is not None
    node._stopped = asyncio.get_running_loop().create_future()
    node._stopped.set_result(None)
    await node._close()


class Cluster:
    """Brokers that end with the ``async with`` block."""

    def __init__(self, **defaults: Any) -> None:
        self._stack = AsyncExitStack()
        self._defaults = {"period_s": PERIOD_S, "deadline_s": DEADLINE_S, **defaults}

    async def __aenter__(self) -> Cluster:
        await self._stack.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.aclose()

    async def broker(self, name: str, join: Broker | list[str] | None = None, **options: Any) -> Broker:
        """Start one that joins ``join`` (a broker or addresses) if given."""
        merged: dict[str, Any] = {"listen": LOCAL, **self._defaults, **options}
        if join is not None:
            merged["join"] = join if isinstance(join, list) else join.url
        return await self._stack.enter_async_context(Broker(name=name, **merged))

    async def mesh(self, *names: str, **options: Any) -> list[Broker]:
        """Start brokers that all join the first, and wait until they see each other."""
        brokers: list[Broker] = []
        for name in names:
            brokers.append(await self.broker(name, brokers[0] if brokers else None, **options))
        await whole(brokers)
        return brokers


class Stranger:
    """A TCP connection to a broker that speaks as much SP as the test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, url: str, protocol: int | None = None) -> Stranger:
        """Open a connection. With ``protocol``, also complete that handshake."""
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        stranger = cls(*await asyncio.open_connection(host, int(port)))
        if protocol is not None:
            stranger.write(b"\x00SP\x00" + struct.pack(">HH", protocol, 0))
            header = await asyncio.wait_for(stranger.reader.readexactly(8), 60)
            assert header[:4] == b"\x00SP\x00"
        return stranger

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, frame: bytes) -> None:
        """Send one whole SP frame."""
        self.writer.write(struct.pack(">Q", len(frame)) + frame)

    async def receive(self) -> bytes:
        """Receive one whole SP frame."""
        (size,) = struct.unpack(">Q", await asyncio.wait_for(self.reader.readexactly(8), 60))
        return await asyncio.wait_for(self.reader.readexactly(size), 60)

    async def hung_up(self) -> bool:
        """True once the broker has closed the connection (within a minute)."""
        try:
            async with asyncio.timeout(60):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    async def hung_up_or_quiet(self) -> None:
        """Read incoming frames for a moment."""
        try:
            async with asyncio.timeout(0.05):
                while await self.reader.read(65536):
                    pass
        except (ConnectionError, TimeoutError):
            pass

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass
