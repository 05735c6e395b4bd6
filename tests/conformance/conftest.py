"""Fixtures of the suite: the case a test runs for, and the link of its two engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .declaring import PYNNG, Case
from .links import Link


@pytest.fixture
def case(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Case:
    value: Case = request.param
    record_property("conformance", f"{request.function.__name__} {value.id}")  # for the table
    if PYNNG in value.pair:
        pytest.importorskip("pynng")
    return value


@pytest.fixture
def link(case: Case, tmp_path: Path) -> Link:
    return Link(case, tmp_path)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    absent = [each for each in items if wants_star_of_nng(each)]
    if absent:
        config.hook.pytest_deselected(items=absent)
        gone = {id(each) for each in absent}
        items[:] = [each for each in items if id(each) not in gone]


def wants_star_of_nng(item: pytest.Item) -> bool:
    """NNG has no Star0, so those combinations of a case and a kind do not exist."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params if callspec is not None else {}
    case = parameters.get("case")
    return isinstance(case, Case) and PYNNG in case.pair and "Star0" in parameters.values()
