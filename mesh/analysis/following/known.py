"""The stored state of a mesh when a follower begins, as one batch: the last row of each broker and link, and
the last deaths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from mesh.analysis.following.health import DEATHS_KEPT, Batch, Death, HeardLast, Wrote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mesh.analysis.reading.finding import LogFile
    from mesh.analysis.reading.reduced import Store


def known_of(store: Store, files: Sequence[LogFile]) -> Batch:
    """The stored rows of these files. Its size is that of the mesh, whatever the number of rows."""
    deaths: list[Death] = []
    kind, us = F.col("kind"), F.col("us")
    is_meta = kind == "meta"
    wrote: dict[tuple[str, str], Wrote] = {}
    heard: dict[tuple[str, str, str], HeardLast] = {}

    def add(found: Wrote) -> None:
        old = wrote.get(found.node) or Wrote(found.node, 0, 0, None, None)
        wrote[found.node] = Wrote(
            found.node,
            max(found.last_us, old.last_us),
            found.rows + old.rows,
            found.name or old.name,
            old.stopped if found.stopped is None else found.stopped,
            max(found.window_s, old.window_s),
        )

    def link(found: HeardLast) -> None:
        key = (found.run, found.dst, found.src)
        old = heard.get(key)
        if old is None or old.last_us <= found.last_us:
            heard[key] = found

    for rows in store.of("rows", files):
        deaths += _last_deaths(rows)
        ours = rows.where(~kind.isin("hb", "truth"))  # heartbeats are among the parts as well
        told = ours.groupBy("run", "node").agg(
            F.max(us).alias("last_us"),
            F.count(us).alias("n"),
            F.max_by("name", F.when(is_meta & F.col("name").isNotNull(), us)).alias("name"),
            F.max_by(F.col("op") == "stop", F.when(is_meta, us)).alias("stopped"),
        )
        for row in told.collect():
            add(Wrote((row["run"], row["node"]), row["last_us"], row["n"], row["name"], row["stopped"]))
        summaries = ours.where(kind == "heard").groupBy("run", "node", "src")
        for row in summaries.agg(F.max(us).alias("last_us"), F.max("window_ns").alias("window_ns")).collect():
            window_s = row["window_ns"] / 1e9
            add(Wrote((row["run"], row["node"]), row["last_us"], 0, None, None, window_s))
            link(HeardLast(row["run"], row["node"], row["src"], row["last_us"], window_s))
    for parts in store.of("parts", files):
        links = parts.groupBy("run", "node", "src").agg(
            F.max("last_us").alias("last_us"), F.sum("n").alias("n")
        )
        for row in links.collect():
            add(Wrote((row["run"], row["node"]), row["last_us"], row["n"], None, None))
            link(HeardLast(row["run"], row["node"], row["src"], row["last_us"]))
    corrupt = sum(bad.count() for bad in store.of("bad", files))
    return Batch(tuple(wrote.values()), tuple(heard.values()), tuple(deaths), corrupt)


def _last_deaths(rows: DataFrame) -> list[Death]:
    """The last deaths in these rows, at most as many as a view keeps."""
    dead = rows.where((F.col("kind") == "mem") & (F.col("to_state") == "dead"))
    each = dead.groupBy("run", "subject", "subject_boot", "subject_inc").agg(
        F.min_by("subject_name", "us").alias("name"),
        F.min("us").alias("at_us"),
        F.count_distinct("node").alias("observers"),
    )
    last = each.orderBy(F.desc("at_us"), "subject").limit(DEATHS_KEPT).collect()
    return [
        Death((row["run"], row["subject"]), row["name"] or row["subject"], row["at_us"], row["observers"])
        for row in reversed(last)
    ]
