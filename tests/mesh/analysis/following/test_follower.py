"""A follower in the test's own session: what it shows before, between and after batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
pytest.importorskip("pyarrow", reason="a source of our own needs pyarrow")

from mesh.analysis.following import known
from mesh.analysis.following.follower import follow
from mesh.analysis.following.growing import logs_in
from mesh.analysis.following.health import Batch, Picture
from mesh.analysis.following.known import known_of
from mesh.analysis.following.lately import batch_of
from mesh.analysis.reading.coverage import without_copies
from mesh.analysis.reading.reduced import Store
from mesh.analysis.results.folder import open_place
from tests.mesh.analysis.following.test_lately import SECOND, START_US, A, B, beat, line, summary
from tests.mesh.analysis.reading.test_logs import SMALL
from tests.mesh.analysis.synthetic import write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_without_new_rows_it_waits_and_reads_those_that_come(spark: SparkSession, tmp_path: Path) -> None:
    """Spark begins with a batch even if there is nothing to read, which ended the follower."""
    logs = tmp_path / "logs"
    logs.mkdir()

    def followed(name: str, rows: int) -> list[Picture]:
        """What it shows until it has read so many rows. The logs are written after the first view."""
        shown: list[Picture] = []

        def show(picture: Picture) -> None:
            if not any(logs.iterdir()):
                write_logs(SMALL, logs)
            shown.append(picture)

        store = Store(spark, open_place(spark, str(tmp_path / "reduced")))
        follow(
            spark,
            logs,
            store,
            tmp_path / name,
            show,
            every_s=0.1,
            until=lambda: bool(shown) and shown[-1].rows >= rows,
        )
        return shown

    first = followed("first", 1)
    assert first[0].rows == 0
    assert {broker.name for broker in first[-1].brokers} >= {"alpha"}
    (again,) = followed("second", 0)
    assert (again.rows, again.corrupt) == (first[-1].rows, first[-1].corrupt)
    states = [[(broker.name, broker.state) for broker in each.brokers] for each in (again, first[-1])]
    assert states[0] == states[1], "brokers that were read before the restart are missing"


def test_a_store_knows_the_last_row_of_each_broker_and_link(spark: SparkSession, tmp_path: Path) -> None:
    """After a restart of the follower, brokers that wrote nothing since were missing, and so were deaths."""
    logs = tmp_path / "logs"
    write_logs(SMALL, logs)
    (logs / "summaries.jsonl").write_text(f"{summary(0, A, B)}\n{beat(1, B, A)}\n")
    (logs / "deaths.jsonl").write_text(f"{death(4, A, 9)}\n{death(3, B, 9)}\n{death(5)}\n")
    files = without_copies(logs_in(logs))
    store = Store(spark, open_place(spark, str(tmp_path / "reduced")))
    assert known_of(store, files) == Batch((), (), ())
    store.read(files)[1].close()
    found = known_of(store, files)
    lines = [
        text.removesuffix("\n")
        for path in logs.iterdir()
        for text in path.read_text().splitlines(keepends=True)
        if text.endswith("\n")
    ]
    expected = batch_of(lines)
    assert len(expected.wrote) == 4
    assert set(found.wrote) == set(expected.wrote)
    assert set(found.heard) == set(expected.heard)
    assert set(found.deaths) == set(expected.deaths) != set()
    assert found.corrupt == expected.corrupt == 0


def test_a_store_knows_no_more_deaths_than_a_view_keeps(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_text("".join(f"{death(second)}\n" for second in range(19, -1, -1)))
    files = without_copies(logs_in(logs))
    store = Store(spark, open_place(spark, str(tmp_path / "reduced")))
    store.read(files)[1].close()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(known, "DEATHS_KEPT", 3)
        found = known_of(store, files).deaths
    seconds = [(each.at_us - START_US) // SECOND for each in found]
    assert seconds == [17, 18, 19], "the newest, in order"


def death(second: int, node: str = A, inc: int = 0) -> str:
    """Each second tells of another incarnation."""
    about = {"subject": "00000000000000c3", "subject_name": "gamma", "subject_boot": A}
    change = {"from_state": "suspect", "to_state": "dead", "reason": "-", "via": node}
    return line(second, node, "mem", **about, subject_inc=inc or second + 1, **change)
