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
