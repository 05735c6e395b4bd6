"""Programs of a simulated mesh that publish, listen and work, and write down what came of it.

The tests here let each guarantee run out, in the way that docs/reference/guarantees.md says. Brokers, clients
and journals are the real ones, in virtual time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from mesh import Client
from mesh.clients.jobs import Job
from mesh.clients.subscription import Subscription
from mesh.clients.work import Work
from mesh.errors import MeshError
from mesh.wire.session_frames import Receipt
from simulations import Mesh, World

TOPIC = "jobs.a"
QUEUE = "mail"
DAY_S = 86_400.0


def bodies(count: int, first: int = 1) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def publishing(
    *messages: bytes, level: str = "stored", topic: str = TOPIC, timeout: float | None = None
) -> Callable[[Client], Awaitable[Receipt]]:
    """For `Mesh.run`: publish these, and return the receipt."""

    async def publish(client: Client) -> Receipt:
        return await client.publish_many(topic, messages, level=level, timeout=timeout)

    return publish


async def make_queue(client: Client) -> None:
    """For `Mesh.run`: make the durable subscription at that broker."""
    async with client.subscribe("jobs.#", durable=QUEUE):
        pass


def with_a_queue(world: World, brokers: int = 1, home: str = "broker-1") -> Mesh:
    mesh = Mesh(world, brokers=brokers)
    mesh.run(make_queue, at=home)
    return mesh


async def ask_queues(client: Client, do: str, **of: str) -> dict[str, Any]:
    """The broker's answer to an operator's question, as `mesh queue` asks it."""
    question = json.dumps({"do": do, "name": QUEUE, **of})
    answer: dict[str, Any] = json.loads(await client.request("$sys.queues", question.encode()))
    return answer


class Program:
    """A process with one session, which does what it is told, one thing after the other."""

    def __init__(self, mesh: Mesh, at: str = "broker-1") -> None:
        self.name = f"program at {at}"
        self._world = mesh.world
        self._next: Callable[[Client], Awaitable[Any]] | None = None
        self._outcomes: list[Any] = []
        self._opened = False
        self._enter(mesh, at)
        self._world.run_until(lambda: self._opened, timeout_s=10, what="its client")

    def _enter(self, mesh: Mesh, at: str) -> None:
        """Begin its process."""
        mesh.client(self.name, self._obey, at=at)

    def begin(self, handler: Callable[[Client], Awaitable[Any]]) -> None:
        """Have it begin with something; `end` waits for the outcome."""
        assert self._next is None
        self._outcomes.clear()
        self._next = handler

    def end(self, timeout_s: float = 60.0) -> Any:
        """The result of the program: its return value, or its error raised again."""
        self._world.run_until(lambda: bool(self._outcomes), timeout_s=timeout_s, what="the outcome")
        (outcome,) = self._outcomes
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def do(self, handler: Callable[[Client], Awaitable[Any]], timeout_s: float = 60.0) -> Any:
        self.begin(handler)
        return self.end(timeout_s)

    async def _obey(self, client: Client) -> None:
        self._opened = True
        while True:
            while self._next is None:
                await asyncio.sleep(0.01)
            try:
                outcome = await self._next(client)
            except Exception as error:
                outcome = error
            self._next = None
            self._outcomes.append(outcome)


class Listener:
    """A subscriber: what it got, in order. ``reads``: set it to let it read."""

    def __init__(self, mesh: Mesh, at: str, *, window: int = 8192, reads: bool = True) -> None:
        self.got: list[bytes] = []
        self.subscription: Subscription | None = None
        self.reads = reads
        self._window = window
        mesh.client(f"listener at {at}", self._listen, at=at)
        mesh.world.run_until(lambda: self.subscription is not None, timeout_s=10, what="a subscription")

    async def _listen(self, client: Client) -> None:
        async with client.subscribe("jobs.#", window=self._window) as self.subscription:
            while not self.reads:
                await asyncio.sleep(0.1)
            async for message in self.subscription:
                self.got.append(bytes(message.body))


class Worker:
    """A consumer of the durable subscription ``queue`` that returns when its work ends. ``says`` gets each
    job and settles it, or not. By default all are done."""

    def __init__(
        self,
        mesh: Mesh,
        at: str = "broker-1",
        *,
        says: Callable[[Job], object] = Job.done,
        window: int = 256,
        patterns: tuple[str, ...] = (),
        queue: str = QUEUE,
        name: str = "worker",
    ) -> None:
        self.got: list[bytes] = []
        self.jobs: list[Job] = []
        self.work: Work | None = None
        self.ends: list[str] = []
        """Sentences by which its work ended."""
        self.name = name
        self._says = says
        self._window = window
        self._patterns = patterns
        self._queue = queue
        mesh.client(name, self._come_again, at=at)

    async def _come_again(self, client: Client) -> None:
        while True:
            try:
                async with client.subscribe(
                    *self._patterns, durable=self._queue, window=self._window
                ) as self.work:
                    async for job in self.work:
                        self.got.append(bytes(job.body))
                        self.jobs.append(job)
                        self._says(job)
            except MeshError as error:
                self.ends.append(str(error))
            await asyncio.sleep(0.5)


def settled(world: World, worker: Worker, count: int) -> list[bytes]:
    """The messages of a worker, once there are so many and nothing more has come for a while."""
    world.run_until(lambda: len(worker.got) >= count, timeout_s=60, what=f"{count} messages")
    world.run_for(10)
    return worker.got
