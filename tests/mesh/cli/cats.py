"""`mesh cat` inside the test's own loop: its arguments as typed, its bodies as printed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mesh.cli.app import build
from mesh.cli.cat import Cat
from mesh.cli.cat_flags import Addresses as CatAddresses
from mesh.cli.cat_flags import Certificates, Other, Printing, Protocols, Sending
from mesh.cli.cat_job import Job, plan

DEADLINE_S = 120.0


def job(*arguments: str) -> Job:
    """The job of these arguments."""
    _, bound, _ = build().parse_args(["cat", *arguments], exit_on_error=False, print_error=False)
    given = bound.kwargs
    return plan(
        given.get("protocol") or Protocols(),
        given.get("addresses") or CatAddresses(),
        given.get("sending") or Sending(),
        given.get("printing") or Printing(),
        given.get("certificates") or Certificates(),
        given.get("other") or Other(),
    )


class Running(Cat):
    """A `mesh cat` whose bodies and sentences are kept for the test."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(job(*arguments))
        self.said: list[str] = []
        self.shown: list[bytes] = []
        self._listening = asyncio.Event()
        self._ready = asyncio.Event()

    def _say(self, sentence: str) -> None:
        self.said.append(sentence)
        if sentence.startswith("listening"):
            self._listening.set()
        elif sentence == "ready":
            self._ready.set()

    def _write(self, shown: bytes) -> None:
        self.shown.append(shown)

    async def listening(self) -> str:
        """The first URL it listens at."""
        await self._listening.wait()
        return self.said[0].removeprefix("listening at ")

    async def ready(self) -> None:
        """All it dials is connected."""
        await self._ready.wait()

    async def printed(self, count: int) -> list[bytes]:
        """The first ``count`` bodies, as they were printed."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.shown) < count:
                await asyncio.sleep(0.005)
        return self.shown[:count]


@asynccontextmanager
async def cat(*arguments: str) -> AsyncIterator[Running]:
    """One that runs until the block ends; what it fails with is raised there."""
    running = Running(*arguments)
    task = asyncio.create_task(running.run())
    try:
        yield running
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.wait((task,))


async def finished(*arguments: str) -> Running:
    """One that runs to its end."""
    running = Running(*arguments)
    async with asyncio.timeout(DEADLINE_S):
        await running.run()
    return running
