"""Programs that run unmodified in simulated worlds and as real processes.

They report by ``note``; ``now`` is a clock shared by all of a run. As a process, a program is started with a
JSON list of its name and its arguments, notes are JSON lines on standard output, and its start time comes on
standard input::

    python -m tests.differential.programs '["listen", "10.77.0.1"]'
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from mesh.clients.client import Client

TOPIC: Final = "differential.beat"
PORT: Final = 7000
STAYS_S: Final = 5.0
"""Seconds that a speaker keeps its connection after its line."""

Note = Callable[[object], None]
Clock = Callable[[], float]
Begin = Callable[[], Awaitable[float]]
"""Waits for the start time."""


async def publish(client: Client, count: int, pause_s: float, size: int, note: Note, now: Clock) -> None:
    """Notes the number of each message and when it was published."""
    for number in range(count):
        note([number, now()])
        await client.publish(TOPIC, number.to_bytes(4, "big") + bytes(size - 4))
        await asyncio.sleep(pause_s)


async def subscribe(client: Client, note: Note, now: Clock) -> None:
    """Notes that it has subscribed, then the number of each message and its arrival time."""
    async with client.subscribe(TOPIC) as subscription:
        note("subscribed")
        async for delivery in subscription:
            note([int.from_bytes(delivery.body[:4], "big"), now()])


async def listen(address: str, note: Note, now: Clock) -> None:
    """Notes the arriving lines, from any sender, and their times."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            note([line.decode().strip(), now()])
        writer.close()

    async with await asyncio.start_server(accepted, address, PORT):
        note("listening")
        await asyncio.Event().wait()


async def say(
    address: str, name: str, begun: bool, after_s: float, begin: Begin, note: Note, now: Clock
) -> None:
    """Says a line so many seconds after its start time, on an open connection or on a new one; notes when it
    is ready, and when it spoke.
    """
    writer = await _first_line(address, name) if begun else None
    note("ready")
    at_s = await begin() + after_s
    await asyncio.sleep(at_s - now())
    note(now())
    if writer is None:
        writer = await _first_line(address, name)
    else:
        writer.write(f"{name}\n".encode())
    await asyncio.sleep(STAYS_S)
    writer.close()


async def _first_line(address: str, name: str) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection(address, PORT)
    writer.write(f"{name}\n".encode())
    return writer


PROGRAMS: Final[dict[str, Callable[..., Coroutine[Any, Any, None]]]] = {
    program.__name__: program for program in (publish, subscribe, listen, say)
}


def _print(value: object) -> None:
    print(json.dumps(value), flush=True)


async def _told() -> float:
    loop = asyncio.get_running_loop()
    return float(await loop.run_in_executor(None, sys.stdin.readline))


async def _main(program: str, *arguments: Any) -> None:
    run = partial(PROGRAMS[program], note=_print, now=time.monotonic)
    if program in ("publish", "subscribe"):
        url, *rest = arguments
        async with Client(url) as client:
            await run(client, *rest)
    elif program == "say":
        await run(*arguments, begin=_told)
    else:
        await run(*arguments)


if __name__ == "__main__":
    asyncio.run(_main(*json.loads(sys.argv[1])))
