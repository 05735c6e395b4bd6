"""The event log's rows as Spark columns, and what makes a line one of them.

The schema is never inferred: a line that does not fit goes to quarantine with its file and a reason, and the
others are read all the same. Spark's JSON reader already refuses strings for numbers and fractions for
integers; it takes numbers for strings, which the patterns of ids and times below catch.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

VERSION: Final = 1
QUARANTINE: Final = "quarantine"
"""What stands in the ``kind`` column of a line that is not a row."""

ID: Final = "^[0-9a-f]{16}$"
TIME: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$"
STATES: Final = "'unknown', 'alive', 'suspect', 'dead', 'left'"
NOT_JSON: Final = "cut off, or not a JSON object"
GLUED: Final = r'\}\s*\{\s*"v"\s*:'
"""Two rows on one line: the reader would take the first and drop the second without a word."""

# What must hold of a row, in SQL, by the column to blame; null counts as false. The first that fails is the
# reason.
COMMON: Final = {
    "run": "length(run) > 0",
    "ts": f"ts rlike r'{TIME}' and try_to_timestamp(ts) is not null",
    "node": f"node rlike '{ID}'",
    "boot": f"boot rlike '{ID}'",
    "seq": "seq > 0",
    "kind": "length(kind) > 0",
}
NEEDED: Final[dict[str, dict[str, str]]] = {
    "meta": {"op": "op in ('start', 'stop')"},
    "hb": {"msg": "msg in ('survey', 'answer')", "src": f"src rlike '{ID}'"},
    "mem": {
        "subject": f"subject rlike '{ID}'",
        "subject_boot": f"subject_boot rlike '{ID}'",
        "subject_inc": "subject_inc >= 0",
        "from_state": f"from_state in ({STATES})",
        "to_state": f"to_state in ({STATES})",
    },
    "link": {"peer": f"peer rlike '{ID}'", "state": "state in ('up', 'down')"},
    "stats": {
        "published": "published >= 0",
        "delivered": "delivered >= 0",
        "dropped": "dropped >= 0",
        "links": f"links is null or forall(links, link -> coalesce(link.peer rlike '{ID}', false))",
    },
    "truth": {},
}

_STRINGS = (
    "run ts node boot kind op name host version url reason msg src dst subject subject_name subject_boot"
)
_LINK_COUNTERS = ("msgs_in", "msgs_out", "bytes_in", "bytes_out", "dropped", "lost", "rtt_us")


def _field(name: str, kind: LongType | StringType | DoubleType | IntegerType) -> StructField:
    return StructField(name, kind)


LINK: Final = StructType(
    [_field("peer", StringType()), *(_field(name, LongType()) for name in _LINK_COUNTERS)]
)

QUEUE: Final = StructType(
    [
        _field("name", StringType()),
        *(
            _field(name, LongType())
            for name in ("waiting", "bytes", "consumers", "in_flight", "to_redeliver", "delivered")
        ),
        *(_field(name, LongType()) for name in ("redelivered", "settled", "retried", "buried")),
        _field("oldest_s", DoubleType()),
    ]
)
JOURNAL: Final = StructType(
    [
        _field("failing", StringType()),
        *(_field(name, LongType()) for name in ("stored", "duplicates", "refused", "commits")),
        *(_field(name, DoubleType()) for name in ("commit_ms_p50", "commit_ms_p99")),
    ]
)

ROW: Final = StructType(
    [
        _field("v", IntegerType()),
        *(_field(name, StringType()) for name in _STRINGS.split()),
        *(_field(name, StringType()) for name in ("from_state", "to_state", "via", "peer", "dir", "state")),
        *(
            _field(name, LongType())
            for name in ("mono_ns", "inc", "seq", "pid", "hb_seq", "rtt_us", "subject_inc", "rss_bytes")
        ),
        *(_field(name, LongType()) for name in ("published", "delivered", "dropped")),
        *(
            _field(name, DoubleType())
            for name in ("period_s", "deadline_s", "stats_s", "loop_late_ms_p50", "loop_late_ms_max")
        ),
        StructField("links", ArrayType(LINK)),
        StructField("drops", MapType(StringType(), LongType())),
        StructField("queues", ArrayType(QUEUE)),
        StructField("journal", JOURNAL),
    ]
)
"""Every column of every kind, in one struct; a row has nulls where its kind has no such column."""


def read_lines(spark: SparkSession, paths: list[str], root: str) -> DataFrame:
    """Lines of text with the file they stand in, named from ``root`` on."""
    path = F.expr("url_decode(replace(_metadata.file_path, '+', '%2B'))")
    file = F.regexp_replace(path, "^file:/+", "/")
    return (
        spark.read.text(paths)
        .select("value", F.substr(file, F.lit(len(root) + 2)).alias("file"))
        .where(F.trim("value") != "")
    )


def parse(lines: DataFrame) -> DataFrame:
    """Rows: the columns of `ROW`, ``file``, ``copy`` (1: the first of equals); bad ones have ``problem``."""
    corrupt = StructType([*ROW.fields, StructField("_corrupt", StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    parsed = lines.withColumn("row", F.from_json("value", corrupt, options)).select("file", "value", "row.*")
    checked = parsed.withColumn("problem", _problem()).select(
        "file",
        *(field.name for field in ROW.fields if field.name not in ("kind", "ts")),
        F.when(F.col("problem").isNull(), F.try_to_timestamp("ts")).alias("ts"),
        F.when(F.col("problem").isNull(), F.col("kind")).otherwise(QUARANTINE).alias("kind"),
        F.when(F.col("problem").isNotNull(), F.col("value")).alias("raw"),
        "problem",
    )
    good = F.col("problem").isNull()
    number = F.when(good, F.col("seq")).otherwise(F.xxhash64("file", "raw"))
    same = Window.partitionBy(*(F.when(good, F.col(name)) for name in ("run", "node", "boot")), number)
    in_order = same.orderBy("ts", "kind", "file", "raw")
    differs = (F.col("ts") != F.lag("ts").over(in_order)) | (F.col("kind") != F.lag("kind").over(in_order))
    return checked.withColumn("copy", F.when(good, F.row_number().over(in_order)).otherwise(1)).withColumn(
        "conflict", good & F.coalesce(differs, F.lit(False))
    )


def _problem() -> Column:
    """The first reason why a line is no row, else null."""
    text = F.trim("value")
    broken = F.col("_corrupt").isNotNull()
    problem = (
        F.when(~(text.startswith("{") & text.endswith("}")), NOT_JSON)
        .when(text.rlike(GLUED), "two rows on one line")
        .when(F.col("v") != VERSION, "unknown version")
        .when(broken & F.try_parse_json("value").isNull(), NOT_JSON)
        .when(broken, "a value has the wrong type")
        .when(F.col("v").isNull(), "no version")
    )
    for name, good in COMMON.items():
        problem = problem.when(~F.expr(f"coalesce({good}, false)"), f"missing or malformed {name}")
    problem = problem.when(~F.col("kind").isin(*NEEDED), "unknown kind")
    for kind, checks in NEEDED.items():
        for name, good in checks.items():
            bad = ~F.expr(f"coalesce({good}, false)")
            problem = problem.when((F.col("kind") == kind) & bad, f"missing or malformed {name}")
    return problem
