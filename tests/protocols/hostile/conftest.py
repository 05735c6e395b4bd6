"""No error reaches the event loop's exception handler, whatever a peer does."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def nothing_escapes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every event loop of the test reports here."""
    told: list[dict[str, Any]] = []

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        told.append(context)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_exception_handler", report)
    yield
    assert told == []


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """Thousands of connections, both ends in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(params=["tcp", "ipc"])
def scheme(request: pytest.FixtureRequest) -> str:
    """A scheme of plain streams."""
    name: str = request.param
    return name
