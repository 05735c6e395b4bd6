"""The page says what the suite declares; the suite leaves no item out; a failure would show."""

from __future__ import annotations

from .checklist import ITEMS
from .declaring import PYNNG, REGISTER, Case, Declaration
from .table import NOT_APPLICABLE, PAGE, Outcome, declared, load, render, verdict


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


def test_names_of_tests_are_unique_since_results_go_by_them() -> None:
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


def test_known_failures_are_shown_and_nothing_proven_is_told() -> None:
    assert verdict(40, [Outcome.PASSED, Outcome.EXPECTED]) == "fails, known: 1 of 2"
    assert verdict(40, []) == "NOT PROVEN"
    case = Case((40,), "tcp", (PYNNG,))
    assert Declaration("test", (case,), {case: "why"}, ("why",)).known[case] == "why"
