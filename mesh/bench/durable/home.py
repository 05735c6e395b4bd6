"""One broker with a state folder, and the programs that publish to it and work for it.

The folder is made in the system's temporary folder. If that is in memory, name one on a real disk
(``TMPDIR=``): a sync to memory costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

from mesh.bench.harness import Workers, workers
from mesh.bench.measuring import BODY, Report, run_async
from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.errors import NotReady

TOPIC: Final = "t.a"
PATTERN: Final = "t.#"
NAME: Final = "bench"
BATCH: Final = 500
"""Messages of one `publish_many`."""
CALLS: Final = 16
"""Calls of `publish_many` that are in flight at the same time."""
TASKS: Final = 1000
PENDING: Final = 4096
"""Most messages of ``publish_soon`` that are not acknowledged."""
WINDOW: Final = 8192
"""Most messages that a worker has unsettled: the default of a live subscription."""
PATIENCE_S: Final = 60.0
"""Longest wait of a publisher: on a slow machine a benchmark is slow, and does not fail."""

Publishing = Callable[[Client, str, int], Awaitable[None]]
"""Publishes so many messages of a level and waits for all acknowledgements."""


@contextlib.contextmanager
def processes() -> Iterator[tuple[Workers, Path]]:
    """Worker processes, and a folder for their files."""
    with tempfile.TemporaryDirectory(prefix="mesh-bench-") as folder, workers() as group:
        yield group, Path(folder)


def run_home(folder: str | None, report: Report, gate: Any) -> None:
    """Run a broker alone, until the gate opens; it keeps stored messages in ``folder``."""

    async def main() -> None:
        async with Broker(name="bench", listen=["tcp://127.0.0.1:0"], state_dir=folder) as broker:
            report(broker.url)
            await asyncio.to_thread(gate.wait)

    run_async(main())


def make_durable(url: str, pattern: str, report: Report, gate: Any) -> None:
    """Make the durable subscription, and leave it."""

    async def main() -> None:
        async with Client(url) as client, client.subscribe(pattern, durable=NAME):
            pass
        report("made")

    run_async(main())


def work_off(url: str, count: int, report: Report, gate: Any) -> None:
    """Settle so many messages, in batches as they come; report the rate a second, from the first batch to the
    last."""

    async def main() -> None:
        async with Client(url) as client, client.subscribe(PATTERN, durable=NAME, window=WINDOW) as work:
            report("ready")
            done = first = 0
            start = 0.0
            async for batch in work.batches():
                if not done:
                    start, first = time.perf_counter(), len(batch)
                batch.done()
                done += len(batch)
                if done >= count:
                    break
            report((done - first) / (time.perf_counter() - start))

    run_async(main())


def listen(url: str, count: int, report: Report, gate: Any) -> None:
    """The same with a live subscription, which settles nothing."""

    async def main() -> None:
        async with Client(url) as client, client.subscribe(PATTERN) as subscription:
            report("ready")
            seen = first = 0
            start = 0.0
            async for batch in subscription.batches():
                if not seen:
                    start, first = time.perf_counter(), len(batch)
                seen += len(batch)
                if seen >= count:
                    break
            report((seen - first) / (time.perf_counter() - start))

    run_async(main())


def publish(url: str, how: Publishing, level: str, count: int, report: Report, gate: Any) -> None:
    """Publish so many messages and have them acknowledged; report the wall and CPU seconds."""

    async def main() -> None:
        async with Client(url, pending_max=PENDING) as client:
            start, before = time.perf_counter(), time.process_time()
            await how(client, level, count)
            report((time.perf_counter() - start, time.process_time() - before))

    run_async(main())


# --- ways to publish


async def in_batches(client: Client, level: str, count: int) -> None:
    """Publish with `CALLS` calls of `publish_many` at the same time."""
    bodies = [BODY] * BATCH
    left = iter(range(count // BATCH))

    async def call_after_call() -> None:
        for _ in left:
            await client.publish_many(TOPIC, bodies, level=level, timeout=PATIENCE_S)

    await asyncio.gather(*(call_after_call() for _ in range(CALLS)))


async def soon(client: Client, level: str, count: int) -> None:
    """Publish with one call for each message, and at most `PENDING` unacknowledged."""
    pending = None
    for _ in range(count):
        try:
            pending = client.publish_soon(TOPIC, BODY, level=level, timeout=PATIENCE_S)
        except NotReady:
            await client.ready(PATIENCE_S)
            pending = client.publish_soon(TOPIC, BODY, level=level, timeout=PATIENCE_S)
    if pending is not None:
        await pending


async def by_tasks(client: Client, level: str, count: int) -> None:
    """Publish with `TASKS` tasks, each of which awaits one message after the other."""
    left = iter(range(count))

    async def message_after_message() -> None:
        for _ in left:
            await client.publish(TOPIC, BODY, level=level, timeout=PATIENCE_S)

    await asyncio.gather(*(message_after_message() for _ in range(TASKS)))
