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
    from mesh.analysis.session import spark_session

    with spark_session(driver_memory="1g", small=True) as session:
        yield session
