"""A task queue: checksums of files, computed by any number of workers.

    python task_queue.py work                    # in as many terminals, on as many hosts as you like
    python task_queue.py add /etc/hosts /etc/passwd
    python task_queue.py dead                    # what could not be done, and why

A task survives the death of workers and brokers, and a loss of power. If a worker dies, another gets its
tasks. A file that cannot be read yet is tried again after a pause that doubles. A task that can never be
done becomes a dead letter.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from mesh import Client, Job, MeshError

TOPIC, QUEUE = "tasks.checksum", "checksums"
AHEAD = 2
"""Tasks that a worker holds: the one under way, and the next."""
log = logging.getLogger("task_queue")


class BadTask(Exception):
    """Trying again will not help."""


async def checksum(job: Job) -> None:
    """The work itself. Doing it twice does no harm."""
    try:
        path = Path(json.loads(job.body)["path"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadTask(f"not a task: {error!r}") from error
    content = await asyncio.to_thread(path.read_bytes)  # the event loop goes on meanwhile
    print(f"{hashlib.sha256(content).hexdigest()}  {path}", flush=True)


async def work(client: Client, handle: Callable[[Job], Awaitable[None]] = checksum) -> None:
    """Do one task after the other until cancelled; start more workers to do more at once."""
    async with client.subscribe("tasks.#", durable=QUEUE, window=AHEAD) as jobs:
        log.info("subscribed: %d tasks wait at %s", jobs.waiting, jobs.home)
        async for job in jobs:
            try:
                await handle(job)
            except BadTask as error:
                log.error("%s: %s", job.id, error)
                job.drop(str(error))
            except Exception as error:  # the next attempt may go better; after the 20th it is a dead letter
                log.warning("%s, attempt %d: %s", job.id, job.attempt, error)
                job.retry()
            else:
                job.done()


async def add(client: Client, paths: Sequence[str]) -> None:
    """Returns when all tasks are on disk. The queue is made here if no worker has made it yet."""
    async with client.subscribe("tasks.#", durable=QUEUE):
        pass
    tasks = [json.dumps({"path": path}).encode() for path in paths]
    receipt = await client.publish_many(TOPIC, tasks, level="stored")
    print(f"tasks stored at {', '.join(receipt.homes)}: {receipt.count}")


async def dead(client: Client) -> None:
    """Show dead letters and take them away; `mesh queue requeue checksums` would have them tried again."""
    async with client.subscribe(durable=f"$dlq.{QUEUE}") as letters:
        for _ in range(letters.waiting):
            letter = await anext(letters)
            print(letter.headers["dead-attempts"], letter.headers["dead-reason"], letter.body)
            letter.done()


async def main(arguments: argparse.Namespace) -> None:
    async with Client(arguments.url) as client:
        match arguments.do:
            case "work":
                await work(client)
            case "add":
                await add(client, arguments.paths)
            case "dead":
                await dead(client)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description="A task queue.")
    parser.add_argument("do", choices=["work", "add", "dead"])
    parser.add_argument("paths", nargs="*", type=os.path.abspath)
    parser.add_argument("--url", help="the broker; by default the local one")
    try:
        asyncio.run(main(parser.parse_args()))
    except MeshError as error:
        sys.exit(f"task_queue: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
