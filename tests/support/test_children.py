"""Processes that tests start end when the tests are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import ends_with_tests

ROOT = Path(__file__).resolve().parents[2]
STARTS = """
import subprocess, sys
from tests.support.children import ends_with_tests
child = subprocess.Popen(ends_with_tests(["sleep", "600"]))
print(child.pid, flush=True)
sys.stdin.read()
"""
BY_HAND = ('"mesh", "broker"', '"broker", "--', "BROKER, ", '"mesh", *arguments')


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_child_ends_when_its_parent_is_killed() -> None:
    """Brokers of tests ran on forever when pytest was killed: nobody was left to end them."""
    # The child inherits standard output, so that the end of the stream is the end of both.
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdin is not None and parent.stdout is not None
    with parent.stdin, parent.stdout:
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        try:
            assert parent.stdout.read() == b""
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise


def test_the_command_keeps_its_process_id_its_environment_and_its_exit_code() -> None:
    code = "import os, sys; print(os.getpid(), os.environ['WORD']); sys.exit(7)"
    child = subprocess.Popen(
        ends_with_tests([sys.executable, "-c", code]),
        stdout=subprocess.PIPE,
        env={**os.environ, "WORD": "kept"},
        text=True,
    )
    said, _ = child.communicate(timeout=240)
    assert (said, child.returncode) == (f"{child.pid} kept\n", 7)


def test_broker_processes_that_tests_start_end_with_the_tests() -> None:
    """Each module that starts a broker process says so by `ends_with_tests`."""
    missing = []
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        starts = "subprocess." in text and any(mark in text for mark in BY_HAND)
        if starts and "ends_with_tests" not in text and not {"base-tests", "mixed"} & set(path.parts):
            missing.append(str(path.relative_to(ROOT)))
    assert not missing
