"""inproc keeps the contract of the streams, without bytes in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from protocols.dialling import dial_once
from protocols.errors import ConnectionRefused
from protocols.listening import Listener, SharedListener
from protocols.options import SocketOptions
from protocols.pipe import INBOX_FULL
from protocols.transports.loops import loop_state
from protocols.wire.handshake import ProtocolNumber

from .support import FakeSocket, until

OPTIONS = SocketOptions(send_queue=4)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def joined(options: SocketOptions = OPTIONS) -> AsyncIterator[tuple[FakeSocket, FakeSocket]]:
    owner, dialer = FakeSocket(options=options), FakeSocket(options=options)
    listener = Listener(owner, "inproc://pair")
    await listener.start()
    await dial_once(dialer, listener.url)
    yield dialer, owner
    await listener.aclose()
    await dialer.aclose()
    await until(lambda: not owner.pipes)
    await owner.aclose()


async def test_messages_sent_in_one_turn_arrive_as_one_run() -> None:
    async with joined() as (dialer, owner):
        dialer.pipes[0].send_many([b"1", b"2", b"3"])
        await until(lambda: owner.received)
        assert owner.received == [b"1", b"2", b"3"]
        assert owner.runs == [3]
        assert owner.pipes[0].statistics().bytes_in == dialer.pipes[0].statistics().bytes_out == 3


async def test_a_side_that_does_not_read_makes_the_other_refuse() -> None:
    async with joined() as (dialer, owner):
        owner.pipes[0].pause(INBOX_FULL)
        pipe = dialer.pipes[0]
        assert pipe.send_many([b"%d" % i for i in range(6)]) == 4
        await turns()
        assert pipe.full
        assert owner.received == []
        owner.pipes[0].resume(INBOX_FULL)
        await until(lambda: len(owner.received) == 4)
        assert dialer.writable == 1


async def test_close_drains_and_the_other_side_is_told_after_the_last_frame() -> None:
    async with joined() as (dialer, owner):
        pipe = dialer.pipes[0]
        pipe.send_many([b"1", b"2"])
        pipe.close("done", flush=True)
        await until(lambda: owner.lost)
        assert owner.received == [b"1", b"2"]
        assert (dialer.lost, owner.lost) == (["done"], ["closed by the peer"])


async def test_a_drain_towards_a_side_that_never_reads_ends_after_the_linger_time() -> None:
    async with joined(replace(OPTIONS, linger_s=0.02)) as (dialer, owner):
        owner.pipes[0].pause(INBOX_FULL)
        pipe = dialer.pipes[0]
        pipe.send(b"never read")
        pipe.close("done", flush=True)
        await pipe.connection.wait_closed()
        await until(lambda: owner.lost)
        assert owner.received == []


async def test_both_sides_may_close_at_once() -> None:
    async with joined() as (dialer, owner):
        owner.pipes[0].pause(INBOX_FULL)
        dialer.pipes[0].send(b"x")
        owner.pipes[0].send(b"y")
        dialer.pipes[0].close("here", flush=True)
        owner.pipes[0].close("there", flush=True)
        await dialer.all_pipes[0].connection.wait_closed()
        await owner.all_pipes[0].connection.wait_closed()
        assert (dialer.lost, owner.lost) == (["here"], ["there"])


async def test_a_listening_side_may_speak_before_the_dialler_is_attached() -> None:
    class Greeter(FakeSocket):
        def attach(self, connection, *, url, dialed):  # type: ignore[no-untyped-def]
            pipe = super().attach(connection, url=url, dialed=dialed)
            pipe.send(b"welcome")
            return pipe

    owner, dialer = Greeter(), FakeSocket()
    listener = Listener(owner, "inproc://greeter")
    await listener.start()
    await dial_once(dialer, listener.url)
    await until(lambda: dialer.received == [b"welcome"])
    await listener.aclose()
    await dialer.aclose()
    await until(lambda: not owner.pipes)


async def test_names_are_those_of_one_loop() -> None:
    listener = Listener(FakeSocket(), "inproc://here only")
    await listener.start()

    async def elsewhere() -> None:
        with pytest.raises(ConnectionRefused):
            await dial_once(FakeSocket(), "inproc://here only")

    await asyncio.to_thread(asyncio.run, elsewhere())
    await listener.aclose()
    assert loop_state().inproc == {}


async def test_a_shared_listener_serves_by_protocol_here_too() -> None:
    shared = SharedListener("inproc://shared")
    rep, bus = FakeSocket(ProtocolNumber.REP0), FakeSocket(ProtocolNumber.BUS0)
    shared.serve(rep)
    shared.serve(bus)
    await shared.start()
    dialer = FakeSocket(ProtocolNumber.BUS0)
    await dial_once(dialer, shared.url)
    assert (len(rep.pipes), len(bus.pipes)) == (0, 1)
    await shared.aclose()
    await dialer.aclose()
    await until(lambda: not bus.pipes)
