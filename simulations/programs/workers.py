"""Workers on durable subscriptions by the real client, as programs of simulated processes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mesh.clients.client import Client
from mesh.clients.work import Work
from mesh.errors import MeshError
from mesh.work.options import WorkOptions
from simulations.evidence.ledger import Attached, Job, Ledger, Said
from simulations.programs.clients import REDIAL_S, opened
from simulations.world import Main, Process

AGAIN_S: Final = 0.5
"""The delay after which a worker wants a message again, in seconds."""
POISON_AGAIN_S: Final = 0.02
"""The delay for a message that nobody can process: its attempts should end soon."""

BACK_OFF: Final = WorkOptions()


class GaveUp(Exception):
    """The worker failed at a message."""


@dataclass(frozen=True, slots=True)
class WorkHabits:
    """How a worker works; shares are from 0 to 1."""

    work_s: float
    """Seconds for a message, on average."""
    window: int = 16
    retry_share: float = 0.0
    fail_share: float = 0.0
    drop_share: float = 0.0
    poison_share: float = 0.0

    def is_poison(self, body: bytes) -> bool:
        """True for a message that nobody can process; the same for every worker."""
        return zlib.crc32(body) < self.poison_share * 2**32

    def says(self, body: bytes, rng: random.Random) -> Said:
        """The worker's decision about a message."""
        if self.is_poison(body):
            return Said.RETRY
        drawn = rng.random()
        for share, said in (
            (self.retry_share, Said.RETRY),
            (self.fail_share, Said.FAILED),
            (self.drop_share, Said.DROP),
        ):
            if drawn < share:
                return said
            drawn -= share
        return Said.DONE


def worker(
    ledger: Ledger, queue: str, patterns: Sequence[str], habits: WorkHabits, transport: str = "tcp"
) -> Main:
    """Work on a durable subscription, one message after the other, and reattach after each failure or
    dismissal.

    It exposes its first ledger entry of being attached.
    """

    async def main(process: Process) -> None:
        async with contextlib.aclosing(await opened(process, transport)) as mesh:
            async with asyncio.TaskGroup() as group:
                working = group.create_task(_come_again(process, ledger, mesh, queue, patterns, habits))
                await process.stopping.wait()
                working.cancel()

    return main


async def _come_again(
    process: Process, ledger: Ledger, mesh: Client, queue: str, patterns: Sequence[str], habits: WorkHabits
) -> None:
    rng = process.stream("work")
    while True:
        with contextlib.suppress(MeshError, GaveUp):
            async with mesh.subscribe(*patterns, durable=queue, window=habits.window) as work:
                entry = Attached(
                    process.name,
                    process.life,
                    queue,
                    tuple(patterns),
                    work.home,
                    process.world.now_s,
                    tuple(work.unreached),
                )
                ledger.attached.append(entry)
                process.exposed = process.exposed or entry
                await _work(process, ledger, work, habits, rng)
        await asyncio.sleep(REDIAL_S)


async def _work(process: Process, ledger: Ledger, work: Work, habits: WorkHabits, rng: random.Random) -> None:
    world = process.world
    async for job in work:
        body = bytes(job.body)
        entry = Job(
            process.name,
            process.life,
            work.name,
            work.home,
            job.id,
            job.topic,
            body,
            job.headers,
            job.attempt,
            job.redelivered,
            world.now_s,
        )
        ledger.jobs.append(entry)
        await asyncio.sleep(rng.expovariate(1 / habits.work_s))
        entry.said, entry.said_s, entry.due_s = habits.says(body, rng), world.now_s, world.now_s
        match entry.said:
            case Said.DONE:
                entry.told = job.done()
            case Said.DROP:
                entry.told = job.drop("of no use")
            case Said.RETRY:
                after_s = POISON_AGAIN_S if habits.is_poison(body) else AGAIN_S
                entry.due_s += after_s
                entry.told = job.retry(after=after_s)
            case _:
                entry.due_s += min(BACK_OFF.back_off_max_s, BACK_OFF.back_off_s * 2**job.attempt)
                raise GaveUp
