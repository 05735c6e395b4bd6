"""A mesh of real brokers, each a process on a separate host, and programs beside them."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from simulations.evidence.logs import log_rows
from simulations.world import EPOCH_S
from tests.differential.namespaces import Hosts
from tests.support.children import ends_with_tests

T = TypeVar("T")

START_S: Final = 60.0
STATS_S: Final = 1.0
TRIES: Final = 4
END_S: Final = 10.0
POLL_S: Final = 0.1
PORT: Final = 7770
PROGRAMS: Final = "tests.differential.programs"


class TooBusy(AssertionError):
    """Brokers could not keep their own times, so their logs do not reflect the faults."""


def on_time(play: Callable[[Path], T], folder: Path) -> T:
    """Play it again if the machine was too busy, a few times; each attempt has a separate folder."""
    folders = [folder / str(number) for number in range(TRIES)]
    for there in folders:
        there.mkdir()
    for there in folders[1:]:
        with suppress(TooBusy):
            return play(there)
    return play(folders[0])


class RealMesh:
    """A mesh whose logs and program output go to ``folder``."""

    def __init__(self, hosts: Hosts, folder: Path, brokers: Sequence[str]) -> None:
        self.hosts = hosts
        self.folder = folder
        self.brokers = tuple(brokers)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> RealMesh:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @property
    def now_s(self) -> float:
        """The time on the clock of `rows`."""
        return time.time() - EPOCH_S

    def url(self, name: str) -> str:
        return f"tcp://{self.hosts.address(name)}:{PORT}"

    def start(self, name: str, *arguments: str, period_s: float, deadline_s: float) -> None:
        """Start a broker."""
        command = (
            *("-m", "mesh", "broker", "--name", name, "--listen", self.url(name), "--mesh", "differential"),
            *("--state-dir", str(self.folder / name), "--log-dir", str(self.folder / "log")),
            *("--period", str(period_s), "--deadline", str(deadline_s), "--stats", str(STATS_S), *arguments),
        )
        self.run(name, name, command)

    def program(self, name: str, at: str, *arguments: object) -> None:
        """Start one of `tests.differential.programs` on a host."""
        self.run(name, at, ("-m", PROGRAMS, json.dumps(arguments)))

    def run(self, name: str, at: str, command: Sequence[str]) -> None:
        """Start Python on a host."""
        inside = self.hosts.inside(at, sys.executable, *command)
        self.processes[name] = self._stack.enter_context(_running(inside, self.folder / name))

    def tell(self, name: str, word: object) -> None:
        """Give a program a line."""
        there = self.processes[name].stdin
        assert there is not None
        there.write(f"{word}\n".encode())
        there.flush()

    def notes(self, name: str) -> list[Any]:
        """The output of a program: one JSON value a line."""
        lines = (self.folder / f"{name}.out").read_bytes().split(b"\n")
        return [json.loads(line) for line in lines[:-1]]

    def rows(self) -> list[dict[str, Any]]:
        """The rows that the brokers have logged."""
        return log_rows({path.name: path.read_bytes() for path in (self.folder / "log").glob("*")})

    def check_on_time(self, since_s: float, late_s: float, stopped: Sequence[str] = ()) -> None:
        """Raise `TooBusy` if a broker that was not stopped on purpose ran its timers later than that, or did
        not report it.
        """
        rows = self.rows()
        names = {row["node"]: row["name"] for row in rows if row["kind"] == "meta"}
        latest_s = max(
            (
                row["loop_late_ms_max"] / 1000
                for row in rows
                if row["kind"] == "stats" and row["at_s"] >= since_s and names[row["node"]] not in stopped
            ),
            default=math.inf,
        )
        if latest_s > late_s:
            raise TooBusy(f"a broker ran its timers {latest_s:.2f} s late")

    def wait_whole(self) -> None:
        """Wait until each broker sees all others alive, and has a link to them."""
        pairs = len(self.brokers) * (len(self.brokers) - 1)
        self.wait(lambda: self._views() == self._links() == pairs, "a whole mesh")

    def _views(self) -> int:
        alive = {
            (row["node"], row["subject"]): row["to_state"] == "alive"
            for row in self.rows()
            if row["kind"] == "mem" and row["node"] != row["subject"]
        }
        return sum(alive.values())

    def _links(self) -> int:
        up = {
            (row["node"], row["peer"]): row["state"] == "up" for row in self.rows() if row["kind"] == "link"
        }
        return sum(up.values())

    def wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + START_S
        while not condition():
            if time.monotonic() > deadline:
                said = "".join(path.read_text() for path in sorted(self.folder.glob("*.err")))
                raise AssertionError(f"not within {START_S:g} s: {what}; the processes said: {said}")
            time.sleep(POLL_S)


@contextmanager
def _running(command: Sequence[str], stem: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"MANGROVE_MESH_KEY": "a key of the test"}
    with open(f"{stem}.out", "wb") as output, open(f"{stem}.err", "wb") as errors:
        process = subprocess.Popen(
            ends_with_tests(command), stdin=subprocess.PIPE, stdout=output, stderr=errors, env=environment
        )
        assert process.stdin is not None
        try:
            yield process
        finally:
            process.stdin.close()
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
