"""Shared by all tests.

* ``async def`` tests run on a fresh event loop each, in debug-free asyncio; one that leaves tasks fails.
  Those marked ``virtual`` run in a simulated world; see `tests.support.virtual_time`.
* Tests marked ``spark`` run in one xdist worker, so that one session (and one Java) serves them all.
* Tests marked ``isolated`` run in a child process; see `tests.support.isolation`.
* Tests that take long, or start processes, are marked ``long`` here: ``make test`` leaves them to
  ``make test-all``.
* The starter of the tests may ignore interrupts, as a shell does for background jobs. Programs that the tests
  start do not ignore them, since otherwise none of these could be interrupted.
* With ``MANGROVE_REQUIRE_INTEROP`` in the environment (CI sets it) a skipped interop test is a failure: there
  a missing peer is a broken installation.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.isolation import VARIABLE, Isolating

ASYNC_TEST_TIMEOUT_S = 240.0
# With two cores shared with real brokers, any time limit on one example is a lottery.
settings.register_profile("mangrove", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mangrove")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
SPARK_TIMEOUT_S = 900
"""A Java that starts beside other work takes minutes instead of seconds."""
LONG_MARKS = ("process", "isolated", "spark")
LONG_PLACES = (
    "acceptance",
    "differential",
    "fuzz/test_guided.py",
    "protocols/hostile/test_deaf.py",
    "protocols/hostile/test_floods.py",
    "protocols/hostile/test_silence.py",
    "protocols/machines/test_notice.py",
    "simulations/runs",
    "simulations/scenarios/test_slow_start.py",
    "simulations/scenarios/test_shipped.py",
    "test_ci.py",
)
"""Folders and files below that of this module whose tests take long although their marks do not say so."""
REQUIRE_INTEROP = bool(os.environ.get("MANGROVE_REQUIRE_INTEROP"))


def pytest_configure(config: pytest.Config) -> None:
    if VARIABLE not in os.environ:
        config.pluginmanager.register(Isolating())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a coroutine test to its end. Tasks that it leaves running are a failure, not a warning."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    if pyfuncitem.get_closest_marker("virtual"):
        from tests.support.virtual_time import run as run_virtually  # loads the simulator

        run_virtually(lambda: pyfuncitem.obj(**arguments))
        return True

    own = pyfuncitem.get_closest_marker("timeout")
    limit_s = max(ASYNC_TEST_TIMEOUT_S, own.args[0]) if own is not None and own.args else ASYNC_TEST_TIMEOUT_S

    async def run() -> None:
        async with asyncio.timeout(limit_s):
            await pyfuncitem.obj(**arguments)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"the test left tasks running: {left}"

    asyncio.run(run())
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
        if takes_long(item):
            item.add_marker(pytest.mark.long)


def takes_long(item: pytest.Item) -> bool:
    return lies_in_a_long_place(item.path) or any(item.get_closest_marker(mark) for mark in LONG_MARKS)


@cache
def lies_in_a_long_place(module: Path) -> bool:
    """Called for each of twelve thousand tests, by every worker."""
    place = module.relative_to(Path(__file__).parent)
    return any(place.is_relative_to(long) for long in LONG_PLACES)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (
        REQUIRE_INTEROP
        and report.skipped
        and item.get_closest_marker("interop")
        and not hasattr(report, "wasxfail")
    ):
        _fail_instead_of_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself at import has no markers yet; its place in the tree decides."""
    report = yield
    if REQUIRE_INTEROP and report.skipped and "interop" in report.nodeid:
        _fail_instead_of_skip(report)
    return report


def _fail_instead_of_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"interop tests may not be skipped here (MANGROVE_REQUIRE_INTEROP is set): {reason}"
