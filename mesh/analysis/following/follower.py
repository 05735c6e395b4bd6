"""Follows logs: rows are in the store seconds after brokers write them, each once, whatever is killed and
when.

It does not rely on Spark's own checkpoint, which lasts only as long as the process. A follower starts at the
end of the store's coverage. Data that was read but not completely stored has no manifest, and is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from mesh.analysis.following.growing import Steps, logs_in
from mesh.analysis.following.health import Health, Picture
from mesh.analysis.following.known import known_of
from mesh.analysis.following.lately import batch_of
from mesh.analysis.following.screen import Screen
from mesh.analysis.following.source import NAME, GrowingLogs
from mesh.analysis.reading.coverage import without_copies
from mesh.analysis.reading.sources import Lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mesh.analysis.reading.reduced import Store

EVERY_S: Final = 2.0
LOOK_S: Final = 1
STARTS_MAX: Final = 10
STARVED: Final = "failed to connect back"


def follow(
    spark: SparkSession,
    folder: Path,
    store: Store,
    scratch: Path,
    show: Callable[[Picture], None],
    *,
    every_s: float = EVERY_S,
    until: Callable[[], bool] = lambda: False,
    wall: Callable[[], float] = time.time,
) -> None:
    """Store what is added to the logs in ``folder`` until ``until`` returns true. ``show`` is called after
    each batch, and every ``every_s`` seconds while there is nothing to read.

    ``scratch`` is a folder of its own. Only text is followed, since compressed files and Parquet do not grow.

    Raises:
        PySparkException: Spark gave up; what was stored stays.
    """
    from pyspark.errors import StreamingQueryException

    spark.dataSource.register(GrowingLogs)
    known = known_of(store, without_copies(logs_in(folder)))
    screen = Screen(Health(store.names(), known), show, wall, every_s)
    for attempt in range(1, STARTS_MAX + 1):
        try:
            _follow_once(spark, folder, store, scratch / str(attempt), screen, every_s, until)
        except StreamingQueryException as error:
            # Spark gives the source's Python 10 s to start, too little on a busy machine. Starting again is
            # harmless: it begins where the manifests end.
            if STARVED not in str(error) or attempt == STARTS_MAX:
                raise
        else:
            return


def _follow_once(
    spark: SparkSession,
    folder: Path,
    store: Store,
    scratch: Path,
    screen: Screen,
    every_s: float,
    until: Callable[[], bool],
) -> None:
    """Run one query from the end of the store's coverage. It starts when there is something new to read."""
    steps = Steps(folder, scratch / "steps")
    steps.begin(store.seen)
    # Spark's first batch comes even without a step, so that batches and steps would be numbered differently.
    screen.begin(steps)
    while steps.after(0) == 0:
        screen.tick()
        if until():
            return
        time.sleep(LOOK_S)

    def take(rows: DataFrame, batch: int) -> None:
        step = steps.read(batch + 1)  # one step for each batch, by the offsets of the source
        each = rows.select("path", F.explode(F.split("lines", "\n")).alias("line"))
        lines = each.where("line != ''").persist()
        names = {piece.path: piece.name for piece in step.pieces}
        try:
            store.append([Lines(lines)], step.seen, names)
        finally:
            lines.unpersist()
        screen.take(batch_of(step.lines(folder)), step.waiting_bytes)

    source = spark.readStream.format(NAME).options(path=str(folder), scratch=str(scratch / "steps"))
    writing = (
        source.load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
    )
    query = writing.start()
    try:
        while not until():
            if query.awaitTermination(LOOK_S):
                return
            screen.tick()
    finally:
        query.stop()
