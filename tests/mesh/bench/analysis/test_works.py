"""The works of `mesh bench analyze` run, on a mesh of a few brokers; figures are not checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.bench.analysis import works
from mesh.bench.analysis.works import AGAIN, CPU, ROW, TARGETS, TIMES, cases
from mesh.bench.harness import Figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_target_belongs_to_a_measured_work() -> None:
    pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
    skipped: dict[str, str] = {}
    measured = {(case.work, case.system) for case in cases(1.0, skipped)}
    assert skipped == {}
    for target in TARGETS:
        assert (target.work, target.ours) in measured
        assert target.peer is None or (target.work, target.peer) in measured
    assert AGAIN in {work for work, _ in measured}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_logs_are_read_and_all_tables_made(spark: SparkSession) -> None:
    told: list[Figures] = []
    works.run_reading(6, 2, 0, "lines", told.append, None)
    (figures,) = told
    assert figures[CPU] > 0
    assert sorted(figures) == sorted((CPU, works.SCAN, TIMES, ROW))
