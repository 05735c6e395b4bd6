"""One Spark session for all tests of the analysis; starting one takes five seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.mesh.analysis.oracle.comparing import Analysed

ROWS = int(os.environ.get("MANGROVE_ORACLE_ROWS", "6000"))
"""About so many rows are in the logs of `story`."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
    from mesh.analysis.cluster.session import spark_session
    from mesh.analysis.cluster.settings import SparkOptions

    with spark_session(SparkOptions(memory="1g", small=True)) as session:
        yield session


@pytest.fixture(scope="session")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """A run with every kind of event, each heartbeat logged, and its tables as made on this machine."""
    from tests.mesh.analysis.oracle.comparing import analysed
    from tests.mesh.analysis.oracle.story import play

    folder = tmp_path_factory.mktemp("story")
    return analysed(spark, play(folder, ROWS, "each"), folder / "out")
