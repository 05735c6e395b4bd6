"""Writes readings of sensors into a database, each of them once, though messages may come twice.

    python sql_writer.py readings.db
    mesh pub readings.cellar '{"celsius": 11.5}' --level stored

The id of a message is noted in the transaction that inserts its row: both are committed, or neither is. A
message is done after the commit. So a crash at any place neither loses a row nor doubles one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing

from mesh import Client, Inbox, Job, MeshError

QUEUE = "readings"
WINDOW = 1000
"""Most messages in a transaction."""
AGAIN_S = 5.0
"""A database that is locked or full is tried again so much later. The messages wait in hand."""
KEEP_S = 30 * 86400.0
"""Ids are remembered for longer than a message may wait."""

inbox = Inbox(sqlite3.paramstyle)
Row = tuple[str, float]


def opened(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=1.0)
    with database:
        database.execute("create table if not exists reading(sensor text not null, celsius real not null)")
        inbox.create(database.cursor())
    return database


def row_of(job: Job) -> Row:
    """Raises `ValueError` for what is no reading."""
    try:
        celsius = float(json.loads(job.body)["celsius"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no reading: {error!r}") from error
    if not math.isfinite(celsius):
        raise ValueError(f"no reading: {celsius} degrees")
    return job.topic.removeprefix("readings."), celsius


def insert(database: sqlite3.Connection, rows: Iterable[tuple[Job, Row]]) -> int:
    """In one transaction, those that are new; how many that were."""
    new = 0
    with database:  # commits, or rolls back
        cursor = database.cursor()
        for job, row in rows:
            if inbox.is_new(cursor, job):
                cursor.execute("insert into reading values(?, ?)", row)
                new += 1
        inbox.forget(cursor, older_than_s=KEEP_S)
    return new


async def write(client: Client, database: sqlite3.Connection) -> None:
    """Until cancelled; what arrived together is one transaction."""
    async with client.subscribe("readings.#", durable=QUEUE, window=WINDOW) as jobs:
        logging.info("subscribed: %d readings wait at %s", jobs.waiting, jobs.home)
        async for batch in jobs.batches():
            rows: list[tuple[Job, Row]] = []
            for job in batch.jobs():
                try:
                    rows.append((job, row_of(job)))
                except ValueError as error:
                    job.drop(str(error))  # a dead letter; the others go on
            while True:
                try:
                    new = insert(database, rows)
                except sqlite3.OperationalError as error:  # not the fault of any message: hold them all
                    logging.warning("the database cannot be written (%s); again in %g s", error, AGAIN_S)
                    await asyncio.sleep(AGAIN_S)
                else:
                    break
            batch.done()
            logging.info("%d rows, %d messages that came before", new, len(rows) - new)


async def main(url: str | None, path: str) -> None:
    with closing(opened(path)) as database:
        async with Client(url) as client:
            await write(client, database)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description="Write readings into a database, each once.")
    parser.add_argument("database")
    parser.add_argument("--url", help="the broker; by default the local one")
    given = parser.parse_args()
    try:
        asyncio.run(main(given.url, given.database))
    except (MeshError, sqlite3.Error) as error:
        sys.exit(f"sql_writer: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
