"""The report of waiting tasks names the program's own lines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from simulations.world import Deadlock, Process, World


async def take(queue: asyncio.Queue[int]) -> int:
    return await queue.get()


async def locked(lock: asyncio.Lock) -> None:
    async with lock:
        pass


async def bare(future: asyncio.Future[None]) -> None:
    await future


async def numbers() -> AsyncIterator[int]:
    await asyncio.Event().wait()
    yield 1


async def iterating() -> None:
    async for _ in numbers():
        pass


async def waiting_in_every_way(process: Process) -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    async with asyncio.TaskGroup() as group:
        for coroutine in (take(asyncio.Queue()), locked(lock), iterating()):
            group.create_task(coroutine)
        group.create_task(bare(process.loop.create_future()))
        await through(process)


async def through(process: Process) -> None:
    await process.stopping.wait()


def test_each_waiting_task_names_its_own_line_and_the_call_in_it() -> None:
    with World(1) as world:
        world.add_node("alpha", waiting_in_every_way).start()
        world.run_for(1)
        said = re.sub(r":\d+", "", world.waiting())
    assert said == (
        "alpha: waiting_in_every_way in through (test_waiting.py) waits for Event.wait, "
        "take (test_waiting.py) waits for Queue.get, "
        "locked (test_waiting.py) waits for Lock.acquire, "
        "iterating (test_waiting.py) waits for an async generator, "
        "bare (test_waiting.py) waits for a future"
    )


def test_a_deadlock_names_paused_processes_and_those_that_are_down() -> None:
    with World(1) as world:
        for name in ("alpha", "beta", "gamma"):
            world.add_node(name, through).start()
        world.add_node("never started", through)
        world.run_for(1)
        world.inject("pause", ["alpha"])
        world.inject("crash", ["beta"])
        with pytest.raises(
            Deadlock,
            match=r"alpha \(paused\): through \(.*Event.wait; gamma: through \(.*Event.wait; down: beta$",
        ):
            world.run_until(lambda: False, timeout_s=5)


def test_a_world_without_processes_is_a_deadlock_at_once() -> None:
    with World(1) as world, pytest.raises(Deadlock, match="no process was ever started"):
        world.run_until(lambda: False, timeout_s=5)
