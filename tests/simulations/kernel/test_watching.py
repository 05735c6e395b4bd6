"""The profiler sees what the fence cannot: clocks and randomness through names bound earlier."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from os import urandom
from random import choice, random
from time import monotonic
from typing import Any

import pytest

from simulations import Mesh, World
from simulations.kernel.guards import Escaped
from simulations.kernel.watching import watched
from simulations.world import Process

pytest_plugins = ["pytester"]

CALLS: dict[str, Callable[[], Any]] = {
    "datetime.datetime.now": lambda: datetime.now(UTC),
    "datetime.datetime.utcnow": lambda: datetime.utcnow(),
    "time.monotonic": lambda: monotonic(),
    "random.random": lambda: random(),
    "random.Random.choice": lambda: choice([1, 2]),
    "os.urandom": lambda: urandom(3),
}


def escapes(call: Callable[[], Any], *, strictly: bool) -> list[str]:
    async def main(process: Process) -> None:
        try:
            call()
        except Escaped:
            process.exposed = "refused"
        await process.stopping.wait()

    with World(1) as world:
        world.add_node("alpha", main).start()
        if strictly:
            with watched(world.fence):
                world.run_for(1)
        else:
            world.run_for(1)
        assert (world.node("alpha").exposed == "refused") is bool(world.fence.escapes)
        return world.fence.escapes


@pytest.mark.filterwarnings("ignore:.*utcnow:DeprecationWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_name_that_leads_past_the_fence_is_refused_by_the_watch_alone(name: str) -> None:
    assert escapes(CALLS[name], strictly=False) == []
    (sentence,) = escapes(CALLS[name], strictly=True)
    assert sentence.startswith(f"{name} was called by {__name__}:")


@pytest.mark.parametrize("call", [lambda: datetime.fromtimestamp(0, UTC), lambda: len([1])])
def test_calls_that_depend_only_on_their_arguments_are_allowed(call: Callable[[], Any]) -> None:
    assert escapes(call, strictly=True) == []


def test_brokers_and_clients_pass_the_watch_and_make_the_same_history_under_it() -> None:
    def digest(*, strictly: bool) -> str:
        with World(3) as world:
            if strictly:
                with watched(world.fence):
                    play(world)
            else:
                play(world)
            assert not world.fence.escapes and not world.failures
            return world.history.digest

    def play(world: World) -> None:
        mesh = Mesh(world, brokers=3)

        async def talk(client: Any) -> None:
            await client.publish("news.of.it", b"x")

        mesh.client("talker", talk)
        world.inject("crash", ["broker-2"], for_s=3)
        world.run_for(8)
        mesh.finish()

    assert digest(strictly=True) == digest(strictly=False)


def test_the_profiler_that_was_there_before_is_there_again() -> None:
    def theirs(*given: object) -> None:
        return None

    before = sys.getprofile()
    sys.setprofile(theirs)
    try:
        with World(1) as world, watched(world.fence):
            world.run_for(0.1)
        found = sys.getprofile()
    finally:
        sys.setprofile(before)
    assert found is theirs


def test_tests_ask_for_it_by_a_flag(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from datetime import datetime

        def test_it(world):
            async def main(process):
                datetime.now()
                await process.stopping.wait()

            world.add_node("alpha", main).start()
            world.run_for(1)
    """)
    plugin = ("-p", "pytest_mangrove")
    pytester.runpytest_subprocess(*plugin).assert_outcomes(passed=1)
    found = pytester.runpytest_subprocess(*plugin, "--simulation-strict")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["*datetime.datetime.now was called by test_*:5 inside a simulation; use *"])
