"""A home, an entry broker, a publisher and a consumer as processes with gates between them.

::

    publisher ---> [gate] entry <---> [gate] home <--- consumer

The brokers announce the addresses of their gates. So everything passes a gate in each direction: links either
way, and the consumer that moves from the entry broker to the home.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from mesh import BlockingClient, Client
from mesh.cli.app import main
from mesh.errors import NotAccepted, Unknown
from tests.mesh.loopback import eventually
from tests.support.gates import Gate
from tests.support.killable import Killable, Program
from tests.support.ports import free_port

TOPIC: Final = "jobs.a"
QUEUE: Final = "mail"
WINDOW: Final = 64
PATIENCE_S: Final = 600.0
"""How long a program waits for work that an idle machine does at once."""


def broker(pipe: Connection, *arguments: str) -> None:
    raise SystemExit(main(["broker", *arguments]))


def publisher(pipe: Connection, url: str) -> None:
    """Publish the numbers that arrive, each with so many bytes, all at once. Report the outcome of each."""

    async def publish(client: Client, number: int, size: int) -> None:
        body = b"%d " % number + bytes(size)
        try:
            receipt = await client.publish(TOPIC, body, level="stored", timeout=PATIENCE_S)
        except NotAccepted as error:
            pipe.send(("refused", number, str(error)))
        except Unknown as error:
            pipe.send(("unknown", number, str(error)))
        else:
            pipe.send(("stored", number, receipt.homes))

    async def run() -> None:
        async with Client(url) as client, asyncio.TaskGroup() as group:
            while True:
                for number, size in await _received(pipe):
                    group.create_task(publish(client, number, size))

    asyncio.run(run())


def consumer(pipe: Connection, url: str) -> None:
    """Report the number of each message that arrives, and then that it is done."""

    async def run() -> None:
        async with (
            Client(url) as client,
            client.subscribe("jobs.#", durable=QUEUE, window=WINDOW) as jobs,
        ):
            async for job in jobs:
                pipe.send(int(job.body.split(b" ", 1)[0]))
                job.done()

    asyncio.run(run())


def blocking_publisher(pipe: Connection, url: str) -> None:
    """Like `publisher`, with a `BlockingClient` that threads share: one for each message of a turn."""

    def publish(number: int, size: int) -> tuple[str, int, Any]:
        body = b"%d " % number + bytes(size)
        try:
            receipt = client.publish(TOPIC, body, level="stored", timeout=PATIENCE_S)
        except NotAccepted as error:
            return "refused", number, str(error)
        except Unknown as error:
            return "unknown", number, str(error)
        return "stored", number, receipt.homes

    said = threading.Lock()

    def run(number: int, size: int) -> None:
        told = publish(number, size)
        with said:
            pipe.send(told)

    with BlockingClient(url) as client:
        while True:
            for message in pipe.recv():
                threading.Thread(target=run, args=message, daemon=True).start()


def blocking_consumer(pipe: Connection, url: str) -> None:
    """Like `consumer`, with a `BlockingClient`."""
    with BlockingClient(url) as client, client.subscribe("jobs.#", durable=QUEUE, window=WINDOW) as jobs:
        for job in jobs:
            pipe.send(int(job.body.split(b" ", 1)[0]))
            job.done()


def command(pipe: Connection, url: str) -> None:
    """``mesh work --exec``, whose command prints the number of each message, which is reported as by
    `consumer`."""
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    sys.stdout = os.fdopen(1, "w", closefd=False)

    def tell() -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                pipe.send(int(line))

    threading.Thread(target=tell, daemon=True).start()
    words = ["--jobs", "4", "--exec", "read -r number rest; echo $number", "--url", url]
    raise SystemExit(main(["work", QUEUE, "jobs.#", *words]))


async def _received(pipe: Connection) -> Any:
    """The next message of a pipe."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(pipe.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(pipe.fileno())
    return pipe.recv()


class Clients(NamedTuple):
    """The programs at both ends."""

    publisher: Program
    consumer: Program


ASYNCIO: Final = Clients(publisher, consumer)
THREADS: Final = Clients(blocking_publisher, blocking_consumer)
SHELL: Final = Clients(publisher, command)


class Stage:
    """The whole setup. Numbers identify messages."""

    def __init__(self, folder: Path, home: Gate, entry: Gate, clients: Clients) -> None:
        self.folder = folder
        self.gates = {"home": home, "entry broker": entry}
        self.stored: dict[int, tuple[str, ...]] = {}
        """Acknowledged messages, with their homes."""
        self.refused: dict[int, str] = {}
        """Messages that are certainly not stored, with the reasons."""
        self.unknown: dict[int, str] = {}
        self.got: dict[int, int] = {}
        """How often a message was delivered."""
        self.owed: set[int] = set()
        """Stored messages that were not delivered since they were stored or last taken from a consumer that
        died."""
        self._numbers = 0
        self.programs = {
            name: Killable(program, folder / f"{name}.txt", told)
            for name, program, told in (
                ("home", broker, self._nothing),
                ("entry broker", broker, self._nothing),
                ("publisher", clients.publisher, self._published),
                ("consumer", clients.consumer, self._consumed),
            )
        }

    async def start(self, name: str) -> None:
        """Start a broker. It listens when this returns."""
        gate = self.gates.get(name)
        if gate is None:
            self.programs[name].start(self.gates["entry broker"].url)
            return
        words = {
            "--name": name.split()[0],
            "--listen": f"tcp://127.0.0.1:{gate.behind}",
            "--advertise": gate.url,
            "--state-dir": str(self.folder / "state"),
            "--period": "1",
            "--deadline": "1",
        }
        if name == "entry broker":
            words["--join"] = self.gates["home"].url
        self.programs[name].start(*(word for pair in words.items() for word in pair))
        await self.eventually(lambda: is_listening(gate.behind), f"{name} listens")

    def kill(self, name: str) -> None:
        self.programs[name].kill()

    async def drained(self) -> None:
        """Check that everything stored was delivered, that nothing waits or is dead, and that nobody made a
        second home."""
        while (queue := await self.queue())["waiting"]:
            await asyncio.sleep(0.01)  # settled messages are written with the next commit
        assert queue["dead"] == 0
        for status in await self.statuses():
            assert status["queues_twice"] == {} and status["loop"]["faults"] == 0

    # --- messages

    def publish(self, count: int, size: int = 0) -> list[int]:
        """Make the publisher publish so many. Returns their numbers."""
        numbers = [self._numbers + index for index in range(count)]
        self._numbers += count
        self.programs["publisher"].send([(number, size) for number in numbers])
        return numbers

    async def ended(self, numbers: list[int]) -> None:
        """Wait until the publisher was told their outcome."""
        await self.eventually(
            lambda: self.stored.keys() | self.refused.keys() | self.unknown.keys() >= set(numbers),
            "an answer to each publish",
        )

    async def works(self) -> None:
        """Wait until one message is stored and all stored ones are delivered: all parts work."""
        while True:
            (number,) = self.publish(1)
            await self.ended([number])
            if number in self.stored:
                break
            await asyncio.sleep(0.01)  # like `eventually`, but asking
        await self.delivered()

    async def delivered(self) -> None:
        await self.eventually(lambda: not self.owed, "all that was stored is delivered")

    async def eventually(self, condition: Any, what: str) -> None:
        def holds() -> Any:
            died = [name for name, program in self.programs.items() if program.died]
            assert not died, f"ended by themselves: {died}"
            return condition()

        try:
            await eventually(holds, what, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self}") from error

    async def queue(self) -> dict[str, Any]:
        """The home's status of the durable subscription."""
        async with Client(f"tcp://127.0.0.1:{self.gates['home'].behind}") as client:
            question = json.dumps({"do": "show", "name": QUEUE}).encode()
            answer = json.loads(await client.request("$sys.queues", question, timeout=PATIENCE_S))
        queue: dict[str, Any] = answer["queue"]
        return queue

    async def statuses(self) -> list[dict[str, Any]]:
        """The statuses of the home and of the entry broker."""
        found: list[dict[str, Any]] = []
        for gate in self.gates.values():
            async with Client(f"tcp://127.0.0.1:{gate.behind}") as client:
                found.append(await client.status())
        return found

    def take_back(self, numbers: set[int]) -> None:
        """A consumer died with these, and none of them was settled: another must get them."""
        for number in numbers:
            self.got.pop(number)
        self.owed |= numbers & self.stored.keys()

    def __repr__(self) -> str:
        said = {name: program.said[-2000:] for name, program in self.programs.items()}
        return (
            f"published {self._numbers}, stored {len(self.stored)}, {len(self.refused)} refused,"
            f" unknown {self.unknown}, owed {self.owed}, {said}"
        )

    def _published(self, told: tuple[str, int, Any]) -> None:
        outcome, number, detail = told
        if outcome == "stored":
            self.stored[number] = detail
            if number not in self.got:
                self.owed.add(number)
        else:
            (self.refused if outcome == "refused" else self.unknown)[number] = detail

    def _consumed(self, number: int) -> None:
        self.got[number] = self.got.get(number, 0) + 1
        self.owed.discard(number)

    def _nothing(self, _: object) -> None:
        raise AssertionError("a broker says nothing by its pipe")


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def stage(folder: Path, clients: Clients = ASYNCIO) -> AsyncIterator[Stage]:
    """All four, at work."""
    async with Gate(free_port()) as home, Gate(free_port()) as entry:
        made = Stage(folder, home, entry, clients)
        started = []
        try:
            for name in ("home", "entry broker", "publisher", "consumer"):
                started.append(name)
                await made.start(name)
                if name == "home":
                    async with Client(f"tcp://127.0.0.1:{home.behind}") as client:
                        async with client.subscribe("jobs.#", durable=QUEUE):
                            pass
            await made.works()
            yield made
        finally:
            for name in reversed(started):
                if made.programs[name].started:
                    made.kill(name)
