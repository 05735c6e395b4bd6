"""Waiting for conditions, never for time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], timeout_s: float = 120.0) -> None:
    """Let the loop run until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.001)


async def turns(count: int = 5) -> None:
    """Let what is already scheduled run."""
    for _ in range(count):
        await asyncio.sleep(0)
