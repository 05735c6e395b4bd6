"""A test in virtual time passes, fails and ends as it would on a real loop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mesh.environment import Environment
from protocols import Pair0

from .virtual_time import disk, run


@pytest.mark.virtual
async def test_minutes_take_no_time() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(200)
    assert loop.time() - began == pytest.approx(200, rel=0.01)


@pytest.mark.virtual
async def test_sockets_connect_on_the_loopback_of_the_world() -> None:
    async with Pair0() as left, Pair0() as right:
        listener = await left.listen("tcp://127.0.0.1:0")
        right.dial(listener.url)
        await right.send(b"hello")
        assert await left.recv() == b"hello"


@pytest.mark.virtual
async def test_each_environment_has_randomness_of_its_own_and_all_share_a_disk() -> None:
    one, other = Environment.real(), Environment.real()
    assert one.token(8) != other.token(8) and one.rng.random() != other.rng.random()
    assert random.Random().random() != random.Random().random()
    await one.storage.make_folder("/folder")
    await one.storage.append("/folder/file", b"text")
    assert await other.storage.read("/folder/file") == b"text" == disk().read("/folder/file")


def test_a_test_in_virtual_time_is_the_same_each_time() -> None:
    drawn: list[object] = []

    async def draw() -> None:
        environment = Environment.real()
        await environment.storage.make_folder("/folder")
        drawn.append((environment.token(8), random.Random().random(), asyncio.get_running_loop().time()))

    for _ in range(2):
        run(draw)
    run(draw, seed=2)
    assert drawn[0] == drawn[1] != drawn[2]


async def raises() -> None:
    await asyncio.sleep(1)
    raise LookupError("no such shelf")


async def asserts() -> None:
    assert asyncio.get_running_loop().time() < 0, "it is late"


async def fails() -> None:
    pytest.fail("no such shelf")


async def leaves_a_task() -> None:
    asyncio.create_task(asyncio.sleep(60))  # noqa: RUF006


async def breaks_a_callback() -> None:
    asyncio.get_running_loop().call_soon(lambda: 1 // 0)
    await asyncio.sleep(1)


async def looks_at_the_clock() -> None:
    try:
        time.monotonic()
    except RuntimeError:
        pass


async def is_ended_by_pytest_within_a_callback() -> None:
    """As pytest-timeout does by a signal, while other callbacks go on."""
    asyncio.get_running_loop().call_later(1, pytest.fail, "Timeout (>300 s)")
    while True:
        await asyncio.sleep(1)


async def waits_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("test", "error", "sentence"),
    [
        (raises, LookupError, "no such shelf"),
        (asserts, AssertionError, "it is late"),
        (fails, pytest.fail.Exception, "no such shelf"),
        (leaves_a_task, pytest.fail.Exception, "main left a task behind: sleep"),
        (breaks_a_callback, pytest.fail.Exception, "ZeroDivisionError"),
        (looks_at_the_clock, pytest.fail.Exception, "time.monotonic was called by"),
        (is_ended_by_pytest_within_a_callback, pytest.fail.Exception, "Timeout"),
        (waits_for_ever, RuntimeError, "nothing can happen any more"),
    ],
)
def test_every_kind_of_failure_fails_the_test(
    test: Callable[[], Coroutine[Any, Any, None]], error: type[BaseException], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        run(test)
