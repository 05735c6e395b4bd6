"""Checks that a cluster works: its master answers, workers reach the driver, an executor accepts work."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from mesh.analysis.cluster.ending import silently
from mesh.errors import MeshError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STANDALONE: Final = "spark://"
MASTER_WAIT_S: Final = 10.0
EXECUTOR_WAIT_S: Final = 60.0
LOOK_S: Final = 0.2
GIVEN_UP: Final = "stopped SparkContext"
"""What Spark says a minute after it began to look for a master."""


class NoCluster(MeshError):
    """The master does not answer, or there is no executor. The message says what to check."""


def address_towards(master: str) -> str | None:
    """The address of this host that the masters of a standalone cluster see; None for other clusters.

    Workers are in the network of the master, so they reach it too. A host's name, Spark's default, is often
    resolved to loopback.

    Raises:
        NoCluster: no master answers, or one of them has no port.
    """
    if not master.startswith(STANDALONE):
        return None
    refused = []
    for place in master.removeprefix(STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        if not port.isdecimal() or not host:
            raise NoCluster(
                f"{master} is not a cluster's address; spark://HOST:PORT is (7077 is the usual port)"
            )
        try:
            with socket.create_connection((host.strip("[]"), int(port)), MASTER_WAIT_S) as connection:
                return str(connection.getsockname()[0])
        except OSError as error:
            refused.append(f"{place}: {error.strerror or 'no answer'}")
    raise NoCluster(f"the master of {master} does not answer ({'; '.join(refused)}); is it running?")


def no_master(master: str) -> NoCluster:
    """The error if something listens there which is no master of this Spark."""
    import pyspark

    return NoCluster(
        f"{master} accepts connections, but no Spark master of version {pyspark.__version__} answers there; "
        "see the first lines of its log for its URL and version"
    )


def wait_for_executor(
    spark: SparkSession, wait_s: float = EXECUTOR_WAIT_S, clock: Callable[[], float] = time.monotonic
) -> None:
    """Return when there is an executor whose Python can run code of this Python.

    Without one, Spark would wait silently forever.

    Raises:
        NoCluster: there is none after ``wait_s``, or it has no such Python.
    """
    context = spark.sparkContext
    until = clock() + wait_s
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver is one of them
        if clock() > until:
            raise NoCluster(_nobody_came(dict(context.getConf().getAll()), wait_s))
        time.sleep(LOOK_S)
    _try_python(spark)


def _nobody_came(conf: dict[str, str], wait_s: float) -> str:
    memory = conf.get("spark.executor.memory", "1g")
    cores = conf.get("spark.executor.cores", "all")
    driver = f"{conf.get('spark.driver.host', 'its host name')}:{conf.get('spark.driver.port', '?')}"
    return (
        f"no executor of {conf.get('spark.master')} came in {wait_s:g} s; has a worker {memory} of memory "
        f"(--conf spark.executor.memory=...) and {cores} cores (--conf spark.executor.cores=...) free, "
        f"and can it reach this program at {driver} (--conf spark.driver.host=...)?"
    )


def _try_python(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    same = F.udf(_same, "long", useArrow=False)
    try:
        with silently():
            spark.range(1).select(same("id")).collect()
    except (PySparkException, Py4JError) as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise NoCluster(
            f"the executors cannot run this program's Python {version} ({_told(str(error).splitlines())}); "
            "name theirs with --conf spark.pyspark.python=PATH"
        ) from error


def _same(number: int) -> int:
    return number


def _told(lines: Sequence[str]) -> str:
    tells = ("PYTHON_VERSION_MISMATCH", "Cannot run program", "ModuleNotFoundError", "Exception: ")
    return next((line.strip() for tell in tells for line in lines if tell in line), lines[0] if lines else "")
