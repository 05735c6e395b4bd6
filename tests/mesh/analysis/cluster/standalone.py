"""A standalone cluster of Spark's own, started from the wheel: a master and workers on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

WAIT_S = 200.0
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""For Java that lives for seconds: its better compiler would not pay."""


@dataclass(frozen=True)
class Cluster:
    """``url`` is the master's. ``folder`` has the output of its processes."""

    url: str
    folder: Path

    def said(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))


@contextmanager
def standalone(
    folder: Path,
    java_home: Path,
    python: Path,
    *,
    address: str = "127.0.0.1",
    workers: Sequence[tuple[str, Sequence[str]]] = (("127.0.0.1", ()), ("127.0.0.1", ())),
    memory: str = "1g",
) -> Iterator[Cluster]:
    """A master at ``address``, and a worker of one core for each address and command prefix."""
    import pyspark

    folder.mkdir(parents=True, exist_ok=True)
    home = Path(pyspark.__file__).parent
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith(("SPARK", "PYSPARK", "JAVA"))
    }
    environ |= {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PATH": f"{python.parent}:{environ['PATH']}",  # executors find their Python as they would elsewhere
    }
    environ.pop("PYTHONPATH", None)
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, before: Sequence[str], *arguments: str, local_ip: str) -> None:
        with (folder / f"{name}.log").open("wb") as said:
            command = [*before, str(home / "bin" / "spark-class"), *arguments]
            environment = environ | {"SPARK_LOCAL_IP": local_ip}
            started.append(
                subprocess.Popen(
                    command, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
                )
            )

    port, page = _free_port(address), _free_port(address)
    deploy = "org.apache.spark.deploy"
    try:
        start(
            "master",
            (),
            f"{deploy}.master.Master",
            *("--host", address, "--port", str(port), "--webui-port", str(page)),
            local_ip=address,
        )
        cluster = Cluster(f"spark://{address}:{port}", folder)
        _wait_until(cluster, lambda: _workers(address, page) is not None)
        for number, (own, before) in enumerate(workers):
            start(
                f"worker-{number}",
                before,
                f"{deploy}.worker.Worker",
                *("--host", own, "--cores", "1", "--memory", memory, "--webui-port", "0", cluster.url),
                local_ip=own,
            )
        _wait_until(cluster, lambda: _workers(address, page) == len(workers))
        yield cluster
    finally:
        for process in reversed(started):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def bare_python(folder: Path) -> Path:
    """An interpreter of this version without any packages."""
    import venv

    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])


def _workers(address: str, page: int) -> int | None:
    try:
        with urllib.request.urlopen(f"http://{address}:{page}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError, KeyError, urllib.error.URLError):
        return None


def _wait_until(cluster: Cluster, condition: object) -> None:
    assert callable(condition)
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, cluster.said()
        time.sleep(0.2)
