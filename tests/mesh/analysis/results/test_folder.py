"""The folder of results: the current one, the kept ones, its owner, and the errors."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")

from mesh.analysis.reading.finding import NoLogs, escaped
from mesh.analysis.results import folder
from mesh.analysis.results.folder import (
    DISK,
    KEPT,
    Current,
    LocalPlace,
    OutputError,
    Results,
    check_output,
    open_results,
    result_id,
    writing,
)
from mesh.errors import Locked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDS = [f"{number:016x}" for number in range(KEPT + 2)]


def test_the_newest_result_is_current_and_the_oldest_goes() -> None:
    current = Current()
    assert current.id is None
    for id in IDS:
        current = current.next(id)
    assert current.kept == tuple(reversed(IDS[-KEPT:]))
    assert current.next(IDS[-2]).kept == (IDS[-2], IDS[-1], *reversed(IDS[2:-2]))


def test_a_current_file_is_read_as_written_and_the_highest_number_counts() -> None:
    first = Current().next(IDS[0])
    second = first.next(IDS[1])
    assert Current.of(f"{second.as_json()}\n{first.as_json()}\n") == second
    assert json.loads(second.as_json()) == {"format": 1, "no": 2, "current": IDS[1], "kept": IDS[1::-1]}


OTHERS = ["no json", "[]", "{}", '{"format": 2, "no": 1, "kept": []}']


@pytest.mark.parametrize("text", OTHERS)
def test_another_programs_file_is_no_current_file(text: str) -> None:
    with pytest.raises(ValueError):
        Current.of(text)


def test_a_text_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = LocalPlace(tmp_path)
    place.write("current.json", "before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError) as raised, writing("out"):
        place.write("current.json", "after")
    assert raised.value.code == 74
    assert str(raised.value) == (
        "--out out cannot be written: No space left on device; the current result is unchanged"
    )
    assert place.read("current.json") == "before"
    assert place.names() == {"current.json"}


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, 74), (errno.EACCES, 77), (errno.EROFS, 77), (errno.ENOTDIR, 73)]
)
def test_each_refusal_has_its_code(number: int, code: int) -> None:
    with pytest.raises(OutputError) as raised, writing("out"):
        raise OSError(number, os.strerror(number))
    assert raised.value.code == code


def test_a_folder_of_this_machine_is_named_as_a_path() -> None:
    with pytest.raises(OutputError, match="^--out /data/results cannot be written"):
        with writing(LocalPlace(Path("/data/results")).url):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("said", ["java.io.IOException: No space left on device", "Permission denied: a"])
def test_a_refusal_by_spark_is_reported_like_one_of_the_system(said: str) -> None:
    """A disk that was full while a task wrote ended mesh analyze with 1, and with the name of a class."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    for kind in (PySparkException, Py4JError):
        with pytest.raises(OutputError, match="--out out cannot be written: (No space|Permission)"):
            with writing("out"):
                raise kind(said)


@pytest.mark.parametrize(
    ("out", "temporary", "both"), [("", "", False), ("", "/proc", True), ("s3a://b/out", "", True)]
)
def test_a_full_disk_of_spark_is_not_taken_for_that_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, temporary: str, both: bool
) -> None:
    """A full TMPDIR was told as a full --out. Java does not say which file it was."""
    from pyspark.errors import PySparkException

    monkeypatch.setattr(tempfile, "gettempdir", lambda: temporary or str(tmp_path))
    with pytest.raises(OutputError, match="No space left on device") as raised:
        with writing(out or str(tmp_path / "new")):
            raise PySparkException("java.io.IOException: No space left on device")
    assert raised.value.code == 74
    assert ("or in Spark's temporary folder" in str(raised.value)) is both


def test_where_logs_are_read_only_a_full_disk_is_one_of_the_output() -> None:
    """It ended with 1 and the name of a class, and a missing log must not be told as a missing output."""
    with pytest.raises(OutputError), writing("out", DISK):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for error in (NoLogs("there is no folder"), PermissionError(errno.EACCES, "a.jsonl")):
        with pytest.raises(type(error)), writing("out", DISK):
            raise error


def test_an_output_folder_with_foreign_files_is_refused_before_spark_is_started(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(
        OutputError, match=r"contains files that no analysis .*\(thesis.tex\); name another"
    ) as raised:
        check_output(str(tmp_path))
    assert raised.value.code == 73
    with pytest.raises(OutputError) as raised:
        check_output(str(tmp_path / "thesis.tex"))
    assert raised.value.code == 73


def test_the_report_of_an_earlier_version_is_named_as_such(tmp_path: Path) -> None:
    """It was called files that no analysis wrote."""
    (tmp_path / "report.html").touch()
    (tmp_path / "tables").mkdir()
    with pytest.raises(OutputError, match=r"has a report of version 0\.1; move it") as raised:
        check_output(str(tmp_path))
    assert raised.value.code == 73
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OutputError, match="contains files that no analysis wrote"):
        check_output(str(tmp_path))


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is on a file system that cannot be written."""
    asked = os.statvfs

    def told(path: Path) -> os.statvfs_result:
        read = asked(path)
        return os.statvfs_result([*read[:8], read.f_flag | os.ST_RDONLY, read.f_namemax])

    monkeypatch.setattr(os, "statvfs", told)


def test_a_read_only_file_system_is_named_as_such(tmp_path: Path, read_only: None) -> None:
    """It was "Permission denied"."""
    with pytest.raises(OutputError, match="cannot be written: Read-only file system; name another") as raised:
        check_output(str(tmp_path / "new"))
    assert raised.value.code == 77


def test_a_folder_that_hadoop_could_not_make_has_the_reason_of_the_system(
    tmp_path: Path, read_only: None
) -> None:
    """Hadoop tells none: "Mkdirs failed to create"."""
    from pyspark.errors import PySparkException

    for out, reason in ((str(tmp_path), "Read-only file system"), ("hdfs://h/out", "Permission denied")):
        with pytest.raises(OutputError, match=reason) as raised, writing(out):
            raise PySparkException("java.io.IOException: Mkdirs failed to create file:/x")
        assert raised.value.code == 77


def test_a_result_that_breaks_is_removed_and_the_others_stay(tmp_path: Path) -> None:
    """Half a result stayed on the full disk until the next one was whole."""
    results = Results(LocalPlace(tmp_path), Current())
    with results.building(IDS[0]):
        results.write_text(IDS[0], "summary.json", "{}")
        results.make_current(IDS[0])
    for error in (KeyboardInterrupt, OSError):
        with pytest.raises(error), results.building(IDS[1]):
            results.write_text(IDS[1], "summary.json", "{}")
            raise error
        assert results.place.names() == {IDS[0], "current.json"}


def test_an_output_that_is_ours_new_or_left_by_a_broken_run_will_do(tmp_path: Path) -> None:
    check_output(str(tmp_path / "new" / "folder"))
    assert not (tmp_path / "new").exists()
    (tmp_path / IDS[0]).mkdir()
    (tmp_path / "reduced").mkdir()
    check_output(str(tmp_path))
    (tmp_path / "current.json").write_text(Current().next(IDS[0]).as_json())
    (tmp_path / "notes.txt").touch()
    check_output(str(tmp_path))


@pytest.mark.parametrize("text", [*OTHERS, '{"format": 1, "no": null, "kept": []}'])
def test_a_current_file_of_another_program_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "current.json").write_text(text)
    with pytest.raises(OutputError, match="contains files that no analysis"):
        check_output(str(tmp_path))


def test_a_result_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    """It was taken for known, and its missing tables ended the analysis each time."""
    results = Results(LocalPlace(tmp_path), Current().next(IDS[0]))
    assert not results.has(IDS[0])
    (tmp_path / IDS[0]).mkdir()
    assert results.has(IDS[0])


def test_the_result_of_an_analysis_that_ended_first_stays_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current result was read before the lock was held."""
    first = Current().next(IDS[0])
    locked = folder._lock

    def late(place: folder.Place, out: str) -> AbstractContextManager[None]:
        place.add("current.json", first.as_json())  # by the one that held the lock until now
        return locked(place, out)

    monkeypatch.setattr(folder, "_lock", late)
    with open_results(None, str(tmp_path)) as results:  # type: ignore[arg-type]
        assert results.current == first


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("kind", ["local", "spark"])
def test_a_broken_run_leaves_the_current_result_unchanged(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """This holds on both kinds of file systems: written last, bounded in number, the same input at the same
    place."""
    out = str(tmp_path / "a folder {x}")
    if kind == "spark":
        spark.conf.set(f"fs.viewfs.mounttable.{tmp_path.name}.link./here", tmp_path.as_uri())
        out = f"viewfs://{tmp_path.name}/here/out"
    table = spark.range(3)
    with pytest.raises(KeyboardInterrupt), open_results(spark, out) as results:
        results.write_table(IDS[0], "lives", table)
        raise KeyboardInterrupt
    for id in IDS:
        with open_results(spark, out) as results:
            assert not results.has(id)
            results.write_table(id, "lives", table)
            written = spark.read.parquet(escaped(f"{results.url_of(id)}/tables/lives"))
            assert sorted(row["id"] for row in written.collect()) == [0, 1, 2]
            results.write_text(id, "summary.json", '{"a": "é"}\n')
            results.make_current(id)
    with pytest.raises(OSError), open_results(spark, out) as results:
        results.write_table("f" * 16, "lives", table)
        raise OSError
    with open_results(spark, out) as results:
        assert results.current.id == IDS[-1]
        assert results.has(IDS[-1]) and not results.has(IDS[0]) and not results.has("f" * 16)
        assert results.place.read(f"{IDS[-1]}/summary.json").strip() == '{"a": "é"}'


@pytest.mark.spark
@pytest.mark.long
def test_an_id_is_made_of_the_input_and_not_of_its_order(spark: SparkSession) -> None:
    rows = [("a.jsonl", 10, 1), ("b.jsonl", 20, 2), ("c.jsonl", 30, 3)]
    ddl = "file string, bytes long, rows long"
    id = result_id(spark.createDataFrame(rows, ddl), {"window": 5.0})
    assert id == result_id(spark.createDataFrame(rows[::-1], ddl).repartition(3), {"window": 5.0})
    assert id != result_id(spark.createDataFrame(rows, ddl), {"window": 6.0})
    assert id != result_id(spark.createDataFrame([*rows[:2], ("c.jsonl", 30, 4)], ddl), {"window": 5.0})
    assert id != result_id(spark.createDataFrame([*rows, *rows[:1], *rows[:1]], ddl), {"window": 5.0})


@pytest.mark.spark
@pytest.mark.long
def test_two_analyses_do_not_write_to_one_folder(spark: SparkSession, tmp_path: Path) -> None:
    with open_results(spark, str(tmp_path)), pytest.raises(Locked, match="wait for that analysis to end"):
        with open_results(spark, str(tmp_path)):
            pass
