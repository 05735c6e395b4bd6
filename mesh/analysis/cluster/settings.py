"""The settings of a Spark session: ours for one machine, the cluster's elsewhere. The user's come first.

Pure: a function of the options. Settings that suit only one machine (the driver on loopback, its memory, few
partitions) are used with a local master only. On a cluster the defaults of Spark and of its administrator
apply.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LOCAL_MASTER: Final = "local[2]"
LOCAL_MEMORY: Final = "2g"
SOUND_LOCAL: Final = re.compile(r"local(\[(\*|[1-9]\d*)(\s*,\s*[1-9]\d*)?\]|-cluster\[.*\])?")
"""Cores, and how often a task may fail."""
SOUND_REMOTE: Final = re.compile(r"spark://.+|k8s://.+|yarn")
SOUND_MEMORY: Final = re.compile(r"([1-9]\d*)([kmgtKMGT]?)")
UNIT_BITS: Final[Mapping[str, int]] = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
"""A number without a unit counts bytes, since Java gets it as it is."""
MEMORY_LEAST: Final = 512 << 20
"""Spark ends with an error below 450 MiB, of which Java's collector keeps some for itself."""

LAUNCH: Final[Mapping[str, str]] = {
    "spark.app.name": "mesh analyze",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.python.worker.reuse": "true",
    # Else pyspark notes for each column which line made it: a second of calls to Java.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The analysis has more than 100 stages. By default Spark keeps the code of only 100, and would compile
    # the others again.
    "spark.sql.codegen.cache.maxEntries": "1000",
}
"""Fixed once the Java runs."""

SQL: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Heartbeats are grouped by more windows than fit into Spark's small map in front of its hash map: 4.0 s
    # of CPU for 3.8 M of them with it, 3.0 s without.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Plans with many columns: inferring filters that are there already takes longer than running them.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    # A table of this size in memory joins faster than two sorted sides; what is larger is sorted.
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
    # A broker may rename a file before it is read. The job checks for that and reads again.
    "spark.sql.files.ignoreMissingFiles": "true",
}
"""Settings that can be changed while the Java runs."""

LOCAL_LAUNCH: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark makes a class for each of some hundred stages. Java's better compiler takes as long for them as
    # they run. So it compiles only what runs sixteen times as long as by default, and inlines less.
    "spark.driver.extraJavaOptions": (
        "-XX:+IgnoreUnrecognizedVMOptions -XX:+UseParallelGC -XX:MaxInlineLevel=9 -XX:InlineSmallCode=1500 "
        "-XX:Tier4InvocationThreshold=80000 -XX:Tier4MinInvocationThreshold=24000 "
        "-XX:Tier4CompileThreshold=240000 -XX:Tier4BackEdgeThreshold=800000"
    ),
    # Spark derives the size of a page from the heap, up to 64 MB. Each task that groups or sorts clears at
    # least one, and most tasks have a few thousand rows.
    "spark.buffer.pageSize": "4m",
}
LOCAL_SQL: Final[Mapping[str, str]] = {
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.files.maxPartitionBytes": "64m",
    # Spark assumes that opening a file takes as long as reading 4 MB. On this machine it takes less. Each
    # broker has its own files, and a task costs 10 ms.
    "spark.sql.files.openCostInBytes": "256k",
    # What is kept is read a few times. To find out how it compresses takes longer than that.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.autoBroadcastJoinThreshold": "32m",
    # Of each query Spark writes a page for its web interface, which is off.
    "spark.sql.ui.explainMode": "simple",
}

SMALL_LAUNCH: Final[Mapping[str, str]] = {
    # A job of seconds ends before the better compiler pays. Without that compiler Java reserves 48 MB for
    # compiled code; a session of many jobs fills that, and then Java ends. With it, it reserves 240 MB.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
    ),
    "spark.default.parallelism": "1",
}
SMALL_SQL: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "1",
    # There is nothing to balance, and generating code takes longer than interpreting a few thousand rows.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For logs of a few megabytes on this machine: half the time of the other settings."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The master and settings of Spark. ``conf`` is the user's and overrides everything."""

    master: str = LOCAL_MASTER
    memory: str | None = None
    """The driver's memory. None: 2 GB on this machine, Spark's default on a cluster."""
    conf: Mapping[str, str] = field(default_factory=dict)
    small: bool = False
    """The logs are a few megabytes."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a master or a memory at which Spark ends with a Java error."""
        if self.local and not SOUND_LOCAL.fullmatch(self.chosen_master):
            raise ValueError(
                f"--master {self.chosen_master} names no cores of this machine; "
                "use local[N] with N from 1 up, local[*], or a cluster's address such as spark://HOST:7077"
            )
        if not self.local and not SOUND_REMOTE.fullmatch(self.chosen_master):
            raise ValueError(
                f"--master {self.chosen_master} is none that Spark knows; use local[N], spark://HOST:7077, "
                "k8s://HOST:443 or yarn"
            )
        memory = self.conf.get("spark.driver.memory", self.memory)
        if memory is not None:
            size = SOUND_MEMORY.fullmatch(memory)
            if size is None:
                raise ValueError(f"--memory {memory} is no size; use a number and a unit, such as 512m or 4g")
            if int(size[1]) << UNIT_BITS[size[2].lower()] < MEMORY_LEAST:
                raise ValueError(f"--memory {memory} is too little for Spark; use 512m or more")

    @property
    def chosen_master(self) -> str:
        return self.conf.get("spark.master", self.master)

    @property
    def local(self) -> bool:
        return self.chosen_master.startswith("local")


def parse_conf(given: tuple[str, ...]) -> dict[str, str]:
    """Pairs of the form ``KEY=VALUE``. The last one for a key counts.

    Raises:
        ValueError: one is no such pair, or its key is none of Spark's.
    """
    conf = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise ValueError(f"--conf {pair!r} is not spark.SOMETHING=VALUE")
        conf[key] = value
    return conf


def launch_settings(options: SparkOptions, driver_host: str | None) -> dict[str, str]:
    """The settings for the start of the Java. ``driver_host`` is where workers of a cluster reach this
    program."""
    settings = {"spark.master": options.chosen_master, **LAUNCH}
    if options.local:
        settings |= LOCAL_LAUNCH
        settings["spark.driver.memory"] = LOCAL_MEMORY
        settings["spark.default.parallelism"] = str(_partitions(options))
        settings |= SMALL_LAUNCH if options.small else {}
    elif driver_host is not None:
        settings["spark.driver.host"] = driver_host
    if options.memory is not None:
        settings["spark.driver.memory"] = options.memory
    return {**settings, **options.conf}


def sql_settings(options: SparkOptions) -> dict[str, str]:
    """The settings after the start of the Java, without those that the user set."""
    settings = dict(SQL)
    if options.local:
        settings |= LOCAL_SQL
        settings["spark.sql.shuffle.partitions"] = str(_partitions(options))
        settings |= SMALL_SQL if options.small else {}
    return {key: value for key, value in settings.items() if key not in options.conf}


def _partitions(options: SparkOptions) -> int:
    """Twice the cores. Adaptive execution merges small partitions. The default of 200 doubles a small job's
    time."""
    given = re.match(r"local\[(\d+|\*)", options.chosen_master)
    cores = given[1] if given else "1"
    return 2 * ((os.cpu_count() or 1) if cores == "*" else int(cores))
