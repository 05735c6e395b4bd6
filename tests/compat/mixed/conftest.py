"""Runs coroutine tests as the base's own conftest does, in the process of the base's acceptance tests."""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect

import pytest

assert importlib.metadata.version("mangrove-mesh") == "0.1.0", "these tests are to be run by the base's code"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
