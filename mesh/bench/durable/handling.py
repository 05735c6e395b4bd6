"""A consumer that awaits something for each message, as a program does that writes to a database.

It is measured beside the loser of a decision: settlements reported at the end of every loop turn, not
together with those of the next millisecond.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, Final

from mesh.bench.durable.home import (
    BATCH,
    NAME,
    PATTERN,
    in_batches,
    make_durable,
    processes,
    publish,
    run_home,
)
from mesh.bench.durable.rates import RATE, STORED
from mesh.bench.harness import Case, Figures, Target
from mesh.bench.measuring import Report, run_async
from mesh.bench.processor import spent
from mesh.clients import work as client_work
from mesh.clients.client import Client

HANDLING: Final = "worked off one by one"
EVERY_TURN: Final = "mangrove, settling said every turn"

TARGETS: Final[tuple[Target, ...]] = ()


def handle(url: str, count: int, defer_s: float, report: Report, gate: Any) -> None:
    """Settle so many messages, one after the other; report the wall and CPU seconds."""
    client_work.DEFER_S = defer_s  # type: ignore[misc]  # this process measures nothing else

    async def main() -> None:
        async with Client(url) as client, client.subscribe(PATTERN, durable=NAME) as work:
            done = 0
            start, before = time.perf_counter(), time.process_time()
            async for job in work:
                await asyncio.sleep(0)
                job.done()
                done += 1
                if done == count:
                    break
            report((time.perf_counter() - start, time.process_time() - before))

    run_async(main())


def ours(count: int, defer_s: float) -> Figures:
    with processes() as (group, folder):
        home = group.start(run_home, str(folder))
        url, pid = home.hear(), home.process.pid
        group.start(make_durable, url, PATTERN).hear()
        group.start(publish, url, in_batches, "stored", count).hear()
        before = spent(pid)
        seconds, worker_s = group.start(handle, url, count, defer_s).hear()
        taken = spent(pid) - before
        return {
            RATE: count / seconds,
            "worker us": worker_s / count * 1e6,
            "loop us": taken.loop_s / count * 1e6,
            "journal us": taken.others_s / count * 1e6,
        }


def cases(scale: float, _with_jetstream: bool) -> list[Case]:
    count = max(2 * BATCH, int(20_000 * scale) // BATCH * BATCH)
    return [
        Case(HANDLING, STORED, partial(ours, count, client_work.DEFER_S)),
        Case(HANDLING, EVERY_TURN, partial(ours, count, 0.0)),
    ]
