"""The session of an analysis: settings that Spark refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from mesh.analysis.cluster.session import _configured
from mesh.analysis.cluster.settings import SparkOptions
from mesh.errors import ConfigError


def test_a_setting_that_spark_refuses_is_an_error_that_quotes_it() -> None:
    """Spark's error reached the command after Java had ended, and could no longer be printed."""

    def refuse(key: str, value: str) -> None:
        raise PySparkException("The value 'abc' in the config \"spark.sql.shuffle.partitions\" is invalid.")

    given = SimpleNamespace(contains=lambda key: False)
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(getConf=lambda: given), conf=SimpleNamespace(set=refuse)
    )
    with pytest.raises(ConfigError, match="Spark refuses a setting of --conf: The value 'abc' in the config"):
        _configured(spark, SparkOptions())
