"""Spark reads the same content as plain Python, whatever the files look like."""

from __future__ import annotations

import gzip
import json
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from mesh.analysis.reading import logs as logs_module
from mesh.analysis.reading.finding import NoLogs
from mesh.analysis.reading.logs import Logs, read_logs
from mesh.analysis.reading.schema import row_type
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load
from tests.mesh.analysis.oracle import reading as oracle
from tests.mesh.analysis.synthetic import Broker, Mesh, demo_mesh, shuffle_logs, write_logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SMALL = Mesh(
    [Broker("alpha", [(0.0, 9.0, "leave")]), Broker("beta", [(0.4, 5.3, "kill"), (6.1, 9.6, "leave")])]
)


def plain(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows as the oracle has them: instants in microseconds, in order."""
    times = [field.name for field in frame.schema.fields if field.dataType.simpleString() == "timestamp"]
    rows = frame.withColumns({name: F.unix_micros(name) for name in times}).collect()
    return sorted((row.asDict(recursive=True) for row in rows), key=in_order)


def in_order(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def expected(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(table, key=in_order)


@pytest.fixture
def read(spark: SparkSession) -> Any:
    opened: list[Logs] = []

    def reading(place: Path | str) -> Logs:
        opened.append(read_logs(spark, str(place)))
        return opened[-1]

    yield reading
    for logs in opened:
        logs.close()


Read = Callable[[Path | str], Logs]


def test_files_and_heartbeats_are_those_of_a_plain_reader(read: Read, tmp_path: Path) -> None:
    write_logs(demo_mesh(), tmp_path)
    logs = read(tmp_path)
    assert plain(logs.files) == expected(oracle.files(tmp_path))
    assert logs.files.schema["first"].dataType == LongType(), "as all frames between packages have instants"
    assert plain(logs.heard) == expected(oracle.heard(tmp_path))
    assert logs.quarantine.count() == 1
    assert {row.problem for row in logs.quarantine.collect()} == {"cut off, or not a JSON object"}


def test_bad_lines_cost_only_themselves_and_are_kept_with_their_reasons(read: Read, tmp_path: Path) -> None:
    write_logs(SMALL, tmp_path)
    (path, *_) = sorted(tmp_path.glob("alpha*"))
    lines = path.read_text().splitlines()
    beats = [line for line in lines if '"kind":"hb"' in line][:6]
    rest = [line for line in lines if line not in beats]
    bad = {
        beats[0].replace('"v":1', '"v":2'): "unknown version",
        beats[1].replace('"hb_seq":', '"hb_seq":"x').replace(',"rtt', '","rtt'): "a value has the wrong type",
        beats[2].replace('"src":"', '"src":"Z'): "missing or malformed src",
        beats[3] + beats[4]: "two rows on one line",
        beats[5][:-20]: "cut off, or not a JSON object",
        rest[-1].replace('"kind":"meta"', '"kind":"metal"'): "unknown kind",
        "[]": "cut off, or not a JSON object",
    }
    path.write_text("\n".join([*rest[:-1], *bad, ""]))
    logs = read(tmp_path)
    assert {
        row.line: row.problem for row in logs.quarantine.where(F.col("file") == path.name).collect()
    } == bad
    assert plain(logs.files) == expected(oracle.files(tmp_path))
    assert plain(logs.heard) == expected(oracle.heard(tmp_path))


INFINITE = "infinite"
HUGE = 2**63 - 1
BEYOND: list[tuple[str, str, Any]] = [
    ("hb", "hb_seq", -HUGE - 1),
    ("hb", "mono_ns", HUGE),
    ("hb", "ts", "0000-01-01T00:00:00Z"),
    ("hb", "seq", 2**53),
    ("meta", "ts", "9999-12-31T00:00:00Z"),
    ("meta", "period_s", INFINITE),
    ("meta", "stats_s", 0),
    ("stats", "loop_late_ms_max", INFINITE),
    ("stats", "loop_late_ms_p50", 1e307),
    ("stats", "published", HUGE),
    ("stats", "drops", {"queue full": HUGE}),
    ("stats", "links", [{"peer": "0" * 16, "msgs_out": HUGE}]),
]


def test_numbers_beyond_all_bounds_cost_only_their_rows(read: Read, tmp_path: Path) -> None:
    """Each of these overflowed a sum or a product, or was infinite, and ended the whole analysis."""
    write_logs(SMALL, tmp_path)
    before = plain(read(tmp_path).heard)
    (path, *_) = sorted(tmp_path.glob("alpha*"))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    of_kind = {row["kind"]: row for row in rows}
    bad = {
        json.dumps({**of_kind[kind], name: value}, separators=(",", ":")).replace(
            f'"{INFINITE}"', "1e400"
        ): name
        for kind, name, value in BEYOND
    }
    last = {**of_kind["meta"], "boot": "f" * 16, "seq": 2**43, "mono_ns": 10**18}
    (tmp_path / "bad.jsonl").write_text("\n".join([*bad, json.dumps(last), ""]))
    logs = read(tmp_path)
    found = logs.quarantine.where(F.col("file") == "bad.jsonl").collect()
    assert {row.line: row.problem for row in found} == {
        line: f"missing or malformed {name}" for line, name in bad.items()
    }
    assert plain(logs.files) == expected(oracle.files(tmp_path))
    assert plain(logs.heard) == before
    assert "f" * 16 in {row["boot"] for row in plain(logs.boots_raw)}


def test_order_copies_and_names_of_files_change_nothing_that_was_heard(read: Read, tmp_path: Path) -> None:
    write_logs(demo_mesh(), tmp_path / "one")
    shuffle_logs(tmp_path / "one", tmp_path / "other", seed=3)
    one, other = read(tmp_path / "one"), read(tmp_path / "other")
    assert plain(other.heard) == plain(one.heard)
    for name in ("mem", "link", "stats", "meta"):
        assert plain(getattr(other, name)) == plain(getattr(one, name)), name
    assert plain(other.files) == expected(oracle.files(tmp_path / "other"))


def test_heartbeats_of_one_window_in_two_spellings_are_one_row(read: Read, tmp_path: Path) -> None:
    """Each spelling has its own reader, so the parts of a window have to be merged even within a file."""
    write_logs(SMALL, tmp_path / "one")
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "one").iterdir():
        lines = path.read_text().splitlines()
        spelled = [
            json.dumps(json.loads(line)) if n % 2 and line.endswith("}") else line
            for n, line in enumerate(lines)
        ]
        (tmp_path / "other" / path.name).write_text("\n".join(spelled) + "\n")
    assert plain(read(tmp_path / "other").heard) == plain(read(tmp_path / "one").heard)


def test_compressed_files_and_folders_in_folders_are_read(read: Read, tmp_path: Path) -> None:
    write_logs(SMALL, tmp_path / "a")
    whole = plain(read(tmp_path / "a").heard)
    for path in (tmp_path / "a").iterdir():
        target = tmp_path / "b [x]" / "50%+1" / f"{path.name}.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(path.read_bytes()))
    logs = read(tmp_path / "b [x]")
    assert plain(logs.heard) == whole
    assert plain(logs.files) == expected(oracle.files(tmp_path / "b [x]"))
    assert plain(read(f"file://{tmp_path}/a").heard) == whole


def test_logs_are_read_from_another_file_system_of_spark(
    spark: SparkSession, read: Read, tmp_path: Path
) -> None:
    """Hadoop's viewfs has a scheme of its own, so none of its URLs is a path of this machine."""
    write_logs(SMALL, tmp_path / "logs")
    name = f"logs-{tmp_path.name}"
    spark.conf.set(f"fs.viewfs.mounttable.{name}.link./there", (tmp_path / "logs").as_uri())
    logs = read(f"viewfs://{name}/there")
    assert plain(logs.heard) == plain(read(tmp_path / "logs").heard)
    assert plain(logs.files) == expected(oracle.files(tmp_path / "logs"))


def parquet_of(spark: SparkSession, logs: Path, folder: Path) -> bytes:
    """The rows of logs as the bytes of one Parquet file."""
    rows = spark.read.schema(row_type()).json(str(logs)).where("v is not null")
    rows.withColumn("ts", F.to_timestamp("ts")).coalesce(1).write.parquet(str(folder))
    (path,) = folder.glob("*.parquet")
    return path.read_bytes()


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def before_the_cut(data: bytes) -> list[bytes]:
    """The whole lines that are readable in compressed data that end early."""
    return zlib.decompressobj(wbits=31).decompress(cut(data)).split(b"\n")[:-1]


def test_damaged_files_cost_only_what_cannot_be_read_of_them(
    spark: SparkSession, read: Read, tmp_path: Path
) -> None:
    """One of them ended the whole analysis with Spark's own text."""
    write_logs(demo_mesh(), tmp_path / "plain")
    one, *rest = sorted(path for path in (tmp_path / "plain").iterdir() if path.suffix == ".jsonl")
    other = rest[0]
    whole, table = gzip.compress(one.read_bytes()), parquet_of(spark, other, tmp_path / "table")
    for path in (one, other):
        path.unlink()
    folders = tmp_path / "logs", tmp_path / "without"
    for folder in folders:
        shutil.copytree(tmp_path / "plain", folder)
    damaged = {
        "50%+1 [x]/cut.jsonl.gz": (cut(whole), "its compressed data end early"),
        "no gzip.jsonl.gz": (b"half a page\n" * 9, "it is not gzip data, or other data follow"),
        "cut.parquet": (cut(table), "it is cut off, or not Parquet"),
    }
    (folders[0] / "50%+1 [x]").mkdir()
    for name, (data, _) in damaged.items():
        (folders[0] / name).write_bytes(data)
    readable = before_the_cut(whole)
    (folders[1] / "cut.jsonl").write_bytes(b"".join(line + b"\n" for line in readable))

    logs, without = read(folders[0]), read(folders[1])

    assert len(readable) > 100
    for name in ("heard", "mem", "stats", "meta", "boots_raw"):
        assert plain(getattr(logs, name)) == plain(getattr(without, name)), name
    files = {row["file"]: row for row in plain(logs.files)}
    assert {name: row["damage"] for name, row in files.items() if row["damage"]} == {
        name: wrong for name, (_, wrong) in damaged.items()
    }
    counted = {name: (files[name]["rows"], files[name]["corrupt"], files[name]["lines"]) for name in damaged}
    rows = len(readable)
    assert counted == dict(zip(damaged, [(rows, 1, rows + 1), (0, 1, 1), (0, 1, 1)], strict=True))
    found = logs.quarantine.where("line is null").collect()
    assert {row.file: row.problem for row in found} == {name: wrong for name, (_, wrong) in damaged.items()}


def pages_of(spark: SparkSession, path: Path, column: str) -> range:
    """The bytes of a Parquet file that are data pages of a column in its only row group."""
    hadoop, parquet = spark._jvm.org.apache.hadoop, spark._jvm.org.apache.parquet.hadoop
    there = hadoop.fs.Path(path.as_uri())
    conf = spark._jsc.hadoopConfiguration()
    reader = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(there, conf))
    (block,) = reader.getFooter().getBlocks()
    reader.close()
    (found,) = [each for each in block.getColumns() if each.getPath().toDotString() == column]
    return range(found.getFirstDataPageOffset(), found.getStartingPos() + found.getTotalSize())


@pytest.mark.parametrize("header_of", [None, "host"])
def test_a_table_that_fails_outside_its_reader_is_left_out(
    spark: SparkSession, read: Read, tmp_path: Path, header_of: str | None
) -> None:
    """Spark decodes texts where a query uses them. No option of a reader passes over an error there. The
    lenient reader stops at a broken header before it, but heartbeats do not use that column."""
    write_logs(SMALL, tmp_path / "logs")
    before = read(tmp_path / "logs")
    table = tmp_path / "logs" / "a.parquet"
    rows = spark.read.schema(row_type()).json(str(tmp_path / "logs")).where("v is not null").orderBy("node")
    rows = rows.withColumn("ts", F.to_timestamp("ts")).coalesce(1)
    rows.write.option("compression", "none").parquet(str(tmp_path / "table"))
    (path,) = (tmp_path / "table").glob("*.parquet")
    data = bytearray(path.read_bytes())
    data[pages_of(spark, path, "node")[-1]] = 0xFF  # the last run repeats text 255 of two
    if header_of is not None:
        data[pages_of(spark, path, header_of)[0]] = 0xFF
    table.write_bytes(data)

    logs = read(tmp_path / "logs")

    assert plain(logs.heard) == plain(before.heard)
    (row,) = [row for row in plain(logs.files) if row["damage"]]
    assert (row["file"], row["damage"]) == (table.name, "its Parquet data are damaged")
    assert (row["rows"], row["corrupt"]) == (0, 1)


def test_damage_is_found_on_another_file_system_of_spark(
    spark: SparkSession, read: Read, tmp_path: Path
) -> None:
    write_logs(SMALL, tmp_path / "logs")
    first, *_ = sorted((tmp_path / "logs").iterdir())
    whole = gzip.compress(first.read_bytes())
    first.unlink()
    (tmp_path / "logs" / "alpha 1.jsonl.gz").write_bytes(cut(whole))
    name = f"damaged-{tmp_path.name}"
    spark.conf.set(f"fs.viewfs.mounttable.{name}.link./there", (tmp_path / "logs").as_uri())
    logs = read(f"viewfs://{name}/there")
    (row,) = [row for row in plain(logs.files) if row["damage"]]
    assert (row["file"], row["rows"], row["corrupt"]) == ("alpha 1.jsonl.gz", len(before_the_cut(whole)), 1)
    assert plain(logs.heard) == plain(read(tmp_path / "logs").heard)


def test_a_table_with_columns_of_other_types_is_no_event_log(
    spark: SparkSession, read: Read, tmp_path: Path
) -> None:
    write_logs(SMALL, tmp_path / "logs")
    before = plain(read(tmp_path / "logs").heard)
    strange = spark.range(9).selectExpr("'x' as v", "id * 2.5 as mono_ns").coalesce(1)
    strange.write.parquet(str(tmp_path / "logs" / "prices"))
    logs = read(tmp_path / "logs")
    (row,) = [row for row in plain(logs.files) if row["damage"]]
    assert row["damage"] == "a column has another type than in an event log"
    assert plain(logs.heard) == before


def test_sound_files_are_not_examined(read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would read them once more."""
    monkeypatch.setattr(logs_module, "find_damage", lambda *_: pytest.fail("they are sound"))
    write_logs(SMALL, tmp_path)
    for path in list(tmp_path.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert plain(read(tmp_path).files)


@pytest.mark.parametrize("form", ["lines", "parquet"])
def test_heartbeats_are_reduced_without_a_sort(
    spark: SparkSession, read: Read, tmp_path: Path, form: str
) -> None:
    """A sort of all heartbeats takes five to ten times as long as a scan of them."""
    write_logs(SMALL, tmp_path / "lines")
    if form == "parquet":
        rows = spark.read.schema(row_type()).json(str(tmp_path / "lines"))
        rows.withColumn("ts", F.to_timestamp("ts")).write.parquet(str(tmp_path / "parquet"))
    parts = read(tmp_path / form).material.parts
    plan = parts._jdf.queryExecution().executedPlan().toString()
    assert "HashAggregate" in plan and "Scan" in plan
    assert "Sort" not in plan


def test_a_file_of_which_no_line_came_is_told(read: Read, tmp_path: Path) -> None:
    """A worker that does not have a file takes it for empty. A broker was missing without a word."""
    write_logs(SMALL, tmp_path)
    (tmp_path / "gone-0.jsonl").write_text("\n\n")
    (tmp_path / "empty-0.jsonl").touch()
    told = {row["file"]: row["damage"] for row in plain(read(tmp_path).files)}
    assert told.pop("gone-0.jsonl") == logs_module.ABSENT
    assert "empty-0.jsonl" in told and set(told.values()) == {None}


def test_an_empty_file_of_a_format_that_has_a_header_is_damaged(read: Read, tmp_path: Path) -> None:
    """Spark reads no row of it without an error. Sound gzip or Parquet data of no row have bytes."""
    write_logs(SMALL, tmp_path)
    for name in ("a-0.jsonl.gz", "b.parquet", "c-0.jsonl"):
        (tmp_path / name).touch()
    told = {row["file"]: row["damage"] for row in plain(read(tmp_path).files)}
    assert {name: damage for name, damage in told.items() if damage} == {
        "a-0.jsonl.gz": "its compressed data end early",
        "b.parquet": "it is cut off, or not Parquet",
    }
    assert "c-0.jsonl" in told


def test_errors_distinguish_no_folder_no_logs_and_empty_logs(read: Read, tmp_path: Path) -> None:
    with pytest.raises(NoLogs, match="there is no folder"):
        read(tmp_path / "missing")
    with pytest.raises(NoLogs, match="holds no event log"):
        read(tmp_path)
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(NoLogs, match="the only event log in .* is empty"):
        read(tmp_path)


def test_a_reading_that_fails_leaves_nothing_for_the_next_one(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next reading in the same session got the rows of before the files had grown."""
    write_logs(SMALL, tmp_path)
    path = next(path for path in sorted(tmp_path.iterdir()) if path.suffix == ".jsonl")
    with monkeypatch.context() as broken, pytest.raises(ZeroDivisionError):
        broken.setattr(logs_module, "_files", lambda *_: 1 / 0)
        read(tmp_path)
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    last = next(row for row in reversed(rows) if row["kind"] == "mem")
    grown = last | {"seq": rows[-1]["seq"] + 1, "mono_ns": rows[-1]["mono_ns"] + 1}
    with path.open("a") as file:
        file.write(json.dumps(grown, separators=(",", ":")) + "\n")
    found = plain(read(tmp_path).mem.where(F.col("node") == last["node"]))
    assert len(found) == 1 + sum(row["kind"] == "mem" for row in rows)


def test_a_boot_says_how_it_began_and_ended(read: Read, tmp_path: Path) -> None:
    write_logs(SMALL, tmp_path)
    boots = {row["boot"]: row for row in plain(read(tmp_path).boots_raw)}
    alpha, beta = SMALL.brokers
    left, killed, again = (boots[each] for each in (alpha.boot_id(0), beta.boot_id(0), beta.boot_id(1)))
    assert [row["name"] for row in (left, killed, again)] == ["alpha", "beta", "beta"]
    assert [row["reason"] for row in (left, killed, again)] == ["leave", None, "leave"]
    assert [row["torn"] for row in (left, killed, again)] == [False, True, False]
    assert left["first_ns"] == 0 and left["stopped_ns"] == left["last_ns"] == 9_002_000_000
    assert left["left_ns"] == 9_000_000_000 and killed["left_ns"] is None
    assert all(row["rows"] == row["last_seq"] and row["first_seq"] == 1 for row in boots.values())
    assert left["last_us"] - left["first_us"] == 9_002_000
    assert left["period_s"] == 1.0 and left["run"] == "mangrove" and left["node"] == alpha.id


def test_missing_rows_in_the_middle_of_a_boot_are_a_hole(read: Read, tmp_path: Path) -> None:
    """A file that is gone, and damaged lines. What is missing at either end of a log is no hole."""
    write_logs(SMALL, tmp_path)
    assert plain(read(tmp_path).holes) == []
    (path,) = tmp_path.glob("alpha*")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [json.dumps(row) for row in rows]
    path.unlink()
    for number, (first, last) in enumerate([(1, 6), (6, 9), (13, 15), (17, 21)]):
        (tmp_path / f"part-{number}.jsonl").write_text("\n".join([*lines[first:last], ""]))

    found = plain(read(tmp_path).holes)

    assert found == expected(
        [
            {
                **{name: rows[0][name] for name in ("run", "node", "boot")},
                "start_ns": rows[before]["mono_ns"],
                "end_ns": rows[after]["mono_ns"],
                "rows": after - before - 1,
            }
            for before, after in ((8, 13), (14, 17))
        ]
    )


def test_two_runs_in_a_folder_and_repeated_numbers_are_reported(read: Read, tmp_path: Path) -> None:
    """One row of each number is read, whatever the order of files. Both runs may use the same ids."""
    write_logs(SMALL, tmp_path / "one")
    write_logs(replace(SMALL, run="other"), tmp_path / "two")
    (path,) = (tmp_path / "one").glob("alpha*")
    lines = path.read_text().splitlines()
    number = next(place for place, line in enumerate(lines) if '"msg":"answer"' in line)
    changed = lines[number].replace('"hb_seq":', '"hb_seq":9')
    (tmp_path / "one" / "copy.jsonl").write_text("\n".join([lines[0], changed, lines[-1], ""]))
    (tmp_path / "two" / "mixed.jsonl").write_text(
        lines[0] + "\n" + lines[0].replace("mangrove", "other") + "\n"
    )
    first = read(tmp_path)
    files = plain(first.files)
    # The oracle may choose a different one: it keeps the first, the reader the one with the lowest hash.
    counted, known = (
        {in_order({**row, "conflicts": 0}) for row in each} for each in (files, oracle.files(tmp_path))
    )
    assert counted == known
    assert {row["run"] for row in files if row["file"] == "two/mixed.jsonl"} == {"mangrove", "other"}
    assert sum(row["conflicts"] for row in files) == 1 and sum(row["duplicates"] for row in files) == 5
    assert {row["run"] for row in plain(first.boots_raw)} == {"mangrove", "other"}
    (tmp_path / "one" / "copy.jsonl").rename(tmp_path / "a.jsonl")
    assert plain(read(tmp_path).heard) == plain(first.heard)


def test_parquet_and_lines_of_the_same_rows_are_the_same(
    read: Read, spark: SparkSession, tmp_path: Path
) -> None:
    write_logs(SMALL, tmp_path / "lines")
    rows = [msgspec.json.decode(line.text) for line in oracle.read_lines(tmp_path / "lines") if line.row]
    fields = [field for field in row_type().fields]
    frame = spark.createDataFrame([(json.dumps(row),) for row in rows], "line string")
    whole = frame.select(F.inline(F.array(F.from_json("line", StructType(fields)))))
    typed = whole.withColumn("ts", F.to_timestamp("ts"))
    typed.write.partitionBy("kind").parquet(str(tmp_path / "split"))
    typed.write.parquet(str(tmp_path / "one"))
    lines = read(tmp_path / "lines")
    for folder in ("split", "one"):
        tables = read(tmp_path / folder)
        for name in ("heard", "mem", "link", "stats", "meta"):
            assert plain(getattr(tables, name)) == plain(getattr(lines, name)), (folder, name)
        assert sum(row["rows"] for row in plain(tables.files)) == len(rows)


def test_logs_of_summaries_and_of_each_heartbeat_of_one_run_are_the_same(read: Read, tmp_path: Path) -> None:
    """Brokers that leave lose no window. The summary of a window equals what its single rows give."""
    for way in ("each", "summary"):
        play = Play(load("split-and-heal"), seed=7, out=str(tmp_path / way), log_heartbeats=way)
        assert play.run().ok
    summary = read(tmp_path / "summary")
    assert plain(summary.heard) == expected(oracle.summed_up(tmp_path / "summary"))
    assert plain(summary.heard) == expected(oracle.heard(tmp_path / "each"))
    each = read(tmp_path / "each")
    assert plain(each.heard) == plain(summary.heard)
    columns = ("subject", "to_state", "mono_ns", "node")
    assert plain(each.mem.select(*columns)) == plain(summary.mem.select(*columns))
    assert {row["op"] for row in plain(summary.truth)} >= {"start", "cut", "end", "stop"}
