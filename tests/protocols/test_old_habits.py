"""First mistakes of programs written for synchronous sockets: the error says what to write instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from protocols import Pull0, Push0, Req0, Socket, StateError, Sub0, Surveyor0
from tests.support.ports import free_port


async def test_awaiting_a_dial_names_the_call_that_waits() -> None:
    """It said: object Dialer can't be used in 'await' expression."""
    async with Pull0() as pull:
        with pytest.raises(TypeError, match=r"dial\(\) returns at once.* await .*wait_connected\(\)"):
            await pull.dial(f"tcp://127.0.0.1:{free_port()}")


def coroutine(call: Callable[[], object]) -> object:
    """The result of a coroutine's first step, without a loop."""
    made = call()
    try:
        return made.send(None)  # type: ignore[attr-defined]
    finally:
        made.close()  # type: ignore[attr-defined]


CALLS: list[Callable[[], object]] = [
    lambda: Push0().dial("tcp://127.0.0.1:9"),
    lambda: coroutine(lambda: Push0().listen("tcp://127.0.0.1:0")),
    lambda: coroutine(lambda: Push0().send(b"x")),
    lambda: coroutine(Pull0().recv),
    lambda: coroutine(lambda: Pull0().wait_for_peers()),
    lambda: coroutine(Sub0(topics=[""]).recv),
    lambda: Req0().send_nowait(b"x"),
    lambda: Req0().recv_nowait(),
    lambda: coroutine(lambda: Surveyor0().survey(b"x")),
    lambda: coroutine(lambda: Req0().request(b"x")),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_without_an_event_loop_points_to_the_blocking_sockets(call: Callable[[], object]) -> None:
    """It said: no running event loop."""
    with pytest.raises(StateError, match=r"no event loop runs here.*protocols\.blocking"):
        call()


async def test_a_socket_that_is_entered_without_async_says_so() -> None:
    socket: Socket = Pull0()
    with pytest.raises(TypeError, match="async with"):
        with socket:  # type: ignore[attr-defined]
            pass


async def test_a_call_in_another_thread_gets_the_same_hint() -> None:
    async with Push0() as push:
        with pytest.raises(StateError, match=r"protocols\.blocking"):
            await asyncio.to_thread(push.dial, "tcp://127.0.0.1:9")
