"""Partitions: windows in which the mesh was in parts that heard nothing of one another, and their episodes.

For each window of time, the graph of who heard whom: an edge wherever one broker logged a survey or an answer
of another. The brokers that **count** in a window wrote throughout it and held another member alive at its
start; so a broker that was down, paused, alone by choice or on its way out is no part of its own. All edges
connect, also those of brokers that do not count, but a window is in parts only if brokers that count are in
different components.

**Throughout** means without a silence. A broker that hears nobody still writes a `stats` row every few
seconds, so more than that (and a tenth) between two rows is a silence; so is more than two periods if the
next `stats` row admits that the loop ran late by half of it, which is what a pause looks like.

An **episode** is a run of windows in parts, one after another, as long as no broker changes sides. It began
with the last heartbeat across the cut before it, and ended with the first after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.analysis.findings import PartitionEpisode

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame

PERIOD_S: Final = 1.0
STATS_S: Final = 5.0
"""What brokers do by default; their `meta` rows say what they do."""
QUIET_FACTOR: Final = 1.1
BUCKET_WINDOWS: Final = 720
"""Windows that one call from Spark handles: an hour of five-second windows."""

WINDOW_SCHEMA: Final = (
    "run string, win_us long, counting int, edges int, components int, largest int, "
    "oneway_pairs int, silent_pairs int, sides array<array<string>>"
)

Sides = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class WindowGraph:
    """One window: how many brokers count, and how they hang together."""

    counting: int
    edges: int
    sides: Sides
    """The counting brokers of each component, larger ones first, names in order."""
    oneway_pairs: int
    """Pairs of counting brokers of which only one heard the other."""
    silent_pairs: int
    """Pairs in one component that did not hear each other: a partial partition, or no full mesh."""


@dataclass(frozen=True, slots=True)
class SplitWindow:
    """One window in parts."""

    run: str
    start_us: int
    sides: Sides


def window_graph(counting: Iterable[str], edges: Iterable[tuple[str, str]]) -> WindowGraph:
    """Judge one window; an edge is (who was heard, who heard)."""
    import networkx as nx

    counts = sorted(set(counting))
    heard = {(source, target) for source, target in edges if source != target}
    graph = nx.Graph()
    graph.add_nodes_from(counts)
    graph.add_edges_from(heard)
    component = {
        node: number for number, nodes in enumerate(nx.connected_components(graph)) for node in nodes
    }
    parts: dict[int, list[str]] = {}
    for node in counts:
        parts.setdefault(component[node], []).append(node)
    oneway = silent = 0
    for index, one in enumerate(counts):
        for other in counts[index + 1 :]:
            ways = ((one, other) in heard) + ((other, one) in heard)
            oneway += ways == 1
            silent += ways == 0 and component[one] == component[other]
    sides = tuple(sorted((tuple(part) for part in parts.values()), key=lambda part: (-len(part), part)))
    return WindowGraph(len(counts), len(heard), sides, oneway, silent)


def find_episodes(windows: Iterable[SplitWindow], window_us: int) -> list[tuple[list[SplitWindow], Sides]]:
    """Runs of windows that follow one another without anyone changing sides, with the sides of each run."""
    episodes: list[tuple[list[SplitWindow], Sides]] = []
    for window in sorted(windows, key=lambda window: (window.run, window.start_us)):
        if episodes:
            run, sides = episodes[-1]
            follows = run[-1].run == window.run and run[-1].start_us + window_us == window.start_us
            merged = merge_sides(sides, window.sides) if follows else None
            if merged is not None:
                run.append(window)
                episodes[-1] = (run, merged)
                continue
        episodes.append(([window], window.sides))
    return episodes


def merge_sides(ones: Sides, others: Sides) -> Sides | None:
    """The sides of two windows as one, or None if somebody changed sides between them.

    A broker that counts in one of them only goes where those are with whom it is seen.
    """
    side_of = {node: number for number, side in enumerate(ones) for node in side}
    merged = [dict.fromkeys(side) for side in ones]
    taken: dict[int, int] = {}
    for index, side in enumerate(others):
        known = {side_of[node] for node in side if node in side_of}
        if len(known) > 1:
            return None
        if known:
            number = known.pop()
            if taken.setdefault(number, index) != index:
                return None  # one side before, two now
        else:
            number = len(merged)
            merged.append({})
        merged[number].update(dict.fromkeys(side))
    return tuple(sorted((tuple(sorted(side)) for side in merged), key=lambda side: (-len(side), side)))


def count_windows(rows: DataFrame, window_us: int) -> DataFrame:
    """(run, win_us, node) for every window in which the node counts."""
    from pyspark.sql import functions as F

    first = F.ceil(F.col("start_us") / window_us) * window_us
    last = F.floor(F.col("end_us") / window_us) * window_us - window_us
    throughout = (
        spans(rows)
        .withColumn("first", first)
        .withColumn("last", last)
        .where(F.col("first") <= F.col("last"))
        .withColumn("win_us", F.explode(F.sequence("first", "last", F.lit(window_us))))
        .select("run", "node", "boot", "win_us")
    )
    held = company(rows)
    at_start = (F.col("from_us") <= F.col("win_us")) & (F.col("win_us") < F.col("until_us"))
    keys = ["run", "node", "boot"]
    return throughout.join(held, keys).where(at_start).select("run", "win_us", "node").distinct()


def spans(rows: DataFrame) -> DataFrame:
    """(run, node, boot, start_us, end_us): from a boot's first row to its last, cut where it was silent."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    boot = Window.partitionBy("run", "node", "boot")
    in_order = boot.orderBy("seq")
    period_us = F.coalesce(F.max("period_s").over(boot), F.lit(PERIOD_S)) * 1e6
    stats_us = F.coalesce(F.max("stats_s").over(boot), F.lit(STATS_S)) * 1e6
    # A mesh of long periods and frequent stats, or the other way round: whichever leaves a broker silent
    # longer.
    quiet_us = F.greatest(stats_us, period_us * 2) * QUIET_FACTOR
    gap = F.col("us") - F.lag("us").over(in_order)
    # Backwards, because Spark looks at all that follows anew for each row of a frame that is open in front.
    ahead = boot.orderBy(F.desc("seq")).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    late_us = F.last("loop_late_ms_max", ignorenulls=True).over(ahead) * 1e3
    admitted = (gap > period_us * 2) & (F.coalesce(late_us, F.lit(0.0)) >= gap / 2)
    silent = F.coalesce((gap > quiet_us) | admitted, F.lit(False))
    return (
        rows.withColumn("silent", silent.cast("int"))
        .withColumn("span", F.sum("silent").over(in_order))
        .groupBy("run", "node", "boot", "span")
        .agg(F.min("us").alias("start_us"), F.max("us").alias("end_us"))
        .drop("span")
    )


def company(rows: DataFrame) -> DataFrame:
    """(run, node, boot, from_us, until_us): while a boot held at least one other member alive.

    SUSPECT is alive until DEAD is said.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    said = rows.where((F.col("kind") == "mem") & (F.col("subject") != F.col("node")))
    of_subject = Window.partitionBy("run", "node", "boot", "subject").orderBy("seq")
    in_order = Window.partitionBy("run", "node", "boot").orderBy("seq")
    live = F.col("to_state").isin("alive", "suspect").cast("int")
    return (
        said.withColumn("live", live)
        .withColumn("change", F.col("live") - F.coalesce(F.lag("live").over(of_subject), F.lit(0)))
        .withColumn("alive", F.sum("change").over(in_order))
        .withColumn("until_us", F.coalesce(F.lead("us").over(in_order), F.lit(2**62)))
        .where(F.col("alive") > 0)
        .select("run", "node", "boot", F.col("us").alias("from_us"), "until_us")
    )


def reachability(rows: DataFrame, window_us: int) -> DataFrame:
    """(run, win_us, src, dst, beats, first_us, last_us): who heard whom in each window, and how often."""
    from pyspark.sql import functions as F

    return (
        rows.where(F.col("kind") == "hb")
        .groupBy(
            "run",
            (F.floor(F.col("us") / window_us) * window_us).alias("win_us"),
            "src",
            F.col("node").alias("dst"),
        )
        .agg(F.count("*").alias("beats"), F.min("us").alias("first_us"), F.max("us").alias("last_us"))
    )


def judge_windows(counts: DataFrame, reach: DataFrame, window_us: int) -> DataFrame:
    """One row of `WINDOW_SCHEMA` for each window in which somebody counts."""
    from pyspark.sql import functions as F

    # Many small graphs: one call of Python for many windows, one row for each edge.
    bucket = F.floor(F.col("win_us") / (window_us * BUCKET_WINDOWS))
    marks = counts.select("run", "win_us", F.col("node").alias("src"), F.col("node").alias("dst"))
    edges = reach.where(F.col("src") != F.col("dst")).select("run", "win_us", "src", "dst")
    both = marks.unionByName(edges).withColumn("bucket", bucket)
    return both.groupBy("run", "bucket").applyInPandas(_judge_bucket, WINDOW_SCHEMA)


def _judge_bucket(frame: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    counting: dict[int, list[str]] = {}
    edges: dict[int, list[tuple[str, str]]] = {}
    for win_us, source, target in zip(frame["win_us"], frame["src"], frame["dst"], strict=True):
        if source == target:
            counting.setdefault(win_us, []).append(source)
        else:
            edges.setdefault(win_us, []).append((source, target))
    run = str(frame["run"].iloc[0]) if len(frame) else ""
    found: list[dict[str, Any]] = []
    for win_us in sorted(counting):
        graph = window_graph(counting[win_us], edges.get(win_us, ()))
        found.append(
            {
                "run": run,
                "win_us": win_us,
                "counting": graph.counting,
                "edges": graph.edges,
                "components": len(graph.sides),
                "largest": len(graph.sides[0]),
                "oneway_pairs": graph.oneway_pairs,
                "silent_pairs": graph.silent_pairs,
                "sides": [list(side) for side in graph.sides],
            }
        )
    columns = [column.split()[0] for column in WINDOW_SCHEMA.split(", ")]
    return pandas.DataFrame(found, columns=columns)


def episodes(windows: DataFrame, reach: DataFrame, window_us: int) -> list[PartitionEpisode]:
    """Every episode, with the times of the last heartbeat before it and the first after it across the cut."""
    from pyspark.sql import functions as F

    split = [
        SplitWindow(row["run"], row["win_us"], tuple(tuple(side) for side in row["sides"]))
        for row in windows.where(F.col("components") > 1).select("run", "win_us", "sides").collect()
    ]
    runs = find_episodes(split, window_us)
    if not runs:
        return []
    bounds = _crossings(runs, reach)
    ends = windows.groupBy("run").agg(F.max("win_us").alias("last_us")).collect()
    last_window: dict[str, int] = {row["run"]: row["last_us"] for row in ends}
    found = []
    for number, (run, sides) in enumerate(runs):
        name, first_us, last_us = run[0].run, run[0].start_us, run[-1].start_us
        began_us, healed_us = bounds.get(number, (None, None))
        end_us = healed_us
        if end_us is None and last_us < last_window[name]:
            end_us = last_us + window_us
        found.append(
            PartitionEpisode(
                name,
                number + 1,
                (first_us if began_us is None else began_us) / 1e6,
                None if end_us is None else end_us / 1e6,
                len(run),
                sides,
            )
        )
    return found


def _crossings(
    runs: Sequence[tuple[list[SplitWindow], Sides]], reach: DataFrame
) -> Mapping[int, tuple[int | None, int | None]]:
    """For each episode the last time anyone heard across the cut before it, and the first time after it."""
    from pyspark.sql import functions as F

    spark = reach.sparkSession
    places = [
        (number, run[0].run, node, side, run[0].start_us, run[-1].start_us)
        for number, (run, sides) in enumerate(runs)
        for side, nodes in enumerate(sides)
        for node in nodes
    ]
    schema = "episode int, run string, node string, side int, first_win long, last_win long"
    place = spark.createDataFrame(places, schema)
    sources = place.withColumnRenamed("node", "src").withColumnRenamed("side", "src_side")
    targets = place.select("episode", F.col("node").alias("dst"), F.col("side").alias("dst_side"))
    across = (
        reach.join(F.broadcast(sources), ["run", "src"])
        .join(F.broadcast(targets), ["episode", "dst"])
        .where(F.col("src_side") != F.col("dst_side"))
        .groupBy("episode")
        .agg(
            F.max(F.when(F.col("win_us") < F.col("first_win"), F.col("last_us"))).alias("before"),
            F.min(F.when(F.col("win_us") > F.col("last_win"), F.col("first_us"))).alias("after"),
        )
    )
    return {row["episode"]: (row["before"], row["after"]) for row in across.collect()}
