"""A warning tells what a program forgot: to close a socket, to enter one that has URLs to open."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from protocols import Pub0, Rep0, Req0, Respondent0, Socket, StateError, Sub0, Surveyor0
from tests.support.waiting import turns, until


def warnings_of(program: Callable[[], Awaitable[object]]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(program())  # type: ignore[arg-type]
        gc.collect()
        said = [str(each.message) for each in caught if "peers>" in str(each.message)]
        caught.clear()  # it holds the socket, whose listener a later test would report
        gc.collect()
    return said


def test_a_socket_that_is_dropped_while_open_gives_a_resource_warning() -> None:
    async def forgets() -> None:
        socket = Pub0()
        await socket.listen("tcp://127.0.0.1:0")

    assert any("unclosed <Pub0 with 0 peers>" in each for each in warnings_of(forgets))


def test_a_socket_that_was_closed_or_never_used_gives_none() -> None:
    async def closes() -> None:
        Pub0(dial="tcp://127.0.0.1:9")
        async with Pub0(listen="inproc://closed"):
            pass

    assert warnings_of(closes) == []


@pytest.mark.parametrize("kind", [Req0, Rep0, Surveyor0, Respondent0, Sub0])
async def test_a_context_that_is_dropped_while_open_gives_a_resource_warning_and_is_closed(
    kind: type[Socket],
) -> None:
    """The socket kept each one, with its queue and its pending calls, until the socket itself was closed."""
    async with kind(listen="inproc://forgets-contexts") as socket:
        context: Any = socket.new_context()
        closed: list[object] = []
        context._lane.close = partial(closed.append, None)
        with pytest.warns(ResourceWarning, match=rf"unclosed context of <{kind.__name__} with 0 peers>"):
            del context
            gc.collect()
        assert not closed, "not while the pattern may be at work"
        await turns()
        assert closed and not socket._core.channels


async def test_a_dropped_context_is_closed_where_its_warning_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error kept it open: it took messages until its socket was closed."""
    ignored: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda told: ignored.append(str(told.exc_value)))
    async with Sub0(listen="inproc://forgets-strictly") as socket:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            socket.new_context()
            gc.collect()
        assert ["unclosed context" in each for each in ignored] == [True]
        await turns()
        assert not socket._core.channels and len(socket._core.pattern._lanes) == 1


URL = "inproc://never-opened"
USES: list[Callable[[], Awaitable[object]]] = [
    lambda: Sub0(dial=URL, topics=[""]).recv(),
    lambda: anext(Sub0(dial=URL, topics=[""])),
    lambda: Sub0(dial=URL).recv_many(),
    lambda: Pub0(listen=URL).send(b"x"),
    lambda: Pub0(listen=URL).send_many([b"x"]),
    lambda: Pub0(listen=URL).wait_for_peers(),
    lambda: Rep0(listen=URL).recv(),
    lambda: Surveyor0(listen=URL).send(b"x"),
    lambda: Surveyor0(listen=URL).survey(b"x"),
    lambda: Rep0(listen=URL).new_context().recv(),
]


@pytest.mark.parametrize("use", USES)
async def test_a_socket_with_urls_says_that_it_is_to_be_entered(use: Callable[[], Awaitable[object]]) -> None:
    """It had opened none of them, and the call never returned."""
    with pytest.raises(StateError, match="async with"):
        await use()


@pytest.mark.parametrize("kind", [Sub0, Rep0])
async def test_calls_that_do_not_wait_say_it_too(kind: type[Socket]) -> None:
    socket = kind(dial=URL)
    with pytest.raises(StateError, match="async with"):
        socket.recv_nowait()


async def test_a_socket_with_urls_can_be_entered_after_it_was_refused() -> None:
    pub = Pub0(listen=URL)
    with pytest.raises(StateError):
        pub.send_nowait(b"lost")
    async with pub, Sub0(dial=URL, topics=["a"]) as sub:
        await pub.wait_for_peers()
        await pub.send(b"a message")
        assert await sub.recv() == b"a message"


async def test_a_socket_that_was_not_entered_can_be_closed() -> None:
    socket = Sub0(dial=URL)
    await socket.aclose()
    await until(lambda: socket.closed)
