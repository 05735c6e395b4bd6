"""Runs ``async def`` tests on a fresh event loop, in debug-free asyncio, and fails those that leave tasks behind."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

ASYNC_TEST_TIMEOUT_S = 45.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A coroutine test is run to its end; tasks it left running are a failure, not a warning."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments: dict[str, Any] = {
        name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames
    }

    async def run() -> None:
        async with asyncio.timeout(ASYNC_TEST_TIMEOUT_S):
            await pyfuncitem.obj(**arguments)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"the test left tasks running: {left}"

    asyncio.run(run())
    return True
