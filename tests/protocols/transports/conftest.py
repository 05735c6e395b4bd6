"""What tests of transports share."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["tcp", "ipc"])
def scheme(request: pytest.FixtureRequest) -> str:
    """Of a plain stream."""
    name: str = request.param
    return name
