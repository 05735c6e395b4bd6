"""Fixtures of the suite: the case a test runs for, and the link of its two engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from .certificates import Certificates
from .declaring import PYNNG, Case
from .links import Link


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    value: Case = request.param
    if PYNNG in value.pair:
        pytest.importorskip("pynng")
    return value


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def link(case: Case, tmp_path: Path, request: pytest.FixtureRequest) -> Link:
    secure = case.transport in ("tls+tcp", "wss")
    return Link(case, tmp_path, request.getfixturevalue("certificates") if secure else None)
