"""Shared fixtures for tests of transports."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["tcp", "ipc"])
def scheme(request: pytest.FixtureRequest) -> str:
    """A scheme of plain streams."""
    name: str = request.param
    return name
