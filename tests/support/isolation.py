"""Tests marked ``isolated`` run in a child process, which they may end without ending the others.

NNG 1.11 crashes occasionally as connections close ("panic: pthread_mutex_lock: Invalid argument", or a
segmentation fault): over WebSocket and TLS in about one of a thousand tests, over TCP more rarely. A few
times one of its calls never returned. Both end the process: one run of the whole suite left only half a
traceback. That is not a failure of ours and no reason to lose a run. So no test loads NNG into a process that
others run in, and `Isolating` enforces that.

It gives each isolated test to a child, which collects the same tests, runs the requested one and sends its
reports back. A child that dies, or is silent for so long that it must be stuck, is replaced, and the test
begins again. A test during which that happens `ATTEMPTS` times has failed. The last lines of a run report how
often it happened and where.

To run such tests in the process of pytest itself, for a debugger: ``MANGROVE_ISOLATED=1 pytest ...``
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import pytest

VARIABLE: Final = "MANGROVE_ISOLATED"
"""Set in a child, where isolated tests run like any others."""
ATTEMPTS: Final = 4
TIMEOUT_S: Final = 60
"""When pytest ends a test that waits in Python. NNG sometimes never returns, so that the limit is shorter
than that of other tests."""
STUCK_S: Final = 75.0
"""When the watchdog ends a child in which not even that has helped."""
SPARE_S: Final = 5.0
"""A child that is stuck says so by itself, this long before anybody asks."""
GRACE_S: Final = 10.0
"""How long a silent child may take to send the rest before it is killed."""
STARTING_S: Final = 120.0
OUTPUT_MAX: Final = 200_000
"""Maximum characters of a dead child's output in a failure. A stack of 100 frames in a folder with a long
name has some 20 000, and the relevant line may be its first or its last."""
ENDED: Final = "ended a process"
"""The name of the property that a report has for each process the test ended."""
THREADS: Final = Path("/proc/self/task")

Message = dict[str, Any]


class Died(Exception):
    """The child ended, or was killed because it was stuck; the text is its output since the test began."""


class Child:
    """A pytest process that waits to be asked for tests by their ids."""

    def __init__(self, config: pytest.Config, paths: list[str], stuck_s: float) -> None:
        self._line, theirs = Pipe()
        self._said: IO[bytes] = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "tests.support.isolation", str(theirs.fileno()), str(stuck_s)]
        options = ["--rootdir", str(config.rootpath), "-p", "no:cacheprovider", "-p", "no:xdist"]
        # The child has a watchdog of its own.
        options += ["-o", "faulthandler_timeout=0", "-o", f"timeout={TIMEOUT_S}"]
        if config.inipath is not None:
            options += ["-c", str(config.inipath)]
        self._process = subprocess.Popen(
            [*command, *options, *paths],
            cwd=config.invocation_params.dir,
            env={**os.environ, VARIABLE: "1"},
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._stuck_s = stuck_s
        self._began = 0
        self._hear(STARTING_S)

    def run(self, test: str) -> Iterator[Message]:
        """The reports of one test as they come. Raises `Died`."""
        self._began = os.fstat(self._said.fileno()).st_size
        try:
            self._line.send(test)
        except OSError:
            self._give_up()
        while "end" not in (message := self._hear(self._stuck_s + SPARE_S)):
            yield message

    def close(self) -> None:
        """End it. It has nothing to tidy up, and NNG may hang when it tries."""
        self._process.kill()
        self._process.wait()
        self._line.close()
        self._said.close()

    def _hear(self, limit_s: float) -> Message:
        try:
            if self._line.poll(limit_s):
                message: Message = self._line.recv()
                return message
        except (EOFError, OSError):
            pass
        self._give_up()

    def _give_up(self) -> NoReturn:
        try:
            how = self._process.wait(GRACE_S)  # it may be on its way out, with more to say
        except subprocess.TimeoutExpired:
            self._process.kill()
            how = self._process.wait()
        self._said.seek(self._began)
        text = abridged(self._said.read().decode(errors="replace"), OUTPUT_MAX)
        self.close()
        named = signal.Signals(-how).name if how < 0 else f"exit code {how}"
        raise Died(f"the child ended: {named}\n{text}")


class Isolating:
    """The plugin of the process that runs all other tests."""

    def __init__(self, stuck_s: float = STUCK_S) -> None:
        self._stuck_s = stuck_s
        self._paths: list[str] = []
        self._child: Child | None = None
        self._deaths: Counter[str] = Counter()
        self._intruded = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        isolated = [item for item in items if item.get_closest_marker("isolated")]
        self._paths = list(dict.fromkeys(str(item.path) for item in isolated))
        for item in isolated:
            item.add_marker(pytest.mark.timeout(0), append=False)  # the child has the limit

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if item.get_closest_marker("isolated") is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # pytest leaves a module's fixtures standing for its next test, which here was to be this one
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        deaths = 0
        while True:
            try:
                if self._child is None:
                    self._child = Child(item.config, self._paths, self._stuck_s)
                messages = list(self._child.run(item.nodeid))
            except Died as died:
                self._child = None
                deaths += 1
                if deaths == ATTEMPTS:
                    reports = [failed(item, f"{ATTEMPTS} processes ended in this test; the last:\n{died}")]
                    break
            else:
                hook = item.config.hook
                reports = [
                    hook.pytest_report_from_serializable(config=item.config, data=each) for each in messages
                ]
                break
        reports[0].user_properties += [(ENDED, True)] * deaths
        return reports

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        yield
        if not self._intruded and nng_runs_here():
            self._intruded = True
            pytest.fail("NNG runs in the process of the tests, which it may end: mark the test `isolated`")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._deaths[report.nodeid] += sum(name == ENDED for name, _ in report.user_properties)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if deaths := self._deaths.total():
            terminalreporter.section("isolated tests")
            terminalreporter.line(f"{deaths} process(es) ended, and the test that ran there began again:")
            for test, count in self._deaths.items():
                if count:
                    terminalreporter.line(f"{count} x {test}")

    def pytest_sessionfinish(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


class Obeying:
    """The plugin of a child: runs the requested test and reports the outcome. When it is stuck, it ends
    itself with the stacks of all its threads."""

    def __init__(self, line: Connection, stuck_s: float) -> None:
        self._line = line
        self._stuck_s = stuck_s
        self._stderr = os.dup(2)  # pytest captures the other one

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        if session.testsfailed:
            raise session.Interrupted("what was to be run here could not be collected")
        items = {item.nodeid: item for item in session.items}
        self._line.send({"ready": len(items)})
        while True:
            try:
                test = self._line.recv()
            except EOFError:
                os._exit(0)  # the parent has ended, and NNG may hang in its cleanup
            faulthandler.dump_traceback_later(self._stuck_s, exit=True, file=self._stderr)
            session.config.hook.pytest_runtest_protocol(item=items[test], nextitem=None)
            faulthandler.cancel_dump_traceback_later()
            self._line.send({"end": test})

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self._line.send(hook.pytest_report_to_serializable(config=self._config, report=report))


def abridged(text: str, size_max: int) -> str:
    """The text, or where it is longer its first and last ``size_max / 2`` characters."""
    half = size_max // 2
    left_out = len(text) - 2 * half
    return text if left_out <= 0 else f"{text[:half]}\n... {left_out} characters left out ...\n{text[-half:]}"


def failed(item: pytest.Item, text: str) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=text,
        when="call",
    )


def nng_runs_here() -> bool:
    """NNG names its threads; where the system does not tell them, nobody asks."""
    try:
        return any(name.read_text().startswith("nng:") for name in THREADS.glob("*/comm"))
    except OSError:  # a thread ended as it was asked
        return False


def main(descriptor: str, stuck_s: str, *options: str) -> int:
    return int(pytest.main(list(options), plugins=[Obeying(Connection(int(descriptor)), float(stuck_s))]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
