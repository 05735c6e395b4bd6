"""JetStream, the peer: ``nats-server`` as Debian ships it, and the asyncio client of PyPI.

Both ends are its fastest: `publish_async` with many messages pending, and a pull consumer that fetches 500
at a time and acknowledges each. The server acknowledges a message before it is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

from mesh.bench.durable.home import PATIENCE_S, TOPIC, processes
from mesh.bench.harness import BenchError, Figures
from mesh.bench.measuring import BODY, Report, missing, run_async
from mesh.bench.processor import spent

JETSTREAM: Final = "jetstream"
SERVER: Final = "nats-server"
STREAM, SUBJECTS, CONSUMER = "bench", "t.>", "bench"
PENDING: Final = 4096
FETCH: Final = 500


def absent() -> str | None:
    """Why it cannot run here; None if it can."""
    if shutil.which(SERVER) is None:
        return f"{SERVER} is not installed (on Debian: apt-get install {SERVER})"
    return missing("nats")


@contextlib.contextmanager
def server(folder: Path, timeout_s: float = 20.0) -> Iterator[tuple[str, int]]:
    """A new server with an empty stream: its URL and process id."""
    port = _free_port()
    command = [SERVER, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + timeout_s
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > give_up:
                raise BenchError(f"{SERVER} did not come up within {timeout_s:g} s")
            time.sleep(0.05)
        yield f"nats://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(10)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """Its JetStream context."""
    import nats

    connection = await nats.connect(url, pending_size=1 << 30)
    try:
        yield connection.jetstream(publish_async_max_pending=PENDING)
    finally:
        await connection.close()


def consume(url: str, count: int, report: Report, gate: Any) -> None:
    """Acknowledge so many messages; report the rate a second, from the first fetch to the last."""

    async def main() -> None:
        from nats.errors import TimeoutError as NothingThere
        from nats.js.api import ConsumerConfig

        async with connected(url) as stream:
            await stream.add_stream(name=STREAM, subjects=[SUBJECTS])
            config = ConsumerConfig(max_ack_pending=4 * PENDING)
            consumer = await stream.pull_subscribe(SUBJECTS, durable=CONSUMER, config=config)
            report("ready")
            done = first = 0
            start = 0.0
            while done < count:
                try:
                    messages = await consumer.fetch(FETCH, timeout=5)
                except NothingThere:
                    continue
                if not done:
                    start, first = time.perf_counter(), len(messages)
                for message in messages:
                    await message.ack()
                done += len(messages)
            report((done - first) / (time.perf_counter() - start))

    run_async(main())


def publish(url: str, count: int, report: Report, gate: Any) -> None:
    """As `mesh.bench.durable.home.publish`."""

    async def main() -> None:
        async with connected(url) as stream:
            start, before = time.perf_counter(), time.process_time()
            for _ in range(count):
                await stream.publish_async(TOPIC, BODY, wait_stall=PATIENCE_S)
            await stream.publish_async_completed()
            report((time.perf_counter() - start, time.process_time() - before))

    run_async(main())


def through(count: int) -> Figures:
    """As `mesh.bench.durable.rates.through`."""
    with processes() as (group, folder), server(folder) as (url, pid):
        consumer = group.start(consume, url, count)
        consumer.hear()
        before = spent(pid)
        published_s, publisher_s = group.start(publish, url, count).hear()
        consumed = consumer.hear()
        return {
            "messages/s": count / published_s,
            "consumed/s": consumed,
            "publisher us": publisher_s / count * 1e6,
            "server us": (spent(pid) - before).total_s / count * 1e6,
        }


def publish_singly(url: str, count: int, report: Report, gate: Any) -> None:
    """Publish one message after the other; report the seconds that each took."""

    async def main() -> None:
        async with connected(url) as stream:
            samples = []
            for _ in range(count):
                start = time.perf_counter()
                await stream.publish(TOPIC, BODY)
                samples.append(time.perf_counter() - start)
                await asyncio.sleep(0.0005)
            report(samples)

    run_async(main())


def singly(count: int) -> list[float]:
    """Seconds for each message that waits for the previous one."""
    with processes() as (group, folder), server(folder) as (url, _):
        group.start(consume, url, count).hear()
        samples: list[float] = group.start(publish_singly, url, count).hear()
        return samples
