"""Rows of the event log as columns: of a broker that is home to durable subscriptions, and of others."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from mesh.analysis.schema import parse
from mesh.broker.log_rows import RowBuilder, as_text
from mesh.broker.status import LoopLateness, stats_fields
from mesh.eventlog.rows import StatsRow
from tests.mesh.broker.test_status import LOAD, STORED

pytestmark = pytest.mark.spark


def row(fields: dict[str, Any]) -> str:
    return as_text(RowBuilder(run="mangrove", node=1, boot=2).row(StatsRow, fields, now=1.0, wall=1.7e9))


def test_the_stats_of_a_home_are_read_and_those_of_others_lack_the_columns(spark: SparkSession) -> None:
    fields = stats_fields(LOAD, [], LoopLateness(), STORED)
    earlier = {key: value for key, value in fields.items() if key not in ("queues", "journal")}
    lines = [("home.jsonl", row(fields)), ("earlier.jsonl", row(earlier))]
    parsed = parse(spark.createDataFrame(lines, "file string, value string")).collect()
    rows = {each.file: each for each in parsed}
    assert {each.problem for each in parsed} == {None}
    home = rows["home.jsonl"]
    assert [queue.asDict() for queue in home.queues] == fields["queues"]
    assert home.journal.asDict() == fields["journal"]
    assert rows["earlier.jsonl"].queues is None and rows["earlier.jsonl"].journal is None
