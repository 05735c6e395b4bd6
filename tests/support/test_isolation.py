"""An isolated test has one outcome whatever happens to its process, and the other tests have theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .isolation import VARIABLE, abridged

ROOT = Path(__file__).parents[2]
CONFTEST = """
import os
import pytest
from tests.support.isolation import VARIABLE, Isolating

def pytest_configure(config):
    config.addinivalue_line("markers", "isolated")
    if VARIABLE not in os.environ:
        config.pluginmanager.register(Isolating(float(os.environ.get("STUCK_S", 20))))
"""
HEAD = """
import os, pathlib, signal, time
import pytest

HERE = os.getpid()
isolated = pytest.mark.isolated

def first_time(name):
    been = pathlib.Path(__file__).with_name(name)
    if been.exists():
        return False
    been.touch()
    return True
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return suite_in(tmp_path)


def suite_in(folder: Path) -> Path:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def said(suite: Path, tests: str, *options: str, **environment: str) -> str:
    """The output of pytest for a file of these tests."""
    (suite / "test_it.py").write_text(HEAD + tests)
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("MANGROVE_", "PYTEST_"))
    }
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rA", "-p", "no:cacheprovider", *options],
        cwd=suite,
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return ran.stdout + ran.stderr


OUTCOMES = """
process = {}

@pytest.fixture(scope="module")
def shared():
    yield os.getpid()

def test_first(shared):
    process["ours"] = shared

@isolated
def test_passes(shared):
    assert shared == os.getpid() and "ours" not in process

def test_after_it(shared):
    assert shared == process.get("ours", shared) == os.getpid()

@isolated
def test_fails():
    assert 1 == 2

@isolated
def test_skips():
    pytest.skip("no peer")

@isolated
@pytest.mark.xfail(strict=True)
def test_is_known_to_fail():
    assert False

@isolated
@pytest.mark.parametrize("word", ["a b", "\\n"])
def test_takes(word, record_property):
    record_property("word", word)

@isolated
def test_in_the_same_child(shared):
    assert shared == os.getpid()
"""


@pytest.mark.process
@pytest.mark.parametrize("options", [(), ("-n", "2"), ("--setup-show",)])
def test_each_outcome_is_reported_as_without_isolation(suite: Path, options: tuple[str, ...]) -> None:
    text = said(suite, OUTCOMES, *options)
    assert "1 failed, 6 passed, 1 skipped, 1 xfailed" in text, text
    assert "assert 1 == 2" in text and "no peer" in text
    assert "isolated tests" not in text


DYING = """
@isolated
def test_first(): ...

@isolated
def test_that_dies():
    if {always} or first_time("died"):
        os.kill(os.getpid(), signal.SIGSEGV)

@isolated
def test_last(): ...
"""


@pytest.mark.process
def test_a_test_whose_process_dies_is_run_again_and_the_death_is_reported(suite: Path) -> None:
    text = said(suite, DYING.replace("{always}", "False"))
    assert "3 passed" in text, text
    assert "1 process(es) ended" in text and "1 x test_it.py::test_that_dies" in text


@pytest.mark.process
@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_test_whose_process_always_dies_fails_alone(suite: Path, options: tuple[str, ...]) -> None:
    text = said(suite, DYING.replace("{always}", "True"), *options)
    assert "1 failed, 2 passed" in text, text
    assert "4 processes ended in this test" in text and "SIGSEGV" in text and "in test_that_dies" in text
    assert "4 process(es) ended" in text


STUCK = """
@isolated
def test_first(): ...

@isolated
def test_second():
    if {always} or first_time("stuck"):
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()))  # as a call in C may be
        time.sleep(600)

@isolated
def test_third(): ...
"""


@pytest.mark.process
@pytest.mark.parametrize("always", [False, True])
def test_a_child_that_hangs_is_ended_and_the_test_is_run_again(suite: Path, always: bool) -> None:
    """One that is always stuck fails with the line where it is."""
    text = said(suite, STUCK.replace("{always}", str(always)), STUCK_S="1")
    assert ("1 failed, 2 passed" if always else "3 passed") in text, text
    assert not always or "in test_second" in text


STUCK_DEEP_DOWN = """
def descend(depth):
    if depth:
        return descend(depth - 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()))
    the_line_that_is_stuck()

def the_line_that_is_stuck():
    time.sleep(600)

@isolated
def test_it():
    descend(60)
"""


@pytest.mark.process
def test_the_first_line_of_a_long_stack_is_shown_for_any_length_of_the_path(tmp_path: Path) -> None:
    folder = tmp_path / ("a long nåme " * 12)
    folder.mkdir()
    text = said(suite_in(folder), STUCK_DEEP_DOWN, STUCK_S="1")
    assert "1 failed" in text and "in the_line_that_is_stuck" in text, text


TALKING = """
@isolated
def test_first(capfd):
    with capfd.disabled():
        os.write(2, b"from the first")

@isolated
def test_second(capfd):
    with capfd.disabled():
        os.write(2, b"from the second")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.process
def test_a_dead_child_is_quoted_from_the_start_of_its_last_test(suite: Path) -> None:
    text = said(suite, TALKING)
    assert "1 failed, 1 passed" in text, text
    assert "from the second" in text and "from the first" not in text


def test_both_ends_of_a_text_that_is_too_long_are_kept() -> None:
    assert abridged("0123456789", 10) == "0123456789"
    assert abridged("0123456789x", 10) == "01234\n... 1 characters left out ...\n6789x"


@pytest.mark.process
def test_a_child_that_cannot_start_is_a_failure_with_its_output(suite: Path) -> None:
    tests = (
        f"if {VARIABLE!r} in os.environ:\n    raise RuntimeError('not here')\n\n@isolated\ndef test_it(): ..."
    )
    text = said(suite, tests)
    assert "1 failed" in text and "not here" in text, text


@pytest.mark.process
def test_isolated_tests_run_in_the_process_of_pytest_for_a_debugger(suite: Path) -> None:
    tests = "@isolated\ndef test_it():\n    assert os.getppid() == int(os.environ['STARTED_BY'])"
    assert "1 passed" in said(suite, tests, **{VARIABLE: "1", "STARTED_BY": str(os.getpid())})
    assert "1 failed" in said(suite, tests, STARTED_BY=str(os.getpid()))


NNG = """
def test_that_is_not_marked():
    import pynng
    pynng.Pair0().close()

def test_after_it(): ...
"""


@pytest.mark.interop
@pytest.mark.process
def test_nng_in_the_process_of_all_tests_is_found_where_it_came_in(suite: Path) -> None:
    text = said(suite, NNG)
    assert "ERROR test_it.py::test_that_is_not_marked" in text and "mark the test `isolated`" in text, text
    assert "2 passed, 1 error" in text
