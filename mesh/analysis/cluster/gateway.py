"""Spark's Java as a process of our own, from its start to its end.

Spark's `launch_gateway` gives no control over it before it is up, and none over its Python workers. Here it
leads a session of the system, and everything in that session ends with it. The handshake is Spark's: the Java
writes port and secret to a file, and the environment passes them to `launch_gateway`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from mesh.analysis.cluster.ending import processes_of_session
from mesh.errors import MeshError

LOOK_S: Final = 0.05
GRACE_S: Final = 10.0
"""A stopped Spark has nothing to do but remove its folders."""


class DriverJava:
    """The process. ``scratch`` is a folder for its files, which its maker removes.

    ``held`` keeps an interrupt from falling between the start of the process and the assignment of its name.
    """

    def __init__(self, scratch: Path, held: Callable[[], AbstractContextManager[None]]) -> None:
        self._scratch = scratch
        self._held = held
        self._said = scratch / "java.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: Any = None

    def start(self, settings: Mapping[str, str], environ: Mapping[str, str]) -> Any:
        """Start it and return py4j's gateway to it.

        Raises:
            MeshError: it ended at once; the reason is in `said`.
        """
        from pyspark.find_spark_home import _find_spark_home
        from pyspark.java_gateway import launch_gateway

        met = self._scratch / "gateway"
        conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        command = [
            os.path.join(_find_spark_home(), "bin", "spark-submit"),
            *conf,
            *shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")),
        ]
        env = {**environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(met)}
        with self._said.open("wb") as said, self._held():
            self._process = process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # its end of file tells the Java that this program has ended
                stdout=said,
                stderr=said,
                env=env,
                start_new_session=True,
            )
        while not met.exists():
            if process.poll() is not None:
                raise MeshError("the Java ended before Spark was up")
            time.sleep(LOOK_S)
        port, secret = _read_meeting(met)
        told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        os.environ.update(told)
        try:
            self._gateway = launch_gateway()  # type: ignore[no-untyped-call]
            return self._gateway
        finally:
            for name in told:
                os.environ.pop(name, None)

    @property
    def said(self) -> str:
        """The output of the launcher and the Java: noise, unless they failed."""
        try:
            return self._said.read_text(errors="replace")
        except OSError:
            return ""

    def kill(self) -> None:
        """End it at once, with everything that it started. Safe in a signal handler, and more than once."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def end(self, grace_s: float = GRACE_S) -> None:
        """Let it end, and kill it and its Python workers if it does not. Returns when they have ended."""
        process = self._process
        if process is None:
            return
        self._stop_releases()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            process.wait()
        for pid in processes_of_session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _stop_releases(self) -> None:
        """Stop py4j from releasing objects in the Java.

        A thread of py4j does so up to a second after this program has dropped an object. If the Java has
        ended meanwhile, that thread logs a traceback.
        """
        if self._gateway is not None:
            self._gateway._gateway_client.is_connected = False


def _read_meeting(path: Path) -> tuple[int, str]:
    """The port, then the secret's length and bytes, big-endian. The Java renames the file into place."""
    data = path.read_bytes()
    port, length = struct.unpack_from("!ii", data)
    return port, data[8 : 8 + length].decode()
