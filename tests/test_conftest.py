"""The suite's own rules work: each is tested by breaking it in a suite of one file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INTERRUPTED = """
import signal
import subprocess
import sys


def test_who_is_interrupted_ends():
    command = [sys.executable, "-c", "print(flush=True); input()"]
    child = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1)
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    assert child.wait(120) != 0
    child.communicate()
"""
SUITE = """
import asyncio

import pytest


@pytest.mark.interop
def test_with_a_missing_peer():
    pytest.skip("no nngcat")


def test_skipped_for_another_reason():
    pytest.skip("not today")


async def test_that_is_tidy():
    await asyncio.sleep(0)


async def test_that_leaves_a_task():
    asyncio.get_running_loop().create_task(asyncio.sleep(60))
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    interop\n    spark\n    process\n    long\n    xdist_group\n"
    )
    (tmp_path / "test_it.py").write_text(SUITE)
    return tmp_path


def outcome(suite: Path, *before: str, options: tuple[str, ...] = (), **environment: str) -> str:
    """The output of pytest. ``before`` is the command that runs it."""
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("MANGROVE_", "PYTEST_"))
    }
    ran = subprocess.run(
        [*before, sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *options],
        cwd=suite,
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return ran.stdout


LONG = """
import pytest

@pytest.mark.process
def test_a_process(): ...

def test_in_a_moment(): ...
"""


def test_each_test_is_run_by_one_of_the_two_commands(suite: Path) -> None:
    (suite / "test_it.py").write_text(LONG)
    (suite / "acceptance").mkdir()
    (suite / "acceptance/test_all.py").write_text("def test_all(): ...")
    said = outcome(suite, options=("-m", "not long"))
    assert "PASSED test_it.py::test_in_a_moment" in said and "1 passed, 2 deselected" in said
    assert "2 passed, 1 deselected" in outcome(suite, options=("-m", "long"))


def test_a_test_that_leaves_a_task_fails(suite: Path) -> None:
    said = outcome(suite)
    assert "FAILED test_it.py::test_that_leaves_a_task" in said
    assert "the test left tasks running" in said
    assert "1 failed, 1 passed, 2 skipped" in said


def test_ci_does_not_let_interop_be_skipped(suite: Path) -> None:
    said = outcome(suite, MANGROVE_REQUIRE_INTEROP="1")
    assert "FAILED test_it.py::test_with_a_missing_peer" in said
    assert "may not be skipped here" in said
    assert "no nngcat" in said
    assert "2 failed, 1 passed, 1 skipped" in said


def test_interrupts_reach_processes_of_tests_although_a_background_shell_ignores_them(suite: Path) -> None:
    (suite / "test_it.py").write_text(INTERRUPTED)
    said = outcome(suite, "/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
    assert "1 passed" in said, said


def test_a_module_that_skips_itself_counts_as_interop_by_its_place(suite: Path) -> None:
    (suite / "interop").mkdir()
    (suite / "interop" / "test_nng.py").write_text("import pytest\npytest.importorskip('no_such_engine')\n")
    assert "error" not in outcome(suite)
    assert "1 error" in outcome(suite, MANGROVE_REQUIRE_INTEROP="1")
