"""A follower in the test's own session: what it shows before, between and after batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
pytest.importorskip("pyarrow", reason="a source of our own needs pyarrow")

from mesh.analysis.following.follower import follow
from mesh.analysis.following.health import Picture
from mesh.analysis.reading.reduced import Store
from mesh.analysis.results.folder import open_place
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
    assert followed("second", 0), "a second follower finds nothing new, and shows that"
