"""Fixtures of the suite: the case a test runs for, and the link of its two engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from .declaring import PYNNG, Case
from .links import Link


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    value: Case = request.param
    if PYNNG in value.pair:
        pytest.importorskip("pynng")
    return value


@pytest.fixture
def link(case: Case, tmp_path: Path) -> Link:
    return Link(case, tmp_path)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """NNG has no Star0: those combinations of a case and a kind do not exist."""
    absent = [each for each in items if wants_star_of_nng(each)]
    if absent:
        config.hook.pytest_deselected(items=absent)
        items[:] = [each for each in items if each not in absent]


def wants_star_of_nng(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None) and item.callspec.params  # type: ignore[attr-defined]
    case = (parameters or {}).get("case")
    return isinstance(case, Case) and PYNNG in case.pair and "Star0" in parameters.values()
