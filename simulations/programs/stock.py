"""Plain SP sockets as clients of a broker, as programs of simulated processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from protocols import Pub0, Push0, Req0, Sub0
from simulations.evidence.ledger import Ledger, Outcome, Publication, Subscribed
from simulations.evidence.ledger import Receipt as Received
from simulations.programs.brokers import url_of
from simulations.world import Main, Process

PATIENCE_S: Final = 2.0
"""Seconds that a socket tries to publish one message before it goes on to the next."""
SOCKETS: Final[tuple[type[Any], ...]] = (Req0, Push0, Pub0)

DIALLING: Final[dict[str, Any]] = {"reconnect_max_s": 1.0}
"""A PUB without a connection drops its messages, so it must be back before the time without faults. Stock
sockets of NNG and nanomsg dial ten times a second.
"""

Publish = Callable[[Any, Publication], Awaitable[None]]


def stock_publisher(
    ledger: Ledger, topics: Sequence[str], pause_s: float, which: int, size_max: int = 400
) -> Main:
    """Publish by a REQ, PUSH or PUB socket, as ``which`` says, and record the answers, if any."""
    kind = SOCKETS[which % len(SOCKETS)]
    publish = _ask if kind is Req0 else _send

    async def main(process: Process) -> None:
        rng: random.Random = process.stream("workload")
        async with kind(dial=url_of(process.address), rng=process.stream("stock"), **DIALLING) as socket:
            for number in itertools.count():
                if process.stopping.is_set():
                    return
                filler = "x" * rng.randrange(size_max)
                entry = ledger.publish(
                    process.name, process.life, number, rng.choice(topics), filler, process.world.now_s
                )
                entry.may_repeat = kind is Req0
                entry.outcome = Outcome.UNKNOWN
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_S):
                        await publish(socket, entry)
                await asyncio.sleep(rng.expovariate(1 / pause_s))

    return main


async def _send(socket: Any, entry: Publication) -> None:
    await socket.send(entry.topic.encode() + b" " + entry.body)
    entry.outcome = Outcome.SENT


async def _ask(socket: Any, entry: Publication) -> None:
    """A REQ sends its question again on the next connection, perhaps to another run of the broker."""
    await socket.send(entry.topic.encode() + b" " + entry.body)
    words = bytes(await socket.recv()).split()
    if words[0] == b"accepted":
        entry.outcome = Outcome.ACCEPTED
        entry.absent = tuple(
            name
            for word in words
            if word.startswith(b"absent=")
            for name in word.removeprefix(b"absent=").decode().split(",")
        )
    # An error says that this question was not taken, but an earlier sending of it may have been.


def stock_subscriber(ledger: Ledger) -> Main:
    """Read everything by a SUB socket and record it."""

    async def main(process: Process) -> None:
        async with Sub0(dial=url_of(process.address), rng=process.stream("stock"), **DIALLING) as socket:
            socket.subscribe(b"")
            entry = Subscribed(process.name, process.life, ("#",), process.world.now_s, stock=True)
            ledger.subscriptions.append(entry)
            process.exposed = entry
            reading = asyncio.create_task(_read(process, ledger, socket))
            await process.stopping.wait()
            entry.until_s = process.world.now_s
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    return main


async def _read(process: Process, ledger: Ledger, socket: Any) -> None:
    while True:
        topic, _, body = bytes(await socket.recv()).partition(b" ")
        ledger.receipts.append(
            Received(process.name, process.life, topic.decode(), body, process.world.now_s, stock=True)
        )
