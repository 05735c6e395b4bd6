"""Shared fixtures for tests of sockets, dialers and listeners."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["tcp", "ipc", "inproc"])
def scheme(request: pytest.FixtureRequest) -> str:
    """The scheme of an address; a folder whose tests need streams has fewer."""
    name: str = request.param
    return name
