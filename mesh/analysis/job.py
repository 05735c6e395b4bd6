"""The job: read the logs, reduce them with Spark, judge, and write tables, summary and report.

Everything is written below ``<out>/_tmp`` and moved into place at the end, so that a reader never sees half a
report, and a run that fails leaves the one before it alone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesh.analysis import tables
from mesh.analysis.churn import Boot, Death, Return, availability, judge, mark_partitions
from mesh.analysis.cluster.session import reason_of, spark_session
from mesh.analysis.cluster.settings import SparkOptions
from mesh.analysis.findings import ChurnEvent, Findings, PartitionEpisode, Quality, Session
from mesh.analysis.report import (
    BrokerTotals,
    FileQuality,
    LinkTotals,
    PairHeard,
    ReportData,
    RoundTrips,
    TrafficPoint,
    WindowState,
    render,
)
from mesh.errors import ConfigError, MeshError

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession

SUFFIXES: Final = (".jsonl", ".jsonl.part")
TRUTH_PREFIX: Final = "truth-"
WINDOW_S: Final = 5.0
PLOT_BUCKETS_MAX: Final = 240
SLACK_S: Final = 8.0
"""A log that ends longer before its run's end than a broker ever writes nothing has ended by itself."""
STATS_S: Final = 5.0
STAGES_AT_ONCE: Final = 3
"""More would only wait for the two cores."""
SPARK_OPTIONS: Final = SparkOptions()
SMALL_BYTES: Final = 16 << 20
"""Logs up to this size are read with the settings for few rows."""
RENAMES_MAX: Final = 5
"""Brokers rename a file every ten minutes or 64 MiB; the logs are read again if one did so meanwhile."""
OUTPUTS: Final = ("tables", "quarantine", "report.html", "summary.json")


class NoLogs(FileNotFoundError):
    """There is no event log where there should be one."""


class NoRows(MeshError):
    """There are logs, but not one line in them is a row."""


def analyse(
    logdir: str | Path,
    out: str | Path,
    *,
    window_s: float = WINDOW_S,
    spark: SparkOptions = SPARK_OPTIONS,
    say: Callable[[str], None] = lambda stage: None,
) -> Findings:
    """Analyse every log below ``logdir`` and write the results to ``out``; ``say`` is told each stage.

    Raises:
        NoLogs: ``logdir`` is missing or holds no logs.
        NoRows: not one line is a row; they all are in ``<out>/quarantine``.
        ConfigError: ``window_s`` is not between 0.1 s and a day.
        ImportError: Spark is not installed.
        MeshError: Java is missing or Spark did not start.
    """
    if not 0.1 <= window_s <= 86_400:
        raise ConfigError(f"a window of {window_s:g} s is not between 0.1 s and a day")
    folder = Path(logdir).expanduser().resolve()
    files = find_logs(folder)
    target = Path(out).expanduser().resolve()
    if target.exists() and not target.is_dir():
        raise ConfigError(f"{target} is a file; name a folder for the report")
    staging = target / "_tmp"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        say("starting Spark")
        small = _size(files) <= SMALL_BYTES
        with spark_session(replace(spark, small=small)) as session:
            from py4j.protocol import Py4JError  # type: ignore[import-untyped]
            from pyspark.errors import PySparkException

            job = _Job(session, folder, files, staging, round(window_s * 1e6), say)
            try:
                findings = job.run()
            except NoRows:
                _publish(staging, target, ("quarantine",))
                raise
            except (PySparkException, Py4JError) as error:
                raise MeshError(f"Spark gave up: {reason_of(error)}") from error
        _publish(staging, target, OUTPUTS)
        return findings
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def find_logs(folder: Path) -> list[Path]:
    """Every event log below ``folder`` in order of its path; the simulator's ground truth is not one.

    Raises:
        NoLogs: the folder is missing, is none, or holds no log.
    """
    if not folder.exists():
        raise NoLogs(f"there is no folder {folder}; name the one that brokers were given as --log-dir")
    if not folder.is_dir():
        raise NoLogs(f"{folder} is not a folder; name the one that brokers were given as --log-dir")
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.name.endswith(SUFFIXES) and not path.name.startswith(TRUTH_PREFIX) and path.is_file()
    ]
    if not found:
        raise NoLogs(
            f"{folder} holds no event log (*.jsonl or *.jsonl.part); was a broker run with --log-dir?"
        )
    if not any(path.stat().st_size for path in found):
        raise NoLogs(f"the {len(found)} event logs in {folder} are all empty")
    return found


def _size(files: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in files if path.exists())


def _publish(staging: Path, target: Path, names: Iterable[str]) -> None:
    for name in names:
        old, new = target / name, staging / name
        if old.is_dir():
            shutil.rmtree(old)
        elif old.exists():
            old.unlink()
        if new.exists():
            os.replace(new, old)


class _Job:
    """One run; its methods are the stages, in order."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        files: Sequence[Path],
        staging: Path,
        window_us: int,
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._files = files
        self._staging = staging
        self._tables = staging / "tables"
        self._window_us = window_us
        self._say = say

    def run(self) -> Findings:
        """Reduce, judge and write; stages that need nothing of each other run side by side."""
        with ThreadPoolExecutor(max_workers=STAGES_AT_ONCE) as pool:
            pool.submit(self._warm_python)
            self._say("reading the logs")
            lines = self._read_lines()
            rows = self._rows(lines)
            boots = self._boots(rows)
            files, quality = self._quality(lines, boots)
            if not boots:
                raise NoRows(
                    f"not one of {quality.lines} lines in {self._folder} is a row of an event log; "
                    "they are in quarantine with the reasons"
                )
            self._say("weighing who was there, who heard whom and what was carried")
            bucket_us = self._bucket_us(max(boot.last for boot in boots) - min(boot.first for boot in boots))
            reach = self._reachability(rows)
            delivering = pool.submit(self._delivery, rows, bucket_us)
            churning = pool.submit(self._churn, rows, reach, boots)
            counts, windows, episodes = self._partitions(rows, reach)
            states = self._window_states(windows, bucket_us)
            pairing = pool.submit(self._pairs, counts, reach)
            delivery = delivering.result()
            findings = self._findings(boots, churning.result(), episodes, states, delivery, quality)
            self._say("writing the report")
            made = [*tables.of_findings(findings), tables.of_files(files)]
            writing = [pool.submit(self._write_records, *table) for table in made]
            data = ReportData(
                findings=findings,
                bucket_s=bucket_us / 1e6,
                windows=tuple(states),
                pairs=tuple(pairing.result()),
                links=delivery.links,
                brokers=delivery.brokers,
                drops=delivery.drops,
                traffic=delivery.traffic,
                round_trips=delivery.round_trips,
                files=tuple(files),
                folder=str(self._folder),
            )
            self._write_report(data)
            for written in writing:
                written.result()
        return findings

    def _findings(
        self,
        boots: Sequence[Boot],
        judged: tuple[list[ChurnEvent], list[Session]],
        episodes: Sequence[PartitionEpisode],
        states: Sequence[WindowState],
        delivery: _Delivery,
        quality: Quality,
    ) -> Findings:
        events, sessions = judged
        return Findings(
            runs=tuple(sorted({boot.run for boot in boots})),
            started=min(boot.first for boot in boots),
            ended=max(boot.last for boot in boots),
            window_s=self._window_us / 1e6,
            names={session.node: session.name for session in sessions},
            events=tuple(mark_partitions(events, episodes)),
            sessions=tuple(sessions),
            availability=tuple(availability(sessions)),
            partitions=tuple(episodes),
            windows=sum(state.windows for state in states),
            traffic=delivery.sums(),
            drops=delivery.reasons(),
            quality=quality,
        )

    def _write_report(self, data: ReportData) -> None:
        (self._staging / "report.html").write_text(render(data), encoding="utf-8")
        summary = json.dumps(data.findings.as_json(), indent=2, ensure_ascii=False)
        (self._staging / "summary.json").write_text(summary + "\n", encoding="utf-8")

    def _bucket_us(self, duration_s: float) -> int:
        """Whole windows, long enough for a `stats` row of every broker, and few enough for a plot."""
        least_us = max(STATS_S, duration_s / PLOT_BUCKETS_MAX) * 1e6
        return self._window_us * ceil(least_us / self._window_us)

    def _warm_python(self) -> None:
        """Start Spark's Python worker while the logs are read; it takes two seconds to import pandas."""
        few = self._spark.range(1)
        few.groupBy("id").applyInPandas(_same, "id long").collect()

    def _read_lines(self) -> DataFrame:
        """Parse every line once into the `events` table, and hand over that table."""
        from pyspark.errors import AnalysisException

        from mesh.analysis import schema

        where = self._tables / "events"
        for _ in range(RENAMES_MAX):
            paths = [_escape_globs(str(path)) for path in self._files]
            try:
                parsed = schema.parse(schema.read_lines(self._spark, paths, str(self._folder)))
                parsed.write.mode("overwrite").partitionBy("kind").parquet(str(where))
            except AnalysisException as error:
                if error.getCondition() != "PATH_NOT_FOUND":
                    raise
            else:
                if all(path.exists() for path in self._files):
                    break
            # A broker finished a file and took its .part away, perhaps before it was read.
            self._files = find_logs(self._folder)
        else:
            raise MeshError(f"the logs in {self._folder} are renamed faster than they can be read")
        lines = self._spark.read.schema(parsed.schema).parquet(str(where))
        if (where / f"kind={schema.QUARANTINE}").exists():
            bad = lines.where(lines.kind == schema.QUARANTINE)
            found = bad.select("file", "problem", bad.raw.alias("line"))
            found.write.json(str(self._staging / "quarantine"))
        return lines

    def _rows(self, lines: DataFrame) -> DataFrame:
        """The good lines, each once, with their time in microseconds as ``us``."""
        from pyspark.sql import functions as F

        good = lines.where((F.col("copy") == 1) & F.col("kind").isin("meta", "hb", "mem", "link", "stats"))
        bookkeeping = ("raw", "problem", "copy", "conflict", "file", "v")
        return good.withColumn("us", F.unix_micros("ts")).drop(*bookkeeping)

    def _quality(self, lines: DataFrame, boots: Sequence[Boot]) -> tuple[list[FileQuality], Quality]:
        from pyspark.sql import functions as F

        counted = (
            lines.groupBy("file", F.coalesce("problem", F.lit("")).alias("problem"))
            .agg(
                F.count("*").alias("lines"),
                F.count(F.when(F.col("copy") > 1, 1)).alias("duplicates"),
                F.count(F.when(F.col("conflict"), 1)).alias("conflicts"),
            )
            .collect()
        )
        of_file: dict[str, list[Any]] = {}
        problems: dict[str, int] = {}
        for row in sorted(counted, key=lambda row: str(row["problem"])):
            of_file.setdefault(row["file"], []).append(row)
            if row["problem"]:
                problems[row["problem"]] = problems.get(row["problem"], 0) + row["lines"]
        files = [
            _file_quality(name, of_file.get(name, []))
            for name in (str(path.relative_to(self._folder)) for path in self._files)
        ]
        return files, Quality(
            files=len(files),
            lines=sum(file.lines for file in files),
            rows=sum(file.rows for file in files),
            duplicates=sum(file.duplicates for file in files),
            conflicts=sum(row["conflicts"] for row in counted),
            quarantined=sum(file.quarantined for file in files),
            missing=sum(boot.last_seq - boot.first_seq + 1 - boot.rows for boot in boots),
            problems=problems,
        )

    def _boots(self, rows: DataFrame) -> list[Boot]:
        from mesh.analysis import churn

        return [
            Boot(
                run=row["run"],
                node=row["node"],
                boot=row["boot"],
                name=row["name"] or "",
                first=row["first_us"] / 1e6,
                last=row["last_us"] / 1e6,
                first_seq=row["first_seq"],
                last_seq=row["last_seq"],
                rows=row["rows"],
                left=None if row["left_us"] is None else row["left_us"] / 1e6,
            )
            for row in churn.boots(rows).collect()
        ]

    def _reachability(self, rows: DataFrame) -> DataFrame:
        """Written once with times, read back with numbers for the stages that follow."""
        from pyspark.sql import functions as F

        from mesh.analysis import partitions

        reach = partitions.reachability(rows, self._window_us)
        written = self._write(reach, "reachability")
        return written.select(
            "run",
            F.unix_micros("win_start").alias("win_us"),
            "src",
            "dst",
            "beats",
            F.unix_micros("first").alias("first_us"),
            F.unix_micros("last").alias("last_us"),
        )

    def _churn(
        self, rows: DataFrame, reach: DataFrame, boots: list[Boot]
    ) -> tuple[list[ChurnEvent], list[Session]]:
        from pyspark.sql import functions as F

        from mesh.analysis import churn

        deaths = [
            Death(
                row["run"],
                row["subject"],
                row["subject_boot"],
                row["subject_inc"],
                row["detected_us"] / 1e6,
                row["observers"],
                None if row["own_us"] is None else row["own_us"] / 1e6,
                None if row["heard_us"] is None else row["heard_us"] / 1e6,
            )
            for row in churn.deaths(rows).collect()
        ]
        alive = churn.returns(rows).collect()
        returns = [
            Return(row["run"], row["subject"], row["subject_boot"], row["subject_inc"], row["at_us"] / 1e6)
            for row in alive
        ]
        logged = {(boot.run, boot.node) for boot in boots}
        hearsay = [row for row in alive if (row["run"], row["subject"]) not in logged]
        heard: dict[tuple[str, str], float] = {}
        if hearsay:
            last = reach.groupBy("run", "src").agg(F.max("last_us").alias("last_us"))
            heard = {(row["run"], row["src"]): row["last_us"] / 1e6 for row in last.collect()}
        names = {(row["run"], row["subject"], row["subject_boot"]): row["name"] or "" for row in alive}
        known = churn.complete_boots(boots, deaths, returns, names, heard)
        return judge(known, deaths, returns, slack_s=SLACK_S)

    def _partitions(
        self, rows: DataFrame, reach: DataFrame
    ) -> tuple[DataFrame, DataFrame, list[PartitionEpisode]]:
        from pyspark.sql import functions as F

        from mesh.analysis import partitions

        counts = partitions.count_windows(rows, self._window_us).persist()
        judged = partitions.judge_windows(counts, reach, self._window_us)
        written = self._write(judged, "partition_windows")
        windows = written.withColumn("win_us", F.unix_micros("win_start"))
        return counts, windows, partitions.episodes(windows, reach, self._window_us)

    def _window_states(self, windows: DataFrame, bucket_us: int) -> list[WindowState]:
        from pyspark.sql import functions as F

        bucket = (F.floor(F.col("win_us") / bucket_us) * bucket_us).alias("bucket_us")
        found = (
            windows.groupBy("run", bucket)
            .agg(
                F.count("*").alias("windows"),
                F.max("counting").alias("counting"),
                F.max("components").alias("components"),
                F.max("oneway_pairs").alias("oneway_pairs"),
                F.max("silent_pairs").alias("silent_pairs"),
            )
            .collect()
        )
        states = [
            WindowState(
                row["run"],
                row["bucket_us"] / 1e6,
                row["windows"],
                row["counting"],
                row["components"],
                row["oneway_pairs"],
                row["silent_pairs"],
            )
            for row in found
        ]
        return sorted(states, key=lambda state: (state.run, state.start))

    def _pairs(self, counts: DataFrame, reach: DataFrame) -> list[PairHeard]:
        """Of the windows in which both count, in how many the one heard the other."""
        from pyspark.sql import functions as F

        sources = counts.withColumnRenamed("node", "src")
        targets = counts.withColumnRenamed("node", "dst")
        both = sources.join(targets, ["run", "win_us"]).where(F.col("src") != F.col("dst"))
        joined = both.join(
            reach.select("run", "win_us", "src", "dst", "beats"), ["run", "win_us", "src", "dst"], "left"
        )
        found = joined.groupBy("run", "src", "dst").agg(
            F.count("*").alias("windows"), F.count("beats").alias("heard")
        )
        return [
            PairHeard(row["run"], row["src"], row["dst"], row["windows"], row["heard"])
            for row in found.orderBy("run", "src", "dst").collect()
        ]

    def _delivery(self, rows: DataFrame, bucket_us: int) -> _Delivery:
        from mesh.analysis import delivery

        brokers = self._collect(delivery.broker_totals(rows), "brokers")
        drops = self._collect(delivery.drop_totals(rows), "drops")
        links = self._collect(delivery.link_totals(rows), "links")
        traffic = self._collect(delivery.traffic(rows, bucket_us), "traffic")
        trips = self._collect(delivery.round_trips_over_time(rows, bucket_us), "round_trips")
        return _Delivery(
            tuple(sorted((BrokerTotals(*row) for row in brokers), key=attrgetter("run", "node"))),
            tuple(sorted((row["run"], row["node"], row["reason"], row["count"]) for row in drops)),
            tuple(
                sorted((LinkTotals.of(row.asDict()) for row in links), key=attrgetter("run", "node", "peer"))
            ),
            tuple(
                sorted(
                    (TrafficPoint(row[0], row[1].timestamp(), *row[2:]) for row in traffic),
                    key=attrgetter("run", "start", "node"),
                )
            ),
            tuple(
                sorted(
                    (RoundTrips(row[0], row[1].timestamp(), *row[2:]) for row in trips),
                    key=attrgetter("run", "start"),
                )
            ),
        )

    def _collect(self, frame: DataFrame, name: str) -> list[Any]:
        """Write a small table and hand over its rows, computing it once."""
        kept = frame.persist()
        try:
            timed = _with_times(kept)
            timed.coalesce(1).write.parquet(str(self._tables / name))
            return timed.collect()
        finally:
            kept.unpersist()

    def _write(self, frame: DataFrame, name: str) -> DataFrame:
        """Write a table that may be large, and read what was written."""
        timed = _with_times(frame)
        path = str(self._tables / name)
        timed.write.parquet(path)
        return self._spark.read.schema(timed.schema).parquet(path)

    def _write_records(self, name: str, ddl: str, records: list[tuple[Any, ...]]) -> None:
        """A table that was made here and not by Spark; one small file."""
        frame = self._spark.createDataFrame(records, ddl)
        frame.coalesce(1).write.parquet(str(self._tables / name))


@dataclass(frozen=True, slots=True)
class _Delivery:
    """What the delivery stage hands over, each in order."""

    brokers: tuple[BrokerTotals, ...]
    drops: tuple[tuple[str, str, str, int], ...]
    links: tuple[LinkTotals, ...]
    traffic: tuple[TrafficPoint, ...]
    round_trips: tuple[RoundTrips, ...]

    def sums(self) -> dict[str, int]:
        """Over all brokers, and what the links lost."""
        names = ("published", "delivered", "dropped")
        sums = {name: sum(getattr(broker, name) for broker in self.brokers) for name in names}
        return {**sums, "lost": sum(link.lost for link in self.links)}

    def reasons(self) -> dict[str, int]:
        """Why messages were dropped, over all brokers."""
        found: dict[str, int] = {}
        for _, _, reason, count in self.drops:
            if count:
                found[reason] = found.get(reason, 0) + count
        return found


def _file_quality(name: str, counted: Sequence[Any]) -> FileQuality:
    lines = sum(row["lines"] for row in counted)
    bad = sum(row["lines"] for row in counted if row["problem"])
    duplicates = sum(row["duplicates"] for row in counted)
    return FileQuality(name, lines, lines - bad - duplicates, duplicates, bad)


def _same(frame: pandas.DataFrame) -> pandas.DataFrame:
    return frame


TIMES: Final = {"win_us": "win_start", "bucket_us": "start", "first_us": "first", "last_us": "last"}


def _with_times(frame: DataFrame) -> DataFrame:
    """Columns of microseconds as timestamps, under the names of the tables."""
    from pyspark.sql import functions as F

    return frame.select(
        *(
            F.timestamp_micros(name).alias(TIMES[name]) if name in TIMES else F.col(name)
            for name in frame.columns
        )
    )


def _escape_globs(path: str) -> str:
    """Spark takes a path for a pattern."""
    return "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in path)
