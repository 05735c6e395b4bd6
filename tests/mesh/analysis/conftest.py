"""One Spark session for all tests of the analysis; starting one takes five seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
    from mesh.analysis.cluster.session import spark_session
    from mesh.analysis.cluster.settings import SparkOptions

    with spark_session(SparkOptions(memory="1g", small=True)) as session:
        yield session
