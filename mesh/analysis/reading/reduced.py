"""A store of parsed data, so that each file is parsed once: later runs read only new and grown files.

A batch is a folder: ``rows`` (all but heartbeats), ``parts`` (heartbeats by window, which merge), ``bad``
(lines that are not rows), ``periods``, as Parquet, and a manifest. The manifest names the bytes of each file
that are in the batch. It is written last: a batch without one does not count, and the next batch replaces it.
So data read before a crash but without a manifest is read again, and never twice.

Batches are numbered. A folder with several batches is named after the first and the last of them. It replaces
these as soon as it has its manifest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as F

from mesh.analysis.made import by_column
from mesh.analysis.reading import heartbeats, numbering
from mesh.analysis.reading.coverage import (
    GROWING,
    Plan,
    Seen,
    Slice,
    Span,
    is_as_it_was,
    plan,
    stem_of,
    to_look_at,
    to_merge,
    visible,
)
from mesh.analysis.reading.finding import escaped
from mesh.analysis.reading.material import Direct, Windows, periods_of
from mesh.analysis.reading.schema import rules
from mesh.analysis.reading.slices import heads_of, lines_of_slices
from mesh.analysis.reading.sources import Lines, lines_of, listed, tables_and_damage, union

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mesh.analysis.reading.finding import LogFile
    from mesh.analysis.reading.sources import Source
    from mesh.analysis.results.folder import Place

FORMAT: Final = 2
MANIFEST: Final = "manifest.json"
NAME: Final = re.compile(r"(\d{9})-(\d{9})")
MARKS: Final = ("stem", "generation")


class Manifest(msgspec.Struct, frozen=True):
    """The coverage of a batch. A manifest of another format does not count."""

    format: str
    seen: list[Seen]


class Store:
    """The folder of batches. It has one writer at a time, which its opener must ensure."""

    def __init__(self, spark: SparkSession, place: Place) -> None:
        self._spark = spark
        self._place = place
        self._format = f"{FORMAT}-{hashlib.sha256(rules().encode()).hexdigest()[:8]}"
        self._spans: list[Span] = []
        self._schemas: dict[str, StructType] = {}
        """Of what is stored, by name; Spark starts a job to ask a file."""
        self.seen: dict[str, Seen] = {}
        """Covered files, by stem."""
        self._open()

    def _open(self) -> None:
        names = self._place.names()
        found = [(int(match[1]), int(match[2])) for name in names if (match := NAME.fullmatch(name))]
        manifests = {span: read for span in found if (read := self._manifest(span)) is not None}
        self._spans = visible(manifests)
        for span in self._spans:
            self.seen.update((seen.stem, seen) for seen in manifests[span].seen)
        for span in found:
            if span not in self._spans:
                self._place.remove(_name(span))

    def _manifest(self, span: Span) -> Manifest | None:
        try:
            read = msgspec.json.decode(self._place.read(f"{_name(span)}/{MANIFEST}"), type=Manifest)
        except msgspec.DecodeError:  # missing or incomplete
            return None
        return read if read.format == self._format else None

    def read(self, files: Sequence[LogFile]) -> tuple[list[Source], Stored]:
        """Store the new data of these files. Returns sources to read them again, and the stored data.

        Damaged files are not stored, but read each time, so that the repair of one is noticed.
        """
        damaged = [file for file in files if file.damage is not None]
        sound = [file for file in files if file.damage is None]
        todo = plan(sound, self.seen, heads_of(self._spark, to_look_at(sound, self.seen)))
        new = _sources(self._spark, todo)
        if new:
            paths = {file.path: file.name for file in sound}
            self.append(new, todo.seen, paths)
        whole = Plan(
            files=[file for file in files if not file.name.endswith(GROWING)],
            slices=[Slice(file, 0, self._end(file)) for file in files if file.name.endswith(GROWING)],
        )
        unstored = _with_listed_paths(_sources(self._spark, Plan(files=damaged, slices=todo.tails)))
        live = Direct(unstored, self._periods()) if unstored else None
        try:
            return _with_listed_paths(_sources(self._spark, whole)), Stored(self, sound, live)
        except BaseException:
            if live is not None:
                live.close()
            raise

    def has(self, file: LogFile) -> bool:
        """True if the file is stored as it is now."""
        return is_as_it_was(file, self.seen.get(stem_of(file.name)))

    def windows(self) -> Windows:
        """Windows with the periods in all batches."""
        return Windows(self._frame("periods", self._spans))

    def _end(self, file: LogFile) -> int:
        known = self.seen.get(stem_of(file.name))
        return file.bytes if known is None else known.bytes

    def append(
        self,
        sources: Sequence[Source],
        seen: Sequence[Seen],
        names: dict[str, str],
    ) -> None:
        """Add one batch: the data of the sources, and what it covers. ``names`` are the files' by their
        paths.

        An unfinished batch, of this process or another, is overwritten.
        """
        number = self._spans[-1][1] + 1 if self._spans else 1
        of_stem = {each.stem: each.generation for each in seen}
        marks = self._spark.createDataFrame(
            [
                (path, stem, of_stem[stem])
                for path, name in names.items()
                if (stem := stem_of(name)) in of_stem
            ],
            "listed string, stem string, generation int",
        )
        direct = Direct(sources, self._periods())
        try:
            frames = {
                "rows": direct.rows,
                "parts": direct.parts.where("ok").drop("ok"),
                "bad": direct.bad(),
            }
            written = {name: _marked(frame, marks) for name, frame in frames.items()}
            written["periods"] = periods_of(direct.rows)
            self._write((number, number), written, list(seen))
        finally:
            direct.close()
        self._merge()

    def _write(self, span: Span, frames: dict[str, DataFrame], seen: list[Seen]) -> None:
        for name, frame in frames.items():
            few = frame.coalesce(1) if name in ("periods", "bad") else frame
            few.write.mode("overwrite").parquet(f"{self._place.url}/{_name(span)}/{name}")
            self._schemas[name] = frame.schema
        manifest = msgspec.json.encode(Manifest(self._format, seen)).decode()
        self._place.write(f"{_name(span)}/{MANIFEST}", manifest)
        self._spans = visible([*self._spans, span])
        self.seen.update((each.stem, each) for each in seen)

    def _merge(self) -> None:
        """Merge neighbours of one size into one folder, until no size has many."""
        while spans := to_merge(self._spans):
            seen: dict[str, Seen] = {}
            for span in spans:
                manifest = self._manifest(span)
                seen.update((each.stem, each) for each in (manifest.seen if manifest else ()))
            parts = self._frame("parts", spans)
            merged = {name: self._frame(name, spans) for name in ("rows", "bad")}
            whole = heartbeats.merge(parts, [*numbering.merge(), *_times()], *MARKS)
            merged["parts"] = whole.withColumn("batch", F.lit("merged"))
            merged["periods"] = self._frame("periods", spans).distinct()
            before = dict(self.seen)
            self._write((spans[0][0], spans[-1][1]), merged, list(seen.values()))
            self.seen = before
            for span in spans:
                self._place.remove(_name(span))

    def _frame(self, name: str, spans: Sequence[Span]) -> DataFrame:
        """The frame ``name`` of these batches."""
        paths = [escaped(f"{self._place.url}/{_name(span)}/{name}") for span in spans]
        if name not in self._schemas:
            self._schemas[name] = self._spark.read.parquet(paths[0]).schema
        return self._spark.read.schema(self._schemas[name]).parquet(*paths)

    def _periods(self) -> DataFrame | None:
        return self._frame("periods", self._spans) if self._spans else None

    def names(self) -> dict[tuple[str, str], str]:
        """Names of brokers by run and id, from their `meta` rows."""
        if not self._spans:
            return {}
        told = self._frame("rows", self._spans).where("kind = 'meta' and name is not null")
        found = told.groupBy("run", "node").agg(F.max_by("name", "us").alias("name")).collect()
        return {(row["run"], row["node"]): row["name"] for row in found}

    def of(self, name: str, files: Sequence[LogFile], *more: Column) -> list[DataFrame]:
        """The stored data of these files in their present generation, with their ``path``. Empty if there is
        no batch."""
        if not self._spans:
            return []
        now = [
            (seen.stem, seen.generation, file.path.replace("%", "%25"))
            for file in files
            if (seen := self.seen.get(stem_of(file.name))) is not None
        ]
        ours = self._spark.createDataFrame(now, "stem string, generation int, path string")
        stored = self._frame(name, self._spans).select("*", *more)
        return [stored.join(F.broadcast(ours), list(MARKS)).drop(*MARKS)]

    @property
    def batches(self) -> int:
        """Number of folders that are read."""
        return len(self._spans)


class Stored:
    """The stored data of some files, with incomplete last lines and damaged files, which are not stored."""

    def __init__(self, store: Store, files: Sequence[LogFile], live: Direct | None) -> None:
        self._live = live
        self._bad = store.of("bad", files)
        folder = F.regexp_extract("folder", "([^/]+)/[^/]+/[^/]+$", 1)
        whole = [
            parts.withColumns({"ok": F.lit(True), "batch": F.concat(folder, F.lit(" "), "batch")}).drop(
                "folder"
            )
            for parts in store.of("parts", files, F.col("_metadata.file_path").alias("folder"))
        ]
        self.windows = live.windows if live else store.windows()
        self._kept = union([*store.of("rows", files), *([live.rows] if live else [])]).persist()
        try:
            self.rows = by_column(self._kept)
        except BaseException:
            self._kept.unpersist()
            raise
        self.parts = union([*whole, *([live.parts] if live else [])]).persist()

    def bad(self) -> DataFrame:
        return union([*self._bad, *([self._live.bad()] if self._live else [])])

    def close(self) -> None:
        self._kept.unpersist()
        self.parts.unpersist()
        if self._live is not None:
            self._live.close()


def _sources(spark: SparkSession, todo: Plan) -> list[Source]:
    """One source for each format that occurs."""
    texts = [file for file in todo.files if not file.is_parquet]
    lines = [lines_of(spark, texts)] if texts else []
    if slices := [part for part in todo.slices if part.end > part.start]:
        lines.append(lines_of_slices(spark, slices))
    found: list[Source] = [Lines(union(lines))] if lines else []
    return found + tables_and_damage(spark, todo.files)


class _ListedPaths:
    """A source whose paths are in the form of `Store.of`: as in a listing, written as a URL."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def heartbeats(self) -> DataFrame:
        return self._with_paths(self._source.heartbeats())

    def others(self) -> DataFrame:
        return self._with_paths(self._source.others())

    def bad_heartbeats(self) -> DataFrame:
        return self._with_paths(self._source.bad_heartbeats())

    def _with_paths(self, rows: DataFrame) -> DataFrame:
        return rows.withColumn("path", F.replace(listed(F.col("path")), F.lit("%"), F.lit("%25")))


def _with_listed_paths(sources: Sequence[Source]) -> list[Source]:
    return [_ListedPaths(source) for source in sources]


def _marked(frame: DataFrame, marks: DataFrame) -> DataFrame:
    """With the stem and generation of its file instead of its path."""
    told = frame.withColumn("listed", listed(F.col("path"))).join(F.broadcast(marks), "listed")
    return told.drop("listed", "path")


def _times() -> list[Column]:
    return [F.min("first_us").alias("first_us"), F.max("last_us").alias("last_us")]


def _name(span: Span) -> str:
    return f"{span[0]:09d}-{span[1]:09d}"
