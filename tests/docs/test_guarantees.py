"""The page of guarantees names a test for each place where one ends, and has all of these tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "guarantees.md"
TESTS = Path(__file__).with_name("guarantees")
NAMED = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")

Test = tuple[str, str]
"""File and name."""


def rows_of_ends() -> list[str]:
    """The rows below each heading "runs out when"."""
    rows, inside = [], False
    for line in PAGE.read_text().splitlines():
        if line.startswith("| runs out when |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            rows.append(line)
    return rows


def named(text: str) -> list[Test]:
    found = [(PAGE.parent / path, name) for name, path in NAMED.findall(text)]
    return [(path.resolve().name, name) for path, name in found if path.resolve().parent == TESTS]


def written() -> set[Test]:
    return {
        (path.name, node.name)
        for path in TESTS.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_each_place_where_a_guarantee_ends_has_one_test_of_its_own() -> None:
    rows = rows_of_ends()
    assert len(rows) > 20
    wrong = [row for row in rows if len(named(row.rpartition(" | ")[2])) != 1]
    assert not wrong, f"these rows do not end with one test below {TESTS}: {wrong}"
    tests = [test for row in rows for test in named(row)]
    assert len(tests) == len(set(tests)), "a test stands for two rows"


def test_the_page_and_the_tests_have_the_same_names() -> None:
    on_the_page = set(named(PAGE.read_text()))
    assert on_the_page == written(), (
        f"only on the page: {on_the_page - written()}; only in tests: {written() - on_the_page}"
    )
