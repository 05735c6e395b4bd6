"""Waiting for conditions, never for time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

patience_s = 120.0
"""The time limit of waits that end early unless something is broken. A busy machine may need minutes for what
an idle one does at once; `tests.support.virtual_time` sets another limit."""


async def until(condition: Callable[[], object], timeout_s: float | None = None) -> None:
    """Let the loop run until the condition holds."""
    async with asyncio.timeout(timeout_s or patience_s):
        while not condition():
            await asyncio.sleep(0.001)


async def turns(count: int = 5) -> None:
    """Let what is already scheduled run."""
    for _ in range(count):
        await asyncio.sleep(0)
