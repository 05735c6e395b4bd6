"""NNG over WebSocket and TLS, or while it is cut off, in a process of its own that may die.

NNG 1.11 crashes now and then when connections over its WebSocket or TLS close ("panic: pthread_mutex_lock:
Invalid argument", or a segmentation fault): about once in a thousand of our tests, and it takes the process
with it. Over TCP it does so in a send while its connections are cut one after the other: three of eighty runs
ended in a segmentation fault, and one of the whole suite never ended. So these cases are marked ``isolated``
and left out of an ordinary run; `run` runs them in a child and, when the child dies or is stuck, goes on in
another one where it stopped. A test during which it does so `ATTEMPTS` times has failed.

Stuck is beyond the time in which pytest ends a test that waits in Python, ours among them.

To run one by hand: ``MANGROVE_ISOLATED=1 pytest tests/conformance -k 043-ws-pynng``
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SUITES: Final = ("tests/conformance", "tests/protocols/interop")
VARIABLE: Final = "MANGROVE_ISOLATED"
ATTEMPTS: Final = 4
STUCK_S: Final = 75.0
"""pytest ends a test after 60 s."""


def run(journal: Path, suites: Sequence[str] = SUITES, stuck_s: float = STUCK_S) -> list[dict[str, str]]:
    """All reports of the isolated tests: ``test``, ``when``, ``outcome``, ``case``, ``text``."""
    deaths: Counter[str] = Counter()
    journal.touch()
    environment = {**os.environ, VARIABLE: "1"}
    while True:
        ran = subprocess.run(
            [sys.executable, "-m", "tests.conformance.isolation", str(journal), str(stuck_s), *suites],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        entries = list(read(journal))
        amid_a_test = bool(entries) and entries[-1]["when"] != "end"
        if ran.returncode in (0, 1) and not amid_a_test:
            return entries
        assert ran.returncode < 0 or amid_a_test, ran.stdout[-4000:] + ran.stderr[-4000:]
        unfinished = entries[-1]["test"] if entries else ""
        deaths[unfinished] += 1
        if deaths[unfinished] >= ATTEMPTS:
            text = f"NNG died or was stuck {ATTEMPTS} times during this test:\n{ran.stderr[-4000:]}"
            append(
                journal, {"test": unfinished, "when": "call", "outcome": "failed", "case": "", "text": text}
            )
            append(journal, {"test": unfinished, "when": "end", "outcome": "", "case": "", "text": ""})


def read(journal: Path) -> Iterator[dict[str, str]]:
    for line in journal.read_text().splitlines():
        yield json.loads(line)


def append(journal: Path, entry: dict[str, str]) -> None:
    with journal.open("a") as file:
        file.write(json.dumps(entry) + "\n")


class Journal:
    """The child's pytest plugin: leaves out what is done, writes down what it does, and ends the child, with
    the stacks of all its threads, when it is stuck."""

    def __init__(self, path: Path, stuck_s: float) -> None:
        self._stuck_s = stuck_s
        self._stderr = os.dup(2)  # pytest captures the other one
        self._done = {entry["test"] for entry in read(path) if entry["when"] == "end"}
        self._file: IO[str] = path.open("a", buffering=1)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if item.nodeid in self._done]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in self._done]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(nodeid, "start")
        faulthandler.dump_traceback_later(self._stuck_s, exit=True, file=self._stderr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = str(dict(report.user_properties).get("conformance", ""))
        outcome = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
        self._write(report.nodeid, str(report.when), outcome, told, report.longreprtext)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._write(nodeid, "end")

    def _write(self, test: str, when: str, outcome: str = "", case: str = "", text: str = "") -> None:
        entry = {"test": test, "when": when, "outcome": outcome, "case": case, "text": text}
        self._file.write(json.dumps(entry) + "\n")


def main(path: str, stuck_s: str, *suites: str) -> int:
    options = ["-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "-m", "isolated"]
    status = pytest.main([*options, *suites], plugins=[Journal(Path(path), float(stuck_s))])
    return 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else int(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
