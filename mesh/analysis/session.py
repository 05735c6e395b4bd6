"""A Spark session for two cores: started, or shared with whoever already runs one, as under spark-submit."""

from __future__ import annotations

import logging
import os
import pwd
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from mesh.analysis.java import prepare_environment
from mesh.errors import MeshError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("mesh")


LAUNCH_SETTINGS: Final[Mapping[str, str]] = {
    "spark.app.name": "mesh analyze",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.default.parallelism": "4",
    "spark.python.worker.reuse": "true",
}
"""Fixed once the Java runs. In local mode the driver does all the work, so its memory is the job's."""

SQL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Twice the cores; adaptive execution joins small ones. The default of 200 doubles the time of small jobs.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.sql.autoBroadcastJoinThreshold": "32m",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A broker may rename a file before it is read; the job looks for that and reads again.
    "spark.sql.files.ignoreMissingFiles": "true",
}


SMALL_LAUNCH_SETTINGS: Final[Mapping[str, str]] = {
    # A job of seconds ends before the better compiler pays. Without that, Java has 48 MB for compiled code,
    # which a session of many jobs fills, and then Java ends; with it, it has 240.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
    ),
    "spark.default.parallelism": "1",
}
SMALL_SQL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "1",
    # Nothing to balance, and generating code takes longer than interpreting a few thousand rows.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For logs of a few megabytes: half the time of the defaults, which are for many."""


@contextmanager
def spark_session(
    *, master: str = "local[2]", driver_memory: str = "2g", small: bool = False
) -> Iterator[SparkSession]:
    """A session with our settings; one that was there before is shared and left running.

    Raises:
        ImportError: Spark is not installed.
        NoJava: there is no Java.
        MeshError: Spark did not start.
    """
    try:
        import pandas  # noqa: F401
        from pyspark.sql import SparkSession
    except ImportError as error:
        name = (error.name or "pyspark").partition(".")[0]
        raise ImportError(f"the analysis needs {name} (pip install 'mangrove-mesh[analysis]')") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        spark = active.newSession()
    elif "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the Java, with its own settings
        spark = SparkSession.builder.getOrCreate()
    else:
        spark = _start(master, driver_memory, {**LAUNCH_SETTINGS, **(SMALL_LAUNCH_SETTINGS if small else {})})
    for key, value in {**SQL_SETTINGS, **(SMALL_SQL_SETTINGS if small else {})}.items():
        spark.conf.set(key, value)
    try:
        yield spark
    finally:
        if active is None:
            spark.stop()


def _start(master: str, driver_memory: str, settings: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    scratch = tempfile.gettempdir()
    conf = SparkConf(loadDefaults=False).setMaster(master)
    conf.set("spark.driver.memory", driver_memory)
    conf.set("spark.local.dir", scratch)
    conf.set("spark.sql.warehouse.dir", f"{scratch}/mangrove-warehouse")
    for key, value in settings.items():
        conf.set(key, value)
    nameless = not _has_passwd_entry()
    if nameless:  # Java takes home and name from that entry
        given = settings.get("spark.driver.extraJavaOptions", "")
        conf.set("spark.driver.extraJavaOptions", f"{given} -Duser.home={scratch}".strip())
    with tempfile.TemporaryFile() as said:
        try:
            # What the launcher and the Java print while they start is noise, unless they fail to.
            if SparkContext._gateway is None:
                java = prepare_environment(os.environ)
                log.debug("Spark runs on Java %s from %s", java.version, java.source)
                gateway = launch_gateway(conf, {"stderr": said})  # type: ignore[no-untyped-call]
                SparkContext._ensure_initialized(gateway=gateway)
                if nameless:
                    hadoop = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
                    hadoop.setLoginUser(hadoop.createRemoteUser(f"uid-{os.getuid()}"))
            return SparkSession.builder.config(conf=conf).getOrCreate()
        except (PySparkException, Py4JError, OSError, ValueError) as error:
            said.seek(0)
            reason = reason_of(error, said.read().decode(errors="replace"))
            raise MeshError(f"Spark did not start with --master {master}: {reason}") from error


def _has_passwd_entry() -> bool:
    """Whether the system knows a name of this process' user; in many containers it does not."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def reason_of(error: BaseException, said: str = "") -> str:
    """The line of a long story that tells most: the first exception's, else the last that was said."""
    lines = [line.strip() for line in f"{error}\n{said}".splitlines() if line.strip()]
    told = [line for line in lines if "Exception: " in line or line.startswith(("Error: ", "Caused by: "))]
    line = told[0] if told else lines[-1] if lines else type(error).__name__
    return line.removeprefix(": ").removeprefix("Caused by: ")
