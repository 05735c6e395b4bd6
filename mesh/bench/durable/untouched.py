"""Level ``sent`` through a broker that also keeps a journal: the journal's cost for those who do not use it.

A pair is two brokers, one of which has a state folder and a durable subscription to the same topics. One
program publishes to each in turn, and receives what it publishes. The CPU time of each broker is measured.
Every pair has new brokers: one process may be some per cent slower than another for all its life, though both
do the same.
"""

from __future__ import annotations

import asyncio
import statistics
from functools import partial
from typing import Any, Final

from mesh.bench.durable.home import PATTERN, TOPIC, make_durable, processes, run_home
from mesh.bench.durable.rates import STORED
from mesh.bench.harness import Case, Figures, Target
from mesh.bench.measuring import BODY, Report, run_async
from mesh.bench.processor import spent
from mesh.clients.client import Client
from mesh.clients.subscription import Subscription

UNTOUCHED: Final = "sent, with a journal"
RATIO: Final = "broker's processor time, with by without"
PAIRS: Final = 4
"""Pairs in each round: twelve in three rounds."""
TURNS: Final = 4

TARGETS: Final = (Target(UNTOUCHED, RATIO, STORED, None, 1.05, False),)


async def _send(client: Client, subscription: Subscription, count: int) -> None:
    """Publish so many messages and receive them all."""

    async def hear() -> None:
        seen = 0
        async for batch in subscription.batches():
            seen += len(batch)
            if seen >= count:
                return

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hear())
        for _ in range(count):
            await client.publish(TOPIC, BODY, level="sent")


def send_in_turns(urls: list[str], pids: list[int], count: int, report: Report, gate: Any) -> None:
    """Report the CPU seconds that each of two brokers takes for so many messages."""

    async def main() -> None:
        async with (
            Client(urls[0]) as one,
            Client(urls[1]) as two,
            one.subscribe(PATTERN) as of_one,
            two.subscribe(PATTERN) as of_two,
        ):
            both = ((one, of_one, pids[0]), (two, of_two, pids[1]))
            for client, subscription, _ in both:
                await _send(client, subscription, count // TURNS)
            taken = dict.fromkeys(pids, 0.0)
            for turn in range(TURNS):
                for client, subscription, pid in both if turn % 2 else both[::-1]:
                    before = spent(pid)
                    await _send(client, subscription, count // TURNS)
                    taken[pid] += (spent(pid) - before).total_s
            report([taken[pid] for pid in pids])

    run_async(main())


def pair(count: int) -> tuple[float, float]:
    """CPU seconds of a broker with a journal, and of one without."""
    with processes() as (group, folder):
        brokers = [group.start(run_home, str(folder)), group.start(run_home, None)]
        urls = [broker.hear() for broker in brokers]
        group.start(make_durable, urls[0], PATTERN).hear()
        pids = [broker.process.pid for broker in brokers]
        with_it, without = group.start(send_in_turns, urls, pids, count).hear()
        return with_it, without


def ours(count: int) -> Figures:
    pairs = [pair(count) for _ in range(PAIRS)]
    return {
        RATIO: statistics.median(with_it / without for with_it, without in pairs),
        "with us": statistics.median(with_it for with_it, _ in pairs) / count * 1e6,
        "without us": statistics.median(without for _, without in pairs) / count * 1e6,
    }


def cases(scale: float, _with_jetstream: bool) -> list[Case]:
    return [Case(UNTOUCHED, STORED, partial(ours, max(2000, int(200_000 * scale))))]
