"""Real sockets, real tasks: readers come, are cancelled or run out of time while messages arrive over tcp.

A connection runs the tasks it wakes inside its own delivery, so cancelling, timing out and being served may
happen in one loop turn. In every combination, each message is received once, and nobody waits beside one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols import Pair0, Pull0, Push0, Rep0, Req0, Socket, SocketOptions, Timeout
from tests.support.waiting import turns, until

from .world import EXAMPLES

DEEDS = ("read", "read", "read briefly", "send", "send", "send", "cancel", "cancel", "turn", "turn", "settle")
SCRIPTS = st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 5)), min_size=4, max_size=30)
FEW = settings(max_examples=int(EXAMPLES or 60) // 2, deadline=None)

HASTY = SocketOptions(linger_s=0.0)
"""Everything has been received when it closes, but its peer may have stopped reading, and would keep it
waiting.
"""


class Script:
    """Plays actions on one way of sending and one of receiving."""

    def __init__(
        self, send: Callable[[bytes], Awaitable[None]], recv: Callable[..., Awaitable[bytes]]
    ) -> None:
        self.send = send
        self.recv = recv
        self.sent: list[bytes] = []
        self.received: list[bytes] = []
        self.readers: list[asyncio.Task[None]] = []
        self.waiting = 0

    async def read(self, timeout: float | None) -> None:
        self.waiting += 1
        try:
            body = await self.recv(timeout=timeout)
        except Timeout:
            return
        finally:
            self.waiting -= 1
        self.received.append(
            body
        )  # in the turn that took it: a cancellation comes before or after, not between
        if len(body) % 2:
            await asyncio.sleep(0)

    async def play(self, script: list[tuple[str, int]]) -> None:
        for deed, which in script:
            if deed == "read":
                self.readers.append(asyncio.create_task(self.read(None)))
            elif deed == "read briefly":
                self.readers.append(asyncio.create_task(self.read(0.0005 * which)))
            elif deed == "send":
                body = b"%0*d" % (4 + which, len(self.sent))
                self.sent.append(body)
                await self.send(body)
            elif deed == "cancel" and self.readers:
                self.readers.pop(which % len(self.readers)).cancel()
            elif deed == "turn":
                await turns(1 + which)
            else:
                await asyncio.sleep(0.001)

    async def finish(self) -> None:
        """Sent and unread messages can be read; then the waiting tasks are given up."""
        while len(self.received) < len(self.sent):
            before = len(self.received)
            if not self.waiting:
                self.readers.append(asyncio.create_task(self.read(None)))
                await turns(1)
            await until(lambda: len(self.received) > before or not self.waiting, 5.0)  # noqa: B023
        for reader in self.readers:
            reader.cancel()
        await asyncio.gather(*self.readers, return_exceptions=True)
        assert sorted(self.received, key=int) == self.sent, "a message was lost or given twice"


async def between(sender: type[Socket], receiver: type[Socket], script: list[tuple[str, int]]) -> None:
    few = SocketOptions(recv_queue=2)
    async with receiver(listen="tcp://127.0.0.1:0", options=few) as second, sender(options=HASTY) as first:
        first.dial(second.listeners[0].url)
        await first.wait_for_peers(timeout=5.0)
        played = Script(first.send, second.recv)
        await played.play(script)
        await played.finish()


@pytest.mark.parametrize(("sender", "receiver"), [(Push0, Pull0), (Pair0, Pair0)])
@given(script=SCRIPTS)
@FEW
def test_no_message_is_lost_between_readers(
    sender: type[Socket], receiver: type[Socket], script: list[tuple[str, int]]
) -> None:
    asyncio.run(between(sender, receiver, script))


@given(script=SCRIPTS)
@FEW
def test_no_question_is_lost_between_contexts(script: list[tuple[str, int]]) -> None:
    async def run() -> None:
        few = SocketOptions(recv_queue=2)
        async with Rep0(listen="tcp://127.0.0.1:0", options=few) as rep, Req0(options=HASTY) as req:
            req.dial(rep.listeners[0].url)
            await req.wait_for_peers(timeout=5.0)

            asking = []

            async def ask(body: bytes) -> None:
                asking.append(req.new_context())
                await asking[-1].send(body)

            async def take(timeout: float | None) -> Any:
                async with rep.new_context() as context:
                    return await context.recv(timeout=timeout)

            played = Script(ask, take)
            await played.play(script)
            await played.finish()

    asyncio.run(run())
