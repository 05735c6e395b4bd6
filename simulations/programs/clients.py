"""Publishers, subscribers, askers and answerers by the real client, as programs of simulated processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence

from mesh.clients.client import Client
from mesh.clients.subscription import Subscription
from mesh.errors import Disconnected, MeshTimeout, NotAccepted, Unknown
from simulations.evidence.ledger import Answered, Ledger, Outcome, Question, Subscribed
from simulations.evidence.ledger import Receipt as Received
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from simulations.world import Main, Process

PUBLISH_TIMEOUT_S = 5.0
REDIAL_S = 0.5
QUESTIONS = "question"
"""Topic of the surveys; publications have none that begins like it."""


async def opened(process: Process) -> Client:
    """A client of the broker on the same host, which may not be up yet."""
    while True:
        client = Client(url_of(process.address), name=process.name, environment=environment_of(process))
        try:
            await client.open()
        except Disconnected:
            await asyncio.sleep(REDIAL_S)
        else:
            return client


def publisher(ledger: Ledger, topics: Sequence[str], pause_s: float, *, size_max: int = 400) -> Main:
    """Publishes on a topic chosen anew each time, again and again, and enters what it was told."""

    async def main(process: Process) -> None:
        rng = process.stream("workload")
        number = 0
        async with contextlib.aclosing(await opened(process)) as mesh:
            process.exposed = mesh
            while not process.stopping.is_set():
                filler = "x" * rng.randrange(size_max)
                entry = ledger.publish(
                    process.name, process.life, number, rng.choice(topics), filler, process.world.now_s
                )
                number += 1
                try:
                    await mesh.publish(entry.topic, entry.body, timeout=PUBLISH_TIMEOUT_S)
                    entry.outcome = Outcome.ACCEPTED
                except (NotAccepted, MeshTimeout):
                    entry.outcome = Outcome.REFUSED
                except Unknown:
                    entry.outcome = Outcome.UNKNOWN
                await asyncio.sleep(rng.expovariate(1 / pause_s))

    return main


def subscriber(ledger: Ledger, patterns: Sequence[str]) -> Main:
    """Subscribes once and enters all that comes; it exposes its ledger entry once it has subscribed."""

    async def main(process: Process) -> None:
        async with contextlib.AsyncExitStack() as stack:
            mesh = await stack.enter_async_context(contextlib.aclosing(await opened(process)))
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
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    return main


def asker(ledger: Ledger, pause_s: float, timeout_s: float) -> Main:
    """Asks surveys, one after the other, and enters what came of each."""

    async def main(process: Process) -> None:
        rng = process.stream("workload")
        async with contextlib.aclosing(await opened(process)) as mesh:
            process.exposed = mesh
            for number in itertools.count():
                if process.stopping.is_set():
                    return
                name = f"{process.name}/{process.life}/{number}"
                question = Question(process.name, process.life, name, process.world.now_s, timeout_s)
                ledger.questions.append(question)
                with contextlib.suppress(MeshTimeout, Unknown):
                    found = await mesh.survey(QUESTIONS, name.encode(), deadline=timeout_s)
                    question.answers += [
                        Answered(each.responder, each.body.decode(), process.world.now_s)
                        for each in found.answers
                    ]
                question.ended_s = process.world.now_s
                await asyncio.sleep(rng.expovariate(1 / pause_s))

    return main


async def answerer(process: Process) -> None:
    """Answers every question with itself."""
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
    """Its broker may be gone for longer than a client is willing to wait."""
    while True:
        with contextlib.suppress(MeshTimeout):
            return await stack.enter_async_context(mesh.subscribe(*patterns, answers=answers))


async def _read(process: Process, ledger: Ledger, subscription: Subscription) -> None:
    async for delivery in subscription:
        ledger.receipts.append(
            Received(process.name, process.life, delivery.topic, bytes(delivery.body), process.world.now_s)
        )
