"""Errors of Spark that cannot reach the file system of a URL, in sentences that say what to do: its jars are
missing, its host is unknown, or nothing answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mesh.analysis.cluster.session import reason_of
from mesh.errors import MeshError

PACKAGES: Final[Mapping[str, str]] = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
}
"""Hadoop's packages by scheme. Their version must be that of the Hadoop in Spark."""
CLASSES: Final[Mapping[str, str]] = {
    "S3AFileSystem": "s3a",
    "AzureBlobFileSystem": "abfs",
    "SecureAzureBlobFileSystem": "abfss",
}
"""Schemes that Hadoop knows without having the jars, by the class in its error."""
NO_SCHEME: Final = re.compile(r'No FileSystem for scheme "([^"]+)"')
NO_CLASS: Final = re.compile(r"Class \S*?(\w*FileSystem) not found")
NO_ANSWER: Final = re.compile(r"Call From \S+ to (\S+) failed on")
NO_HOST: Final = re.compile(r"UnknownHostException: (\S+)")
HADOOP: Final = "hadoop-client-api-*.jar"


class NoFileSystem(MeshError):
    """Spark cannot read or write at a URL. The message names the scheme or the host, and what to do."""


def as_mesh_error(error: BaseException) -> MeshError:
    """A `NoFileSystem` if the error of Spark tells of one, otherwise a `MeshError` with Spark's reason."""
    sentence = unreachable(str(error), _hadoop_version())
    if sentence is not None:
        return NoFileSystem(sentence)
    return MeshError(f"Spark gave up: {reason_of(error)}")


def unreachable(said: str, hadoop: str) -> str | None:
    """The sentence for the text of an error. ``hadoop``: the version of Spark's Hadoop. None: the error has
    another cause."""
    if host := NO_HOST.search(said):
        return f"no host has the name {host[1].rstrip(':;,')}; correct the URL of the logs or of --out"
    if place := NO_ANSWER.search(said):
        return f"nothing answers at {place[1]}; start it, or correct the URL of the logs or of --out"
    found = NO_SCHEME.search(said)
    named = NO_CLASS.search(said)
    if found is None and (named is None or named[1] not in CLASSES):
        return None
    scheme = found[1] if found else CLASSES[named[1]] if named else ""
    if scheme == "s3":
        return f"Spark has no file system for s3: URLs; write s3a:, with {_option('s3a', hadoop)}"
    other = "" if scheme in PACKAGES else "correct the URL, or "
    return f"Spark has no file system for {scheme}: URLs; {other}add its jars with {_option(scheme, hadoop)}"


def _option(scheme: str, hadoop: str) -> str:
    package = f"{PACKAGES[scheme]}:{hadoop}" if scheme in PACKAGES else "GROUP:NAME:VERSION"
    return f"--conf spark.jars.packages={package}"


def _hadoop_version() -> str:
    from pyspark.find_spark_home import _find_spark_home

    jars = sorted(Path(_find_spark_home(), "jars").glob(HADOOP))
    return jars[0].stem.rpartition("-")[2] if jars else "VERSION"
