"""Attaching a peer is all or nothing, whatever user code is called on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from protocols import Pair0, Pipe, PipeRefused, Pull0, Push0, RawSocket
from tests.support.link import FakeConnection, Peer
from tests.support.waiting import until


class Careless:
    """A receiver with a bug: it raises when a peer attaches."""

    def __init__(self) -> None:
        self.detached: list[Pipe] = []
        self.broken = True

    def pipe_attached(self, pipe: Pipe) -> None:
        if self.broken:
            raise RuntimeError("a bug in the receiver")

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        self.detached.append(pipe)

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None: ...

    def pipe_writable(self, pipe: Pipe) -> None: ...


class Reported:
    """The reports to the loop's exception handler."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        asyncio.get_running_loop().set_exception_handler(self._note)

    def _note(self, loop: object, context: dict[str, Any]) -> None:
        self.errors.append(f"{context['message']}: {context.get('exception')!r}")


async def test_a_receiver_that_raises_leaves_no_pipe_behind() -> None:
    reported = Reported()
    receiver = Careless()
    async with RawSocket(Pair0, receiver=receiver) as socket:
        for _ in range(2):  # the slot of a Pair0 is free again
            with pytest.raises(PipeRefused, match="a bug in the receiver"):
                Peer(socket)
        assert socket.pipes == [] and socket.statistics().attached == 0
        assert receiver.detached == []
        assert len(reported.errors) == 2 and "pipe_attached" in reported.errors[0]
        receiver.broken = False
        Peer(socket)
        assert len(socket.pipes) == 1


async def test_a_connection_that_cannot_start_leaves_no_pipe_behind() -> None:
    class Broken(FakeConnection):
        def start(self, pipe: Pipe) -> None:
            raise RuntimeError("a bug in the transport")

    async with Pair0() as socket:
        with pytest.raises(RuntimeError, match="transport"):
            socket._core.attach(Broken(socket.peer), url="fake://", dialed=True)
        assert socket.pipes == []
        Peer(socket)
        assert len(socket.pipes) == 1


async def test_a_dialer_continues_although_the_receiver_raises() -> None:
    """Its task died, a dead pipe kept its slot, and `wait_connected` and `aclose` failed."""
    reported = Reported()
    receiver = Careless()
    async with Pull0(listen="tcp://127.0.0.1:0") as pull, RawSocket(Push0, receiver=receiver) as push:
        dialer = push.dial(pull.listeners[0].url)
        await until(lambda: dialer.last_error)
        assert "a bug in the receiver" in dialer.last_error
        assert reported.errors
        receiver.broken = False
        async with asyncio.timeout(20):
            await dialer.wait_connected()
        assert len(push.pipes) == 1
