"""The defects that the machines found, each in a few lines."""

from __future__ import annotations

import asyncio

import pytest

from protocols import Pair0, Pull0, Push0, Rep0, Req0, Socket, SocketOptions
from tests.support.link import Link
from tests.support.waiting import turns


@pytest.mark.parametrize(("sender", "receiver"), [(Push0, Pull0), (Pair0, Pair0)])
async def test_more_readers_than_the_inbox_holds_are_all_served(
    sender: type[Socket], receiver: type[Socket]
) -> None:
    """A reader that had waited took the message that filled the inbox, and the peer was not resumed: the
    other reader never got a message.
    """
    async with sender() as first, receiver(options=SocketOptions(recv_queue=1)) as second:
        Link(first, second)
        readers = [asyncio.create_task(second.recv(timeout=0.2)) for _ in range(3)]
        await turns()
        for body in (b"1", b"2", b"3"):
            await first.send(body)
            await turns()
        assert await asyncio.gather(*readers) == [b"1", b"2", b"3"]


async def test_more_contexts_than_the_inbox_holds_all_get_a_question() -> None:
    async with Req0() as req, Rep0(options=SocketOptions(recv_queue=1)) as rep:
        Link(req, rep)
        contexts = [rep.new_context() for _ in range(3)]
        readers = [asyncio.create_task(context.recv(timeout=0.2)) for context in contexts]
        askers = [req.new_context() for _ in range(3)]
        await turns()
        for asker, body in zip(askers, (b"1", b"2", b"3"), strict=True):
            await asker.send(body)
            await turns()
        assert await asyncio.gather(*readers) == [b"1", b"2", b"3"]
