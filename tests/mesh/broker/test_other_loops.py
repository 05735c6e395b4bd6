"""Brokers and clients run on event loops that are not asyncio's own, such as the uvloop of web servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mesh import Broker, Client

ALPHA, BRAVO = "tcp://127.0.0.1:7770", "tcp://127.0.0.1:7771"


def without_times(loop: asyncio.AbstractEventLoop) -> None:
    """Make a loop give handles as uvloop does: one that is due at once is no timer, and knows no time."""
    call_at = loop.call_at

    def call_at_as_uvloop(when: float, callback: Callable[..., object], *arguments: Any, **more: Any) -> Any:
        if when - loop.time() < 0.0005:
            return loop.call_soon(callback, *arguments, **more)
        return call_at(when, callback, *arguments, **more)

    loop.call_at = call_at_as_uvloop  # type: ignore[method-assign]


async def exchange(alpha_url: str, bravo_url: str, folder: Path | None = None) -> None:
    """Two brokers meet; messages and questions pass from one to the other, at each level."""
    async with (
        Broker(name="alpha", listen=alpha_url, state_dir=folder) as alpha,
        Broker(name="bravo", listen=bravo_url, join=alpha.url) as bravo,
    ):
        await bravo.wait_ready()
        async with Client(alpha.url) as here, Client(bravo.url) as there:
            async with here.subscribe("a", answers=True) as heard:
                for number in range(50):
                    await there.publish("a", b"%d" % number)
                    assert (await anext(heard)).body == b"%d" % number
                asked = asyncio.create_task(there.request("a", b"?"))
                (await anext(heard)).done(b"!")
                assert await asked == b"!"
                pending = there.publish_soon("a", b"soon")
                assert (await pending).level == "accepted"
            if folder is not None:
                async with here.subscribe("b", durable="q") as jobs:
                    await there.publish("b", b"kept", level="stored")
                    (await anext(jobs)).done()
        assert len(alpha.members()) == len(bravo.members()) == 2


@pytest.mark.virtual
async def test_a_timer_that_is_due_at_once_need_not_know_its_time() -> None:
    """On uvloop such a timer is no `TimerHandle`: brokers lost their links again and again, their clients got
    no acknowledgements, and they never ended. So a broker inside a FastAPI program was of no use."""
    loop = asyncio.get_running_loop()
    faults: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: faults.append(context))
    without_times(loop)
    await exchange(ALPHA, BRAVO)
    assert faults == []


@pytest.mark.process
def test_brokers_and_clients_run_on_uvloop(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")
    faults: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_exception_handler(lambda _loop, context: faults.append(context))
        runner.run(exchange("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", tmp_path))
    assert faults == []
