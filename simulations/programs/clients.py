"""Publishers, subscribers, askers and answerers by the real client, as programs of simulated processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mesh.clients.client import Client
from mesh.clients.subscription import Subscription
from mesh.errors import Disconnected, MeshTimeout, NoResponders, NotAccepted, StorageError, Unknown
from simulations.evidence.ledger import Answered, Ledger, Outcome, Publication, Question, Subscribed
from simulations.evidence.ledger import Receipt as Received
from simulations.kernel.storage import OUTBOX_SUFFIX
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from simulations.world import Main, Process

PUBLISH_TIMEOUT_S = 5.0
REDIAL_S = 0.5
DRAIN_S = 10.0
"""Seconds that a publisher that is asked to end waits for its outbox to drain."""
QUESTIONS = "question"
"""The topic of the surveys; no publication's topic begins like it."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How a publisher publishes; shares are from 0 to 1."""

    pause_s: float
    """Seconds from one call to the next, on average."""
    size_max: int = 400
    sent_share: float = 0.0
    """The share of calls at level sent; the others are at accepted."""
    batch_max: int = 1
    headers_share: float = 0.0
    large_share: float = 0.0
    large_size: int = 200_000
    stored_share: float = 0.0
    """The share of calls at level stored, among those not at level sent or outbox."""
    outbox_share: float = 0.0
    """The share of calls at level outbox, among those not at level sent."""


async def opened(process: Process, transport: str = "tcp", outbox: str | None = None) -> Client:
    """A client of the broker on the same host, which may not be up yet."""
    url = url_of(process.address, transport)
    while True:
        client = Client(url, name=process.name, outbox=outbox, environment=environment_of(process))
        try:
            await client.open()
        except (Disconnected, StorageError):
            await asyncio.sleep(REDIAL_S)
        else:
            return client


def publisher(ledger: Ledger, topics: Sequence[str], habits: Habits, transport: str = "tcp") -> Main:
    """Publish repeatedly, each time on a random topic, and record the outcomes in the ledger."""

    async def main(process: Process) -> None:
        rng = process.stream("workload")
        numbers = itertools.count()
        outbox = f"/{process.name}{OUTBOX_SUFFIX}" if habits.outbox_share else None
        async with contextlib.aclosing(await opened(process, transport, outbox)) as mesh:
            process.exposed = mesh
            while not process.stopping.is_set():
                entries = _drawn(process, ledger, topics, habits, numbers, rng)
                await _publish(process, mesh, entries, _level(habits, rng))
                await asyncio.sleep(rng.expovariate(1 / habits.pause_s))
            if outbox is not None:
                with contextlib.suppress(MeshTimeout, StorageError):
                    await mesh.drained(DRAIN_S)

    return main


def _level(habits: Habits, rng: random.Random) -> str:
    if _falls(habits.sent_share, rng):
        return "sent"
    if _falls(habits.outbox_share, rng):
        return "outbox"
    return "stored" if _falls(habits.stored_share, rng) else "accepted"


def _falls(share: float, rng: random.Random) -> bool:
    """Draw nothing if the outcome is certain."""
    return share > 0 and rng.random() < share


def _drawn(
    process: Process,
    ledger: Ledger,
    topics: Sequence[str],
    habits: Habits,
    numbers: Iterator[int],
    rng: random.Random,
) -> list[Publication]:
    """The messages of one call, all on one topic."""
    count = rng.randint(1, habits.batch_max) if habits.batch_max > 1 else 1
    sizes = [rng.randrange(habits.size_max) for _ in range(count)]
    topic = rng.choice(topics)
    if count == 1 and _falls(habits.large_share, rng):
        sizes = [habits.large_size]
    entries = [
        ledger.publish(process.name, process.life, next(numbers), topic, "x" * size, process.world.now_s)
        for size in sizes
    ]
    if count == 1 and _falls(habits.headers_share, rng):
        entries[0].headers = {"number": entries[0].number, "by": process.name}
    return entries


async def _publish(process: Process, mesh: Client, entries: list[Publication], level: str) -> None:
    """Publish them and record the outcomes."""
    first = entries[0]
    outcome = Outcome.UNKNOWN
    absent: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    for entry in entries:
        entry.stored, entry.outbox = level in ("stored", "outbox"), level == "outbox"
    try:
        if len(entries) > 1:
            bodies = [entry.body for entry in entries]
            receipt = await mesh.publish_many(first.topic, bodies, level=level, timeout=PUBLISH_TIMEOUT_S)
        else:
            receipt = await mesh.publish(
                first.topic,
                first.body,
                level=level,
                headers=first.headers or None,
                timeout=PUBLISH_TIMEOUT_S,
            )
        outcome = Outcome(level)
        absent, homes = receipt.absent, receipt.homes
    except (NotAccepted, MeshTimeout):
        outcome = Outcome.REFUSED
    except Unknown:
        pass
    finally:
        for entry in entries:
            entry.outcome, entry.absent, entry.homes = outcome, absent, homes
            if outcome in (Outcome.ACCEPTED, Outcome.STORED, Outcome.OUTBOX):
                entry.accepted_s = process.world.now_s


def subscriber(ledger: Ledger, patterns: Sequence[str], transport: str = "tcp") -> Main:
    """Subscribe once and record all messages; expose the ledger entry once subscribed."""

    async def main(process: Process) -> None:
        async with contextlib.AsyncExitStack() as stack:
            mesh = await stack.enter_async_context(contextlib.aclosing(await opened(process, transport)))
            subscription = await _subscribed(mesh, patterns, stack)
            now_s = process.world.now_s
            entry = Subscribed(
                process.name, process.life, tuple(patterns), now_s, tuple(subscription.unreached)
            )
            ledger.subscriptions.append(entry)
            process.exposed = entry
            reading = asyncio.create_task(_read(process, ledger, subscription))
            await process.stopping.wait()
            entry.until_s = process.world.now_s
            entry.lost = subscription.lost
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    return main


def asker(
    ledger: Ledger, pause_s: float, timeout_s: float, request_share: float = 0.0, transport: str = "tcp"
) -> Main:
    """Ask surveys and requests, one after the other, and record the outcomes."""

    async def main(process: Process) -> None:
        rng = process.stream("workload")
        async with contextlib.aclosing(await opened(process, transport)) as mesh:
            process.exposed = mesh
            for number in itertools.count():
                if process.stopping.is_set():
                    return
                name = f"{process.name}/{process.life}/{number}"
                question = Question(process.name, process.life, name, process.world.now_s, timeout_s)
                ledger.questions.append(question)
                with contextlib.suppress(MeshTimeout, NoResponders, NotAccepted, Unknown):
                    if _falls(request_share, rng):
                        body = await mesh.request(QUESTIONS, name.encode(), timeout=timeout_s)
                        answers = [("", body)]
                    else:
                        found = await mesh.survey(QUESTIONS, name.encode(), deadline=timeout_s)
                        answers = [(each.responder, each.body) for each in found.answers]
                    question.answers += [
                        Answered(responder, body.decode(), process.world.now_s) for responder, body in answers
                    ]
                question.ended_s = process.world.now_s
                await asyncio.sleep(rng.expovariate(1 / pause_s))

    return main


async def answerer(process: Process) -> None:
    """Answer every question with the question."""
    async with contextlib.AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(contextlib.aclosing(await opened(process)))
        subscription = await _subscribed(mesh, [QUESTIONS], stack, answers=True)
        process.exposed = subscription
        answering = asyncio.create_task(_answer(subscription))
        await process.stopping.wait()
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def _answer(subscription: Subscription) -> None:
    async for question in subscription:
        question.done(bytes(question.body))


async def _subscribed(
    mesh: Client, patterns: Sequence[str], stack: contextlib.AsyncExitStack, *, answers: bool = False
) -> Subscription:
    """Subscribe, although the broker may be gone for longer than a client waits."""
    while True:
        with contextlib.suppress(MeshTimeout):
            return await stack.enter_async_context(mesh.subscribe(*patterns, answers=answers))


async def _read(process: Process, ledger: Ledger, subscription: Subscription) -> None:
    async for delivery in subscription:
        ledger.receipts.append(
            Received(
                process.name,
                process.life,
                delivery.topic,
                bytes(delivery.body),
                process.world.now_s,
                delivery.headers,
            )
        )
