"""NNG over WebSocket and TLS, or while it is cut off, in a process of its own that may die.

NNG 1.11 crashes now and then when connections over its WebSocket or TLS close ("panic: pthread_mutex_lock:
Invalid argument", or a segmentation fault): about once in a thousand of our tests, and it takes the process
with it. Elsewhere that was seen once, in a send while its connections were cut one after the other. So these
cases are marked ``isolated`` and left out of an ordinary run; `run` runs them in a child and, when the child
dies, goes on in another one where it stopped. A test during which it dies `ATTEMPTS` times has failed.

To run one by hand: ``MANGROVE_ISOLATED=1 pytest tests/conformance -k 043-ws-pynng``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SUITES: Final = ("tests/conformance", "tests/protocols/interop")
VARIABLE: Final = "MANGROVE_ISOLATED"
ATTEMPTS: Final = 4
TIMEOUT_S: Final = 240.0


def run(journal: Path) -> list[dict[str, str]]:
    """All reports of the isolated tests: ``test``, ``when``, ``outcome``, ``case``, ``text``."""
    deaths: Counter[str] = Counter()
    journal.touch()
    environment = {**os.environ, VARIABLE: "1"}
    while True:
        ran = subprocess.run(
            [sys.executable, "-m", "tests.conformance.isolation", str(journal)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        entries = list(read(journal))
        if ran.returncode >= 0 and ran.returncode in (0, 1):
            return entries
        assert ran.returncode < 0, ran.stdout[-4000:] + ran.stderr[-4000:]
        unfinished = entries[-1]["test"] if entries else ""
        deaths[unfinished] += 1
        if deaths[unfinished] >= ATTEMPTS:
            text = f"NNG died {ATTEMPTS} times during this test:\n{ran.stderr[-2000:]}"
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
    """The child's pytest plugin: leaves out what is done, writes down what it does."""

    def __init__(self, path: Path) -> None:
        self._done = {entry["test"] for entry in read(path) if entry["when"] == "end"}
        self._file: IO[str] = path.open("a", buffering=1)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if item.nodeid in self._done]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in self._done]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(nodeid, "start")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = str(dict(report.user_properties).get("conformance", ""))
        outcome = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
        self._write(report.nodeid, str(report.when), outcome, told, report.longreprtext)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(nodeid, "end")

    def _write(self, test: str, when: str, outcome: str = "", case: str = "", text: str = "") -> None:
        entry = {"test": test, "when": when, "outcome": outcome, "case": case, "text": text}
        self._file.write(json.dumps(entry) + "\n")


def main(path: str) -> int:
    arguments = ["-q", "-p", "no:cacheprovider", "-m", "isolated", *SUITES]
    status = pytest.main(arguments, plugins=[Journal(Path(path))])
    return 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
