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

from mesh.analysis.following.growing import Steps
from mesh.analysis.following.health import Batch, Death, Health, HeardLast, Picture, Wrote
from mesh.analysis.following.source import NAME, GrowingLogs
from mesh.analysis.reading.material import Direct
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
    each batch.

    ``scratch`` is a folder of its own. Only text is followed, since compressed files and Parquet do not grow.

    Raises:
        PySparkException: Spark gave up; what was stored stays.
    """
    from pyspark.errors import StreamingQueryException

    spark.dataSource.register(GrowingLogs)
    health = Health(store.names())
    for attempt in range(1, STARTS_MAX + 1):
        try:
            _follow_once(spark, folder, store, scratch / str(attempt), health, show, every_s, until, wall)
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
    health: Health,
    show: Callable[[Picture], None],
    every_s: float,
    until: Callable[[], bool],
    wall: Callable[[], float],
) -> None:
    """Run one query from the end of the store's coverage."""
    steps = Steps(folder, scratch / "steps")
    steps.begin(store.seen)

    def take(rows: DataFrame, batch: int) -> None:
        step = steps.read(batch + 1)  # one step for each batch, by the offsets of the source
        each = rows.select("path", F.explode(F.split("lines", "\n")).alias("line"))
        lines = each.where("line != ''").persist()
        names = {piece.path: piece.name for piece in step.pieces}
        try:
            store.append([Lines(lines)], step.seen, names, told)
        finally:
            lines.unpersist()
        show(health.picture(wall(), step.waiting_bytes))

    def told(direct: Direct) -> None:
        health.take(_batch(direct), wall())

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
    finally:
        query.stop()


def _batch(direct: Direct) -> Batch:
    """The state of the mesh in a batch: a row for each broker and each link, and one for each death."""
    parts, rows = direct.parts.where("ok"), direct.rows.where("kind != 'truth'")
    wrote = (
        parts.select("run", "node", "last_us", "n")
        .unionByName(
            rows.select("run", "node", F.col("us").alias("last_us"), F.lit(1).cast("long").alias("n"))
        )
        .groupBy("run", "node")
        .agg(F.max("last_us").alias("last_us"), F.sum("n").alias("rows"))
    )
    told = (
        rows.where("kind = 'meta'")
        .groupBy("run", "node")
        .agg(F.max_by("name", "us").alias("name"), (F.max_by("op", "us") == "stop").alias("stopped"))
    )
    summaries = rows.where("kind = 'heard'").select("run", "node", "src", F.col("us").alias("last_us"))
    beats = parts.select("run", "node", "src", "last_us").unionByName(summaries)
    heard = beats.groupBy("run", "node", "src").agg(F.max("last_us").alias("last_us"))
    dead = (
        rows.where("kind = 'mem' and to_state = 'dead'")
        .groupBy("run", "subject", "subject_boot", "subject_inc")
        .agg(
            F.first("subject_name").alias("name"),
            F.min("us").alias("at_us"),
            F.count_distinct("node").alias("observers"),
        )
    )
    return Batch(
        wrote=tuple(
            Wrote((row["run"], row["node"]), row["last_us"], row["rows"], row["name"], row["stopped"])
            for row in wrote.join(told, ["run", "node"], "left").collect()
        ),
        heard=tuple(
            HeardLast(row["run"], row["node"], row["src"], row["last_us"]) for row in heard.collect()
        ),
        deaths=tuple(
            Death((row["run"], row["subject"]), row["name"] or row["subject"], row["at_us"], row["observers"])
            for row in dead.collect()
        ),
    )
