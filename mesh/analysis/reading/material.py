"""The contents of files, each by itself: rows, heartbeats by window, and lines that are not rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql import functions as F

from mesh.analysis.made import by_column
from mesh.analysis.reading import heartbeats, numbering
from mesh.analysis.reading.sources import heartbeats_of, ids_are_sound, union
from mesh.eventlog.windows import PERIODS, window_ns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mesh.analysis.reading.sources import Source

PERIOD_S: Final = 1.0
"""Used if no `meta` row has a period."""
BOOT: Final = ("run", "node", "boot")


class Material(Protocol):
    """Input for the tables of the logs. Every row has the ``path`` of its file."""

    @property
    def rows(self) -> DataFrame:
        """Valid rows that are not heartbeats, and heartbeats in another form than a broker writes. They are
        computed once."""
        ...

    @property
    def parts(self) -> DataFrame:
        """Heartbeats by file and window, with their numbers and wall times. ``ok`` marks valid ones. Only
        rows with different values of ``batch`` may be of one file and window."""
        ...

    @property
    def windows(self) -> Windows: ...

    def bad(self) -> DataFrame:
        """``path``, ``problem`` and ``raw`` of the lines that are not rows."""
        ...

    def close(self) -> None:
        """Release what Spark keeps for it."""
        ...


class Direct:
    """Read directly from the sources, and kept by Spark while in use."""

    def __init__(self, sources: Sequence[Source], periods: DataFrame | None = None) -> None:
        self._sources = sources
        self._bad: DataFrame | None = None
        self._kept = union([source.others() for source in sources]).persist()
        try:
            self._others = by_column(self._kept)
            self.rows = self._others.where(F.col("problem").isNull())
            told = periods_of(self.rows)
            self.windows = Windows(told if periods is None else told.unionByName(periods))
        except BaseException:
            self._kept.unpersist()
            raise
        self.parts = self._reduced().persist()

    def _reduced(self) -> DataFrame:
        beats = [source.heartbeats() for source in self._sources] + [heartbeats_of(self.rows)]
        numbers = [*numbering.count(), F.min("us").alias("first_us"), F.max("us").alias("last_us")]
        parts = union(
            [
                heartbeats.reduce(self.windows.of(each), numbers, "path", "ok").withColumn(
                    "batch", F.lit(f"source {number}")
                )
                for number, each in enumerate(beats)
            ]
        )
        return parts.withColumn("ok", F.col("ok") & ids_are_sound())

    def bad(self) -> DataFrame:
        bad = self._others.where(F.col("problem").isNotNull()).select("path", "problem", "raw")
        if self.parts.where(~F.col("ok")).isEmpty():
            return bad
        self._bad = union([bad, *(source.bad_heartbeats() for source in self._sources)]).persist()
        return self._bad

    def close(self) -> None:
        for frame in (self.parts, self._kept, self._bad):
            if frame is not None:
                frame.unpersist()


class Windows:
    """The lengths of the windows of boots, from the periods in their `meta` rows."""

    def __init__(self, periods: DataFrame) -> None:
        boots = periods.groupBy(*BOOT).agg(F.max("period_s").alias("period_s"))
        length = F.round(F.col("period_s") * PERIODS * 1e9).cast("long").alias("window_ns")
        self._boots = boots.select(*BOOT, length)
        found = self._boots.groupBy("window_ns").count().collect()
        found.sort(key=lambda row: (-row["count"], row["window_ns"]))
        self._usual = found[0]["window_ns"] if found else window_ns(PERIOD_S)
        self._all_alike = len(found) <= 1

    def of(self, beats: DataFrame) -> DataFrame:
        """Heartbeats with ``window_ns``. A boot without a period gets the most frequent one."""
        usual = F.lit(self._usual).cast("long")
        if self._all_alike:
            return beats.withColumn("window_ns", usual)
        joined = beats.join(F.broadcast(self._boots), list(BOOT), "left")
        return joined.withColumn("window_ns", F.coalesce("window_ns", usual))


def periods_of(rows: DataFrame) -> DataFrame:
    """``run``, ``node``, ``boot`` and ``period_s`` from `meta` rows."""
    told = rows.where((F.col("kind") == "meta") & F.col("period_s").isNotNull())
    return told.select(*BOOT, "period_s").distinct()
