"""The rows of a broker's statistics are read as written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mesh.analysis.reading.logs import read_logs
from mesh.broker.log_rows import RowBuilder, as_text
from mesh.broker.status import LoopLateness, stats_fields
from mesh.eventlog.rows import StatsRow
from tests.mesh.broker.test_status import LOAD, STORED

pytestmark = [pytest.mark.spark, pytest.mark.long]


def row(boot: int, fields: dict[str, Any]) -> str:
    return as_text(RowBuilder(run="mangrove", node=1, boot=boot).row(StatsRow, fields, now=1.0, wall=1.7e9))


def test_the_stats_of_a_home_are_read_and_those_of_others_lack_the_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    fields = stats_fields(LOAD, [], LoopLateness(), STORED)
    earlier = {key: value for key, value in fields.items() if key not in ("queues", "journal")}
    (tmp_path / "home.jsonl").write_text(row(1, fields) + "\n")
    (tmp_path / "earlier.jsonl").write_text(row(2, earlier) + "\n")
    logs = read_logs(spark, str(tmp_path))
    home, other = logs.stats.orderBy("boot").collect()
    assert [queue.asDict() for queue in home.queues] == fields["queues"]
    assert home.journal.asDict() == fields["journal"]
    assert other.queues is None and other.journal is None
    assert logs.quarantine.isEmpty()
    logs.close()
