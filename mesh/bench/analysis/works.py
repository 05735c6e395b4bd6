"""What is measured: reading logs into the analysis' tables, beside Spark's scan and group-by of the same
rows.

A figure is time of the processor, of this process, Spark's Java and its Python workers, since other programs
run on the machine too. Each work is done twice in a session, and the second is what counts: the first warms
Java up.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any, Final

from mesh.bench.analysis.generating import SECONDS_MIN, START_S, Truth, invent, write_logs, write_now
from mesh.bench.harness import Case, Figures, Target, workers
from mesh.bench.measuring import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES: Final = "JSON Lines, 200 brokers of 10 neighbours"
PARQUET: Final = "Parquet, 200 brokers of 10 neighbours"
SUMMARY: Final = "summary logs of the same hours"
SIZES: Final = "equal rows of more brokers, Parquet"
AGAIN: Final = "a run over the store of the one before"
FOLLOW: Final = "following 200 brokers, 4 000 rows a second"

TIMES: Final = "times a scan"
CPU: Final = "CPU s"
SCAN: Final = "scan CPU s"
ROW: Final = "us a row"
BEHIND: Final = "s behind, p99"

LINES_ROWS: Final = 2_000_000
PARQUET_ROWS: Final = 20_000_000
FOLLOW_S: Final = 120
SEED: Final = 1
MEMORY: Final = "6g"
SILENT_S: Final = 7200.0

TARGETS: Final = (
    Target(PARQUET, TIMES, "analysis", None, 6.0, False),
    Target(SUMMARY, TIMES, "analysis", None, 2.0, False),
    Target(LINES, TIMES, "analysis", None, 6.0, False),
    Target(SIZES, ROW, "1000 brokers", "100 brokers", 1.5, False),
    Target(FOLLOW, BEHIND, "analysis", None, 10.0, False),
)


def cases(scale: float, skipped: dict[str, str]) -> list[Case]:
    """All works; ``scale`` multiplies rows and seconds."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        skipped["analysis"] = "pyspark is not installed"
        return []
    lines, tables = int(LINES_ROWS * scale), int(PARQUET_ROWS * scale)
    made = [
        Case(LINES, "analysis", partial(_in_a_process, run_reading, 200, 10, lines, "lines")),
        Case(PARQUET, "analysis", partial(_in_a_process, run_reading, 200, 10, tables, "parquet")),
        Case(SUMMARY, "analysis", partial(_in_a_process, run_reading, 200, 10, tables, "summary")),
        Case(AGAIN, "analysis", partial(_in_a_process, run_again, 200, 10, lines)),
        Case(FOLLOW, "analysis", partial(_in_a_process, run_following, 200, 10, FOLLOW_S * scale)),
    ]
    for brokers in (100, 1000):
        work = partial(_in_a_process, run_reading, brokers, 10, tables // 2, "parquet")
        made.append(Case(SIZES, f"{brokers} brokers", work))
    return made


def _in_a_process(function: Callable[..., None], *arguments: Any) -> Figures:
    with workers() as group:
        figures: Figures = group.start(function, *arguments).hear(SILENT_S)
    return figures


# --- in the worker's process


def run_reading(brokers: int, neighbours: int, rows: int, form: str, report: Report, gate: Any) -> None:
    """From logs of a form to tables; the scan is of the same heartbeats, as Parquet or lines."""
    with _spark() as spark, tempfile.TemporaryDirectory(prefix="mangrove-bench-") as place:
        folder = Path(place) / "lines"
        truth = write_logs(folder, _history(brokers, neighbours, rows), SEED)
        beats, logs = folder, folder
        if form != "lines":
            beats = logs = _as_parquet(spark, folder, Path(place) / "parquet")
        if form == "summary":
            logs = _as_summary(spark, beats, Path(place) / "summary")
        ours = _second_cpu(lambda: _all_tables(spark, logs))
        scan = _second_cpu(lambda: _scan(spark, beats))
    report({CPU: ours, SCAN: scan, TIMES: ours / scan, ROW: ours / truth.heartbeats * 1e6})


def run_again(brokers: int, neighbours: int, rows: int, report: Report, gate: Any) -> None:
    """First a run that fills a store, then one over unchanged logs."""
    from mesh.analysis.reading.reduced import Store
    from mesh.analysis.results.folder import LocalPlace

    with _spark() as spark, tempfile.TemporaryDirectory(prefix="mangrove-bench-") as place:
        folder = Path(place) / "lines"
        write_logs(folder, _history(brokers, neighbours, rows), SEED)
        _all_tables(spark, folder, Store(spark, LocalPlace(Path(place) / "warm")))
        at = LocalPlace(Path(place) / "store")
        first = _cpu_of(lambda: _all_tables(spark, folder, Store(spark, at)))
        again = _second_cpu(lambda: _all_tables(spark, folder, Store(spark, at)))
    report({"first CPU s": first, CPU: again})


def run_following(brokers: int, neighbours: int, seconds: float, report: Report, gate: Any) -> None:
    """A writer that keeps to the clock, and a follower; the first third of the time warms it up."""
    from mesh.analysis.following.follower import follow
    from mesh.analysis.following.health import Picture
    from mesh.analysis.reading.reduced import Store
    from mesh.analysis.results.folder import LocalPlace

    behind: list[float] = []
    ended = threading.Event()
    with _spark() as spark, tempfile.TemporaryDirectory(prefix="mangrove-bench-") as place:
        folder = Path(place) / "logs"
        folder.mkdir()
        truth = invent(brokers, neighbours, max(SECONDS_MIN, int(seconds)), SEED)

        def write() -> None:
            write_now(folder, truth, SEED, int(time.time()) + 1, _wait_until(ended))
            ended.set()

        def show(picture: Picture) -> None:
            if picture.behind_s is not None:
                behind.append(picture.behind_s)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            store = Store(spark, LocalPlace(Path(place) / "store"))
            follow(spark, folder, store, Path(place) / "scratch", show, until=ended.is_set)
        finally:
            ended.set()
            writer.join()
    counted = sorted(behind[len(behind) // 3 :]) or [float("nan")]
    p99 = quantiles(counted, n=100)[98] if len(counted) > 1 else counted[0]
    report(
        {BEHIND: min(p99, counted[-1]), "s behind, median": counted[len(counted) // 2], "looks": len(behind)}
    )


def _wait_until(ended: threading.Event) -> Callable[[float], bool]:
    def wait(at_s: float) -> bool:
        return not ended.wait(max(0.0, at_s - time.time()))

    return wait


def _history(brokers: int, neighbours: int, rows: int) -> Truth:
    return invent(brokers, neighbours, max(SECONDS_MIN, rows // (2 * brokers * neighbours)), SEED)


@contextmanager
def _spark() -> Iterator[SparkSession]:
    from mesh.analysis.cluster.session import spark_session
    from mesh.analysis.cluster.settings import SparkOptions

    with spark_session(SparkOptions(memory=MEMORY)) as spark:
        yield spark


def _all_tables(spark: SparkSession, logs: Path, store: Any = None) -> None:
    """Every table of the analysis, written nowhere."""
    from mesh.analysis.deciding import decide
    from mesh.analysis.pipeline import WINDOW_S
    from mesh.analysis.reading.logs import read_logs

    read = read_logs(spark, str(logs), store)
    try:
        for table in decide(read, window_s=WINDOW_S).values():
            _noop(table)
    finally:
        read.close()


def _scan(spark: SparkSession, beats: Path) -> None:
    """Spark's own: heartbeats by 5 seconds and broker."""
    from pyspark.sql import functions as F

    if beats.name == "parquet":
        rows = spark.read.parquet(str(beats)).where("kind = 'hb'").select("node", "mono_ns", "rtt_us")
    else:
        rows = spark.read.schema("kind string, node string, mono_ns long, rtt_us long").json(str(beats))
        rows = rows.where("kind = 'hb'")
    grouped = rows.groupBy(F.expr("mono_ns div 5000000000").alias("window"), "node")
    _noop(
        grouped.agg(F.count("*").alias("rows"), F.max("mono_ns").alias("last"), F.avg("rtt_us").alias("rtt"))
    )


def _as_parquet(spark: SparkSession, folder: Path, target: Path) -> Path:
    """The same rows as Parquet, heartbeats apart from the others."""
    from pyspark.sql import functions as F

    from mesh.analysis.reading.schema import row_type

    rows = spark.read.schema(row_type()).json(str(folder)).withColumn("ts", F.to_timestamp("ts"))
    rows.write.partitionBy("kind").parquet(str(target))
    return target


def _as_summary(spark: SparkSession, beats: Path, target: Path) -> Path:
    """Rows of kind ``heard`` in place of the heartbeats, as ``log_heartbeats = "summary"`` writes them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from mesh.analysis.reading.logs import read_logs

    rows = spark.read.parquet(str(beats))
    read = read_logs(spark, str(beats))
    try:
        others = rows.where("kind != 'hb'")
        both = others.unionByName(_as_rows(read.heard, rows.columns), allowMissingColumns=True)
        numbers = Window.partitionBy("run", "node", "boot").orderBy("mono_ns", "seq")
        numbered = both.withColumn("seq", F.row_number().over(numbers).cast("long"))
        numbered.write.partitionBy("kind").parquet(str(target))
    finally:
        read.close()
    return target


def _as_rows(heard: DataFrame, names: list[str]) -> DataFrame:
    """The table `Heard` with the columns of every row of the log."""
    from pyspark.sql import functions as F

    rows = heard.withColumns(
        {
            "v": F.lit(1).cast("long"),
            "kind": F.lit("heard"),
            "node": F.col("dst"),
            "mono_ns": F.col("last_ns"),
            "ts": F.timestamp_micros(F.expr(f"last_ns div 1000 + {START_S * 1_000_000}")),
            "inc": F.lit(1).cast("long"),
            "seq": F.lit(0).cast("long"),
        }
    )
    return rows.select(*(name for name in names if name in rows.columns))


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _second_cpu(work: Callable[[], None]) -> float:
    work()
    return _cpu_of(work)


def _cpu_of(work: Callable[[], None]) -> float:
    before = cpu_of_tree()
    work()
    return cpu_of_tree() - before


def cpu_of_tree() -> float:
    """Seconds of the processor that this process, and all that it started, have taken so far."""
    stats: dict[int, tuple[int, float]] = {}
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            spent = sum(int(field) for field in fields[11:15])  # its own, and of children that ended
            stats[int(entry.name)] = (int(fields[1]), spent / ticks)
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in stats.items() if parent in mine} - mine:
        mine |= more
    return sum(stats[pid][1] for pid in mine if pid in stats)
