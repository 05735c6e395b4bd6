"""The page shows the suite's declarations; the suite leaves no item out; a failure would show."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .checklist import ITEMS
from .declaring import PYNNG, REGISTER, Case, Declaration
from .table import NOT_APPLICABLE, PAGE, ROOT, Outcome, declared, load, render, verdict


def test_there_are_180_items_each_proven_or_not_applicable() -> None:
    load()
    assert list(ITEMS) == list(range(1, 181))
    proven = {number for each in REGISTER.declarations for case in each.cases for number in case.items}
    assert proven | set(NOT_APPLICABLE) == set(ITEMS)
    assert not proven & set(NOT_APPLICABLE)


def test_the_page_is_current() -> None:
    load()
    wanted = render(declared())
    assert PAGE.read_text() == wanted, "run python -m tests.conformance.table"


def test_names_of_tests_are_unique_as_keys_of_results() -> None:
    load()
    names = [each.test for each in REGISTER.declarations]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_failures_are_shown() -> None:
    load()
    results = dict(declared())
    failed = next(key for key in results if key[1].startswith("040-"))
    results[failed] = Outcome.FAILED
    page = render(results)
    assert "FAILS: 1 of" in next(line for line in page.splitlines() if line.startswith("| 40 |"))
    missing = render({key: value for key, value in results.items() if key != failed})
    assert "not run: 1 of" in next(line for line in missing.splitlines() if line.startswith("| 40 |"))


def test_known_failures_are_shown_as_not_proven() -> None:
    assert verdict(40, [Outcome.PASSED, Outcome.EXPECTED]) == "fails, known: 1 of 2"
    assert verdict(40, []) == "NOT PROVEN"
    case = Case((40,), "tcp", (PYNNG,))
    assert Declaration("test", (case,), {case: "why"}, ("why",)).known[case] == "why"


RECORDED = """
import pytest
from tests.conformance.table import Outcome, Recorder

recorder = Recorder()
options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "036-inproc or 037-tcp"]
suites = ["tests/conformance/test_pair.py", "tests/protocols/interop/test_every_pattern.py"]
assert pytest.main([*options, *suites], plugins=[recorder]) == 0
assert {case.partition("-")[0] for _, case in recorder.results} == {"036", "037"}
assert set(recorder.results.values()) == {Outcome.PASSED}
"""


@pytest.mark.process
@pytest.mark.interop
def test_results_are_recorded_of_cases_here_and_in_a_child() -> None:
    pytest.importorskip("pynng")
    ran = subprocess.run(
        [sys.executable, "-c", RECORDED], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
