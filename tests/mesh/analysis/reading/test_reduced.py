"""A store gives the same tables as reading the files from the start, and parses each line once."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")

from mesh.analysis.reading import coverage, reduced
from mesh.analysis.reading import logs as logs_module
from mesh.analysis.reading.finding import find_logs
from mesh.analysis.reading.logs import read_logs
from mesh.analysis.reading.reduced import Store
from mesh.analysis.results.folder import open_place
from tests.mesh.analysis.reading.test_logs import SMALL, parquet_of, plain
from tests.mesh.analysis.synthetic import write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

NAMES = ("files", "quarantine", "boots_raw", "heard", "mem")


def tables(spark: SparkSession, logs: Path, store: Store | None = None) -> dict[str, Any]:
    read = read_logs(spark, str(logs), store)
    try:
        return {name: plain(getattr(read, name)) for name in NAMES}
    finally:
        read.close()


def store_at(spark: SparkSession, tmp_path: Path) -> Store:
    return Store(spark, open_place(spark, str(tmp_path / "out" / "reduced")))


def grow(logs: Path, whole: dict[str, bytes], share: float) -> None:
    """Every file as a broker would have written this share of it."""
    for name, text in whole.items():
        done, growing = logs / name, logs / f"{name}.part"
        if share >= 1:
            growing.unlink(missing_ok=True)
            done.write_bytes(text)
        else:
            growing.write_bytes(text[: int(len(text) * share)])


def test_runs_over_growing_files_end_with_the_tables_of_one_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are cut anywhere, finished, or end in half a line. The last run, with unchanged input, parses
    nothing."""
    logs = tmp_path / "logs"
    write_logs(SMALL, logs)
    whole = {path.name.removesuffix(".part"): path.read_bytes() for path in logs.iterdir()}
    for path in logs.iterdir():
        path.unlink()
    grow(logs, whole, 0.31)
    assert tables(spark, logs, store_at(spark, tmp_path)) == tables(spark, logs)
    for share in (0.7, 1.0):
        grow(logs, whole, share)
        store_at(spark, tmp_path).read(find_logs(spark, str(logs)))[1].close()
    expected = tables(spark, logs)
    parsed: list[Any] = []
    monkeypatch.setattr(reduced.Store, "append", lambda *arguments: parsed.append(arguments))
    assert tables(spark, logs, store_at(spark, tmp_path)) == expected
    assert parsed == []


def test_an_unfinished_batch_is_read_again_and_counts_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    write_logs(SMALL, logs)
    store = store_at(spark, tmp_path)
    monkeypatch.setattr(store._place, "write", lambda name, text: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.read(find_logs(spark, str(logs)))
    assert store_at(spark, tmp_path).batches == 0
    assert tables(spark, logs, store_at(spark, tmp_path)) == tables(spark, logs)


def test_a_file_that_was_replaced_is_read_anew_and_one_that_is_gone_does_not_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    write_logs(SMALL, logs)
    first, *rest = sorted(logs.iterdir())
    tables(spark, logs, store_at(spark, tmp_path))
    lines = first.read_bytes().splitlines(keepends=True)
    first.write_bytes(b"".join(lines[1 : len(lines) // 2]))
    os.utime(first, (2e9, 2e9))
    rest[-1].unlink()
    assert tables(spark, logs, store_at(spark, tmp_path)) == tables(spark, logs)


def test_many_batches_become_few_with_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage, "MERGED", 3)
    logs = tmp_path / "logs"
    write_logs(SMALL, logs)
    whole = {path.name.removesuffix(".part"): path.read_bytes() for path in logs.iterdir()}
    for path in logs.iterdir():
        path.unlink()
    store = store_at(spark, tmp_path)
    for share in (0.3, 0.6, 1.0):
        grow(logs, whole, share)
        store.read(find_logs(spark, str(logs)))[1].close()
    assert store.batches == 1
    assert tables(spark, logs, store_at(spark, tmp_path)) == tables(spark, logs)


def test_a_file_that_is_finished_before_it_is_read_is_looked_for_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark skips missing files, and the store would have counted its lines as read."""
    logs = tmp_path / "logs"
    write_logs(SMALL, logs)
    growing = sorted(logs.iterdir())[0].rename(logs / "alpha-1.jsonl.part")
    stale = find_logs(spark, str(logs))
    growing.rename(logs / "alpha-1.jsonl")
    store = store_at(spark, tmp_path)
    looks = iter([stale])
    monkeypatch.setattr(logs_module, "find_logs", lambda spark, at: next(looks, None) or find_logs(spark, at))
    read = read_logs(spark, str(logs), store)
    names = {row["file"] for row in read.files.collect()}
    read.close()
    assert "alpha-1.jsonl" in names
    assert set(store.seen) == {name.removesuffix(".part") for name in names}


@pytest.mark.parametrize("before", ["missing", "sound"])
def test_a_damaged_file_is_read_anew_once_it_is_repaired(
    spark: SparkSession, tmp_path: Path, before: str
) -> None:
    """The repaired file has the size and time of the damaged one, as a copy with rsync may have."""
    logs = tmp_path / "logs"
    write_logs(SMALL, logs)
    first = sorted(logs.iterdir())[0]
    whole = gzip.compress(first.read_bytes())
    first.unlink()
    path = logs / "alpha 1+1.jsonl.gz"
    if before == "sound":
        path.write_bytes(whole)
        os.utime(path, (1e9, 1e9))
        tables(spark, logs, store_at(spark, tmp_path))
    for data in (whole[:-40] + b"\0" * 40, whole[:-40] + b"\0" * 40, whole):
        path.write_bytes(data)
        os.utime(path, (2e9, 2e9))
        expected = tables(spark, logs)
        assert tables(spark, logs, store_at(spark, tmp_path)) == expected
        (row,) = [row for row in expected["files"] if row["file"] == path.name]
        assert (row["damage"] is None) is (data is whole)
    assert not any(row["damage"] for row in expected["files"])


def test_only_new_files_are_examined_for_damage(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored was read before. With a damaged file among them, each run would read all files again."""
    logs = tmp_path / "logs"
    write_logs(SMALL, logs)
    for path in list(logs.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    tables(spark, logs, store_at(spark, tmp_path))
    (logs / "cut.jsonl.gz").write_bytes(gzip.compress(b"{}\n")[:-9])
    examined: list[str] = []
    find = logs_module.find_damage

    def watched(spark: SparkSession, files: Any) -> Any:
        examined.extend(file.name for file in files)
        return find(spark, files)

    monkeypatch.setattr(logs_module, "find_damage", watched)
    for _ in range(2):
        tables(spark, logs, store_at(spark, tmp_path))
    assert examined == ["cut.jsonl.gz", "cut.jsonl.gz"]


def test_repeated_rows_of_parquet_are_counted_in_their_files(spark: SparkSession, tmp_path: Path) -> None:
    """A name with a space has two forms in Spark. With a store, such a file had no rows in the table."""
    write_logs(SMALL, tmp_path / "lines")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a 1+1%.parquet").write_bytes(parquet_of(spark, tmp_path / "lines", tmp_path / "table"))
    shutil.copy(logs / "a 1+1%.parquet", logs / "b 2.parquet")
    expected = tables(spark, logs)
    assert {row["duplicates"] > 0 for row in expected["files"]} == {True, False}
    assert tables(spark, logs, store_at(spark, tmp_path)) == expected


@pytest.mark.parametrize("tail", [b"", b'{"v":1,"ha'])
@pytest.mark.parametrize("stored", [True, False])
def test_a_file_that_is_finished_while_it_is_read_is_read_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool, tail: bytes
) -> None:
    """Its half line was read after its broker had renamed it, and the analysis ended with an error of py4j:
    Java's exceptions have several forms."""
    logs = tmp_path / "logs"
    write_logs(SMALL, logs)
    done = sorted(logs.iterdir())[0]
    with done.open("ab") as file:
        file.write(tail)
    growing = done.rename(logs / f"{done.name}.part")
    late = logs_module._Reading.logs

    def finished_meanwhile(reading: Any) -> Any:
        if growing.exists():
            growing.rename(done)
        return late(reading)

    monkeypatch.setattr(logs_module._Reading, "logs", finished_meanwhile)
    found = tables(spark, logs, store_at(spark, tmp_path) if stored else None)
    monkeypatch.undo()
    assert {row["file"] for row in found["files"]} >= {done.name}
    assert found == tables(spark, logs)
