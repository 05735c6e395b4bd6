"""One analysis from logs to results: read, decide, write, report. `mesh analyze` and programs call it."""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.analysis.cluster.ending import silently
from mesh.analysis.cluster.file_systems import as_mesh_error
from mesh.analysis.cluster.session import spark_session
from mesh.analysis.cluster.settings import SparkOptions
from mesh.analysis.incident.writing import (
    WITHIN_S,
    NoScenario,
    chosen_run,
    moment_of,
    parse_moment,
    write_scenario,
)
from mesh.analysis.progress import Say, Stages
from mesh.analysis.reading.finding import (
    LINES,
    PARQUET,
    NoLogs,
    NoRows,
    all_empty,
    check_readable,
    is_skipped,
    no_event_log,
    no_folder,
)
from mesh.analysis.reporting.findings import Findings, findings_of
from mesh.analysis.reporting.gathering import digest_of
from mesh.analysis.results.folder import (
    DISK,
    REDUCED,
    Results,
    check_output,
    open_place,
    open_results,
    result_id,
    writing,
)
from mesh.analysis.results.tables import TABLES, Outage
from mesh.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mesh.analysis.reporting.digest import Digest

WINDOW_S: Final = 5.0
WINDOW_MIN_S: Final = 0.1
WINDOW_MAX_S: Final = 86_400.0
WITHIN_MAX_S: Final = 1e9
SMALL_BYTES: Final = 16 << 20
"""Logs up to this size are read with Spark's settings for few rows."""
TABLES_FOLDER: Final = "tables"
REPORT: Final = "report.html"
SUMMARY: Final = "summary.json"
QUARANTINE: Final = "quarantine"


@dataclass(frozen=True, slots=True)
class ScenarioWish:
    """A request for a scenario of the incident: all of it, or the part around a time in a form that
    `parse_moment` accepts. ``run`` names the run if the logs hold several.

    Raises:
        ConfigError: ``within_s`` is not above zero, or ``around`` is not a time.
    """

    around: str | None = None
    within_s: float = WITHIN_S
    run: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.within_s <= WITHIN_MAX_S:
            raise ConfigError(f"--within {self.within_s:g} is not a number of seconds above zero")
        if self.around is not None:
            try:
                parse_moment(self.around)
            except ValueError as error:
                raise ConfigError(f"--around {error}") from None


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of an analysis."""

    id: str
    findings: Findings
    where: str
    """The folder of this result: ``report.html``, ``summary.json``, ``tables``, ``quarantine``."""
    scenario: str | None = None
    """The text of the scenario file, if it was requested."""
    known: bool = False
    """The same logs were analysed before, and nothing was read again."""


def analyse(
    logs: str | Path,
    out: str | Path,
    *,
    window_s: float = WINDOW_S,
    spark: SparkOptions | None = None,
    scenario: ScenarioWish | None = None,
    say: Say = lambda stage: None,
) -> Analysis:
    """Analyse every log below ``logs`` (a folder or a URL) and make the result the current one of ``out``.

    Raises:
        NoLogs: nothing is there, or nothing that is a log.
        NotReadable: this user may not read one of them.
        NoRows: not one line is a row; all are in quarantine, and the current result is unchanged.
        ConfigError: ``window_s`` is not between 0.1 s and a day, or the scenario's time is outside of the
            run. Then the result is current.
        NoScenario: nothing happened, or no run is chosen of several; the result is current.
        OutputError: ``out`` is somebody else's, or cannot be written.
        Locked: another analysis writes to ``out``.
        ImportError: Spark is not installed.
        NoFileSystem: Spark cannot reach the file system of a URL.
        MeshError: Java is missing, Spark did not start or gave up, or the truth is of another run.
    """
    if not WINDOW_MIN_S <= window_s <= WINDOW_MAX_S:
        raise ConfigError(f"a window of {window_s:g} s is not between {WINDOW_MIN_S} s and a day")
    check_output(str(out))
    logs = os.path.expanduser(str(logs))
    _check_input(logs)
    options = spark or SparkOptions()
    stages = Stages(say)
    stages.begin("starting Spark")
    with spark_session(replace(options, small=options.small or _is_small(logs))) as session:
        with _in_a_sentence(), open_results(session, str(out)) as results:
            return _Job(session, results, logs, window_s, stages).run(scenario)


class _Job:
    """One run of the pipeline. Its methods are the steps, in order."""

    def __init__(
        self, spark: SparkSession, results: Results, logs: str, window_s: float, stages: Stages
    ) -> None:
        self._spark = spark
        self._results = results
        self._logs = logs
        self._window_s = window_s
        self._stages = stages

    def run(self, scenario: ScenarioWish | None) -> Analysis:
        """Read and decide, unless an earlier run did that for the same logs. Then report."""
        from mesh.analysis.reading.logs import read_logs
        from mesh.analysis.reading.reduced import Store

        self._stages.begin("reading the logs")
        kept = open_place(self._spark, f"{self._results.place.url}/{REDUCED}")
        with writing(self._results.place.url, DISK):
            logs = read_logs(self._spark, self._logs, Store(self._spark, kept))
        try:
            id = result_id(logs.files, {"window_s": self._window_s, "program": _program()})
            known = self._results.has(id)
            if not known:
                self._check_rows(logs.boots_raw, logs.files, logs.quarantine, id)
                with self._results.building(id):
                    self._decide(logs, id)
        finally:
            logs.close()
        self._stages.begin("writing the report")
        with nullcontext() if known else self._results.building(id):
            tables = read_tables(self._spark, self._results.url_of(id))
            digest = digest_of(tables)
            found = findings_of(digest)
            self._write(id, found, digest)
            self._results.make_current(id)
        where = self._results.url_of(id).removeprefix("file://")
        text = None
        if scenario is not None:
            text = self._scenario(scenario, found, digest, tables["outages"], where)
        self._stages.end()
        return Analysis(id, found, where, text, known)

    def _check_rows(self, boots: DataFrame, files: DataFrame, quarantine: DataFrame, id: str) -> None:
        if not boots.isEmpty():
            return
        self._results.write_lines(id, QUARANTINE, quarantine)
        lines = files.groupBy().sum("lines").collect()[0][0] or 0
        where = f"{self._results.url_of(id).removeprefix('file://')}/{QUARANTINE}"
        wrong = files.where("damage is not null").select("file", "damage", "lines").orderBy("file").collect()
        said = []
        if bad := lines - sum(row["lines"] > 0 for row in wrong):
            told = f"not one of {bad} lines in {self._logs} is a row of an event log"
            said.append(f"{told}; they are in {where} with the reasons")
        if wrong:
            more = f"; {where} names {len(wrong) - 1} more" if len(wrong) > 1 else ""
            said.append(f"{wrong[0]['file']} in {self._logs} is damaged: {wrong[0]['damage']}{more}")
        raise NoRows("; ".join(said))

    def _decide(self, logs: object, id: str) -> None:
        from mesh.analysis.deciding import decide
        from mesh.analysis.reading.logs import Logs
        from mesh.analysis.results.spark_types import as_table

        assert isinstance(logs, Logs)
        found = decide(logs, window_s=self._window_s, say=self._stages.begin)
        self._stages.begin("writing the tables")
        for name, frame in found.items():
            self._results.write_table(id, name, as_table(frame, TABLES[name]))
        self._results.write_lines(id, QUARANTINE, logs.quarantine)

    def _write(self, id: str, found: Findings, digest: Digest) -> None:
        from mesh.analysis.reporting.page.rendering import render

        self._results.write_text(id, REPORT, render(found, digest))
        summary = json.dumps(found.as_json(), indent=2, ensure_ascii=False)
        self._results.write_text(id, SUMMARY, summary + "\n")

    def _scenario(
        self, wish: ScenarioWish, found: Findings, digest: Digest, outages: DataFrame, where: str
    ) -> str:
        stored = f"; the result is stored in {where}"
        cut = outages.where("cause = 'cut' and expected").select(*Outage.__struct_fields__).collect()
        rows = [Outage(*row) for row in cut]
        at = None
        try:
            run = chosen_run(found.runs, wish.run)
            if wish.around is not None:
                at = moment_of(wish.around, run.started, run.ended)
            return write_scenario(found, digest, rows, run=run.run, at=at, within_s=wish.within_s)
        except NoScenario as error:
            raise NoScenario(f"{error}{stored}") from None
        except ValueError as error:
            raise ConfigError(f"--around {error}{stored}") from None


def read_tables(spark: SparkSession, result: str) -> dict[str, DataFrame]:
    """The tables of a result by name, with instants as microseconds, as decisions use them."""
    from mesh.analysis.results.spark_types import of_table, table_schema

    return {
        name: of_table(
            spark.read.schema(table_schema(record)).parquet(f"{result}/{TABLES_FOLDER}/{name}"), record
        )
        for name, record in TABLES.items()
    }


def _program() -> str:
    """This version of the program, which may decide otherwise than another one."""
    from mesh.analysis.results.spark_types import table_schema

    try:
        version = importlib.metadata.version("mangrove-mesh")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return f"{version} {[table_schema(record).json() for record in TABLES.values()]}"


def _check_input(logs: str) -> None:
    """Refuse a folder on this machine that is empty, or not to be read, before Spark is started."""
    logs = logs.removeprefix("file://")
    folder = Path(logs)
    if ":" in logs:
        return
    if not folder.exists():
        raise no_folder(folder)
    check_readable(folder)
    found = [folder]
    if folder.is_dir():
        found = [path for path in folder.rglob("*") if path.name.endswith((*LINES, *PARQUET))]
        if not found:
            raise no_event_log(folder)
        if skipped := [path for path in found if is_skipped(path.relative_to(folder))]:
            raise NoLogs(f"Spark reads nothing whose name begins with _, such as {min(skipped)}; rename it")
    # A file that is gone was renamed by its broker, so it was not empty.
    if all(path.exists() and not path.stat().st_size for path in found):
        raise all_empty(folder, len(found))


def _is_small(logs: str) -> bool:
    """True if the logs are a few megabytes in a folder on this machine."""
    folder = Path(logs)
    if not folder.is_dir():
        return folder.is_file() and folder.stat().st_size <= SMALL_BYTES
    total = 0
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".parquet":
            total += path.stat().st_size
        if total > SMALL_BYTES:
            return False
    return not any(folder.rglob("*.parquet"))


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """Turn Spark's failures into one line."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        with silently():
            yield
    except (PySparkException, Py4JError) as error:
        raise as_mesh_error(error) from error
