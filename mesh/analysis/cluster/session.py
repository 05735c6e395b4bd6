"""A Spark session: started here, or shared with a process that already has one, as under spark-submit."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh.analysis.cluster.ending import Interrupts, silently
from mesh.analysis.cluster.gateway import DriverJava
from mesh.analysis.cluster.java import prepare_environment
from mesh.analysis.cluster.package import write_package
from mesh.analysis.cluster.reach import (
    EXECUTOR_WAIT_S,
    GIVEN_UP,
    address_towards,
    no_master,
    wait_for_executor,
)
from mesh.analysis.cluster.settings import SparkOptions, launch_settings, sql_settings
from mesh.errors import ConfigError, MeshError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("mesh")


@contextmanager
def spark_session(
    options: SparkOptions | None = None, *, executor_wait_s: float = EXECUTOR_WAIT_S
) -> Iterator[SparkSession]:
    """A session with our settings. An existing one is shared and left running.

    A session that was started here ends completely, with its Java, its workers and its files, whatever ended
    it. SIGINT and SIGTERM end the work at once.

    Raises:
        ImportError: Spark is not installed.
        NoJava: there is no Java.
        NoCluster: the master does not answer, or no executor came.
        ConfigError: Spark refuses a setting of the user.
        MeshError: Spark did not start.
    """
    options = options or SparkOptions()
    with Interrupts() as interrupts:
        try:
            from pyspark.sql import SparkSession
        except ImportError as error:
            name = (error.name or "pyspark").partition(".")[0]
            raise ImportError(
                f"the analysis needs {name} (pip install '.[analysis]' in a checkout)"
            ) from None
        active = SparkSession.getActiveSession()
        if active is not None:
            yield _configured(active.newSession(), options)
        elif "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the Java, with its own settings
            spark = _configured(SparkSession.builder.getOrCreate(), options)
            try:
                yield spark
            finally:
                spark.stop()
        else:
            with _started(options, interrupts) as spark:
                if not options.local:
                    wait_for_executor(spark, executor_wait_s)
                yield _configured(spark, options)


def _configured(spark: SparkSession, options: SparkOptions) -> SparkSession:
    """Apply the settings that can still be changed, except those that the starter of the session has set."""
    from pyspark.errors import PySparkException

    given = spark.sparkContext.getConf()
    try:
        for key, value in sql_settings(options).items():
            if not given.contains(key):
                spark.conf.set(key, value)
    except PySparkException as error:  # Spark reads a setting of the user only now
        raise ConfigError(f"Spark refuses a setting of --conf: {reason_of(error)}") from error
    return spark


@contextmanager
def _started(options: SparkOptions, interrupts: Interrupts) -> Iterator[SparkSession]:
    """A Java and a session in it. Both end with the context."""
    driver_host = None
    if not options.local and "SPARK_LOCAL_IP" not in os.environ:
        driver_host = address_towards(options.chosen_master)
    spark = java = scratch = None
    try:
        with interrupts.held():
            scratch = Path(
                tempfile.mkdtemp(prefix="mangrove-spark-", dir=options.conf.get("spark.local.dir"))
            )
            java = DriverJava(scratch, interrupts.held)
            interrupts.end_now = java.kill
        with interrupts.kept():
            spark = _start(options, driver_host, java, scratch)
        yield spark
    finally:
        interrupts.closing = True
        if spark is not None and interrupts.taken is None:
            with silently(), contextlib.suppress(Exception):
                spark.stop()
        if java is not None:
            with silently():
                java.end()
                _forget()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _start(options: SparkOptions, driver_host: str | None, java: DriverJava, scratch: Path) -> SparkSession:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    found = prepare_environment(os.environ, local=options.local)
    log.debug("Spark runs on Java %s from %s", found.version, found.source)
    settings = launch_settings(options, driver_host)
    settings.setdefault("spark.local.dir", str(scratch))
    settings.setdefault("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    nameless = not _has_passwd_entry()
    given = settings.get("spark.driver.extraJavaOptions", "")
    home = f" -Duser.home={scratch}" if nameless else ""  # Java takes home and name from that entry
    settings["spark.driver.extraJavaOptions"] = f"{given} -Djava.io.tmpdir={scratch}{home}".strip()
    try:
        gateway = java.start(settings, os.environ)
        SparkContext._ensure_initialized(gateway=gateway)
        if nameless:
            hadoop = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
            hadoop.setLoginUser(hadoop.createRemoteUser(f"uid-{os.getuid()}"))
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        with silently():
            spark = builder.getOrCreate()
        _quieten(spark)
        if not options.local:
            spark.sparkContext.addPyFile(str(write_package(scratch / "mangrove.zip")))
        return spark
    except (PySparkException, Py4JError, MeshError, OSError, ValueError) as error:
        reason = reason_of(error, java.said)
        if not options.local and GIVEN_UP in reason:
            raise no_master(options.chosen_master) from error
        raise MeshError(f"Spark did not start with --master {options.chosen_master}: {reason}") from error


def _quieten(spark: SparkSession) -> None:
    """Print no traceback when the Java ends while Spark's server of counters waits for it. The work that the
    Java was doing reports its end."""
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, client: None


def _forget() -> None:
    """Let pyspark start anew in this process: its stop keeps the gateway, and fails if the Java is dead."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext._active_spark_context
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        with contextlib.suppress(Exception):
            server.shutdown()
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.close()
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _has_passwd_entry() -> bool:
    """True if the system knows a name for this process's user; in many containers it does not."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def reason_of(error: BaseException, said: str = "") -> str:
    """The most informative line of a long error: that of the first exception, otherwise the last line of
    output."""
    lines = [line.strip() for line in f"{error}\n{said}".splitlines() if line.strip()]
    told = [line for line in lines if "Exception: " in line or line.startswith(("Error: ", "Caused by: "))]
    line = told[0] if told else lines[-1] if lines else type(error).__name__
    return line.removeprefix(": ").removeprefix("Caused by: ")
