"""What is measured: reading logs into the analysis' tables, beside Spark's scan and group-by of the same
rows.

A figure is time of the processor, of this process, Spark's Java and its Python workers, since other programs
run on the machine too. Each work is done twice in a session, and the second is what counts: the first warms
Java up.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesh.bench.analysis import writing
from mesh.bench.analysis.following import BEHIND, run_following
from mesh.bench.analysis.generating import SECONDS_MIN, START_S, Truth, invent, write_logs
from mesh.bench.harness import Case, Figures, Target, workers
from mesh.bench.measuring import Report
from mesh.bench.processor import spent_by_tree, spent_in_tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES: Final = "JSON Lines, 200 brokers of 10 neighbours"
PARQUET: Final = "Parquet, 200 brokers of 10 neighbours"
SUMMARY: Final = "summary logs of the same hours"
SIZES: Final = "equal rows of more brokers, Parquet"
LARGE: Final = "100 M heartbeats beside 20 M, Parquet"
AGAIN: Final = "a run over the store of the one before"
WRITER: Final = "a broker's log of heartbeats of 100 peers"
FOLLOW: Final = "following 200 brokers, 4 000 rows a second"

TIMES: Final = "times a scan"
CPU: Final = "CPU s"
SCAN: Final = "scan CPU s"
ROW: Final = "us a row"
GROWTH: Final = "a row, times that of 20 M"
MEMORY_GB: Final = "driver, GB at most"

LINES_ROWS: Final = 2_000_000
PARQUET_ROWS: Final = 20_000_000
COPIES: Final = 5
FOLLOW_S: Final = 120
HEARTBEATS: Final = 1_000_000
SEED: Final = 1
MEMORY: Final = "4g"
SILENT_S: Final = 7200.0
BETWEEN_S: Final = 10
"""From the end of a run to its next start."""

TARGETS: Final = (
    Target(PARQUET, TIMES, "analysis", None, 6.0, False),
    Target(SUMMARY, TIMES, "analysis", None, 2.0, False),
    Target(LINES, TIMES, "analysis", None, 6.0, False),
    Target(SIZES, ROW, "1000 brokers", "100 brokers", 1.5, False),
    Target(LARGE, GROWTH, "analysis", None, 1.2, False),
    Target(LARGE, MEMORY_GB, "analysis", None, 6.0, False),
    Target(WRITER, writing.COST, "each", None, 3.0, False),
    Target(WRITER, writing.BYTES, "each", None, 270.0, False),
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
    for form in writing.FORMS:
        work = partial(_in_a_process, writing.run_writing, form, int(HEARTBEATS * scale))
        made.append(Case(WRITER, form, work))
    for brokers in (100, 1000):
        work = partial(_in_a_process, run_reading, brokers, 10, tables // 2, "parquet")
        made.append(Case(SIZES, f"{brokers} brokers", work))
    made.append(Case(LARGE, "analysis", partial(_in_a_process, run_large, 200, 10, tables)))
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


def run_large(brokers: int, neighbours: int, rows: int, report: Report, gate: Any) -> None:
    """What a row costs in logs of `COPIES` times the hours, in one session with that of the hours alone."""
    with _spark() as spark, tempfile.TemporaryDirectory(prefix="mangrove-bench-") as place:
        folder = Path(place) / "lines"
        truth = write_logs(folder, _history(brokers, neighbours, rows), SEED)
        hours = _as_parquet(spark, folder, Path(place) / "parquet")
        more = _longer(spark, hours, Path(place) / "longer", truth.seconds)
        few = _second_cpu(lambda: _all_tables(spark, hours))
        many = _cpu_of(lambda: _all_tables(spark, more))
        driver = peak_of_java()
    row = many / (truth.heartbeats * COPIES) * 1e6
    growth = many / COPIES / few
    report(
        {
            CPU: many,
            ROW: row,
            "us a row of 20 M": few / truth.heartbeats * 1e6,
            GROWTH: growth,
            MEMORY_GB: driver,
        }
    )


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
    shutil.rmtree(folder)
    return target


def _longer(spark: SparkSession, hours: Path, target: Path, seconds: int) -> Path:
    """The same hours `COPIES` times, one after the other: between them every broker is started again."""
    from pyspark.sql import functions as F

    rows = spark.read.parquet(str(hours))
    for copy in range(COPIES):
        boots = {
            name: F.when(F.col(name).isNotNull(), F.md5(F.concat(name, F.lit(f"-{copy}"))).substr(1, 16))
            for name in ("boot", "subject_boot")
        }
        later = F.col("ts") + F.make_interval(secs=F.lit(copy * (seconds + BETWEEN_S)))
        incs = {name: F.col(name) + 2 * copy for name in ("inc", "subject_inc")}
        of_copy = rows.withColumns({**boots, **incs, "ts": later})
        of_copy.write.mode("append").partitionBy("kind").parquet(str(target))
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
    before = spent_by_tree(os.getpid())
    work()
    return spent_by_tree(os.getpid()) - before


def peak_of_java() -> float:
    """Most memory of a Java that this process started, in GB."""
    peaks = [0.0]
    for pid in spent_in_tree(os.getpid()):
        try:
            said = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        if said.startswith("Name:\tjava\n"):
            peaks += [int(line.split()[1]) / 1e6 for line in said.splitlines() if line.startswith("VmHWM:")]
    return max(peaks)
