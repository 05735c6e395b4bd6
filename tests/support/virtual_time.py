"""Async tests in virtual time: a test marked `virtual` runs as the only process of a simulated world.

Brokers, clients and sockets of the test are the real ones. Their sockets, disk and clock are simulated, so
waiting costs nothing and nothing is late on a busy machine. The test needs no other code for that:
``Environment.real()`` gives the world's environment, and what seeds itself by chance is seeded by the world.

A failure that nobody handled, a task left behind and a call that reaches out of the world fail the test.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from mesh.environment import Environment
from simulations import World
from simulations.kernel.storage import Disk, VirtualStorage
from simulations.programs.environment import journals_of, outboxes_of
from simulations.world import Process
from simulations.world.failures import Failure
from tests.support import waiting

LIMIT_S: Final = 240.0
"""How much virtual time a test may take; pytest ends one that takes too much real time."""
PATIENCE_S: Final = 20.0
"""How long tests wait for what must come about: nothing is late here."""


def run(test: Callable[[], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    """Run a test in a world; raises what the test raises, and fails it for what nobody handled."""
    ended: list[BaseException | None] = []

    async def main(process: Process) -> None:
        process.exposed = process
        try:
            await test()
        except BaseException as error:
            ended.append(error)
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
                raise
        else:
            ended.append(None)

    with World(seed, keep_failures=True) as world, pytest.MonkeyPatch.context() as patch:
        node = world.add_node("test", main)
        node.start()
        assert node.process is not None
        _replace_the_real_one(node.process, patch)
        patch.setattr(waiting, "patience_s", PATIENCE_S)
        world.run_until(
            lambda: not node.alive or any(map(_ends_the_test, world.failures)),
            timeout_s=LIMIT_S,
            what="the end of the test",
        )
        ended += [failure.exception for failure in world.failures if _ends_the_test(failure)]
        unhandled = [*map(str, world.failures), *map(str, world.fence.escapes)]
    if ended and ended[0] is not None:
        raise ended[0]
    if unhandled:
        pytest.fail("\n".join(["in the simulated world:", *unhandled]), pytrace=False)


def disk() -> Disk:
    """The disk of the world in which the calling test runs."""
    process = _process()
    return process.world.disk(process.host.name)


def step_clock(seconds: float) -> None:
    """Set the wall clock of the calling test forward. No time passes."""
    process = _process()
    process.world.wall_clock(process.host.name).offset_s += seconds


def _process() -> Process:
    process = getattr(asyncio.get_running_loop(), "machine", None)
    assert isinstance(process, Process), "the test is not marked `virtual`"
    return process


def _ends_the_test(failure: Failure) -> bool:
    """True if pytest raised it, as at its time limit, while a callback happened to run."""
    return isinstance(failure.exception, pytest.fail.Exception)


def _replace_the_real_one(process: Process, patch: pytest.MonkeyPatch) -> None:
    """Give code that asks for the real environment the world's, each time with randomness of its own."""
    number = itertools.count()
    seed = random.Random.seed
    world, host = process.world, process.host.name

    def environment() -> Environment:
        stream = f"environment {next(number)}"
        storage = VirtualStorage(process.world.disk(host), process.world.scheduler, process.pid)
        return Environment(
            storage=storage,
            rng=process.stream(stream),
            wall_time=process.wall_time,
            token=process.stream(f"token of {stream}").randbytes,
            host=host,
            pid=process.pid,
            rss_bytes=lambda: 0,
            open_journal=journals_of(process, storage, process.stream(f"sqlite of {stream}")),
            open_outbox=outboxes_of(process, storage, process.stream(f"outbox of {stream}")),
        )

    def seeded(self: random.Random, a: Any = None, version: int = 2) -> None:
        own = process.fence.holds and a is None
        seed(self, f"{world.seed}:{next(number)}" if own else a, version)

    patch.setattr(Environment, "real", staticmethod(environment))
    patch.setattr(random.Random, "seed", seeded)
