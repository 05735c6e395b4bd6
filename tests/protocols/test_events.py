"""Arrivals and departures of peers are reported once and in order; a hook may refuse peers; every end has a
reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocols import (
    Closed,
    Pair0,
    Pipe,
    PipeEvent,
    PipeRefused,
    Pub0,
    Pull0,
    Push0,
    RawSocket,
    Rep0,
    Req0,
    Socket,
    SocketOptions,
    Sub0,
)
from protocols.pipe import CLOSED_BY_PEER, CLOSED_HERE, CONNECTION_LOST, CUT_INSIDE_FRAME
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.protocols.transports.support import listen_url, raw_peer
from tests.support.link import Peer
from tests.support.waiting import until

QUICK = SocketOptions(reconnect_min_s=0.01, reconnect_max_s=0.05)


class Heard:
    """A stream's events as words, read by a separate task."""

    def __init__(self, socket: Socket, **options: int) -> None:
        self.stream = socket.events(**options)
        self.events: list[PipeEvent] = []
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.stream:
            self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


async def test_attaching_attached_and_detached_come_once_each(scheme: str, tmp_path: Path) -> None:
    async with Pull0() as pull:
        heard = Heard(pull)
        listener = await pull.listen(listen_url(scheme, tmp_path))
        async with Push0(dial=listener.url) as push:
            await push.send(b"1")
            assert await pull.recv() == b"1"
            assert heard.kinds == ["attaching", "attached"]
            assert heard.events[0].pipe is heard.events[1].pipe is pull.pipes[0]
        await until(lambda: len(heard.kinds) == 3)
        assert heard.events[2] == PipeEvent("detached", heard.events[0].pipe, CLOSED_BY_PEER)
    await heard.task
    assert len(heard.kinds) == 3


async def test_closing_the_socket_detaches_all_and_ends_the_stream(scheme: str, tmp_path: Path) -> None:
    pull = Pull0()
    heard = Heard(pull)
    listener = await pull.listen(listen_url(scheme, tmp_path))
    async with Push0(dial=listener.url) as push:
        await push.wait_for_peers()
        await until(lambda: len(heard.kinds) == 2)
        await pull.aclose()
        await heard.task
        assert heard.kinds == ["attaching", "attached", "detached"]
        assert heard.events[2].reason == "the socket is closed"
        assert heard.events[2].pipe.close_cause == CLOSED_HERE
    with pytest.raises(Closed):
        pull.events()


async def test_the_hook_refuses_a_peer_that_then_has_no_other_event(scheme: str, tmp_path: Path) -> None:
    asked: list[str] = []

    def admit(pipe: Pipe) -> None:
        asked.append(pipe.remote_address)
        assert not pipe.closed
        if len(asked) < 3:
            raise PipeRefused("not on a weekday", reason="weekday")

    async with Rep0(admit=admit, options=QUICK) as rep, Req0(options=QUICK) as req:
        heard = Heard(rep)
        listener = await rep.listen(listen_url(scheme, tmp_path))
        req.dial(listener.url)
        await req.send(b"question")
        assert await rep.recv() == b"question"
        assert heard.kinds == ["attaching"] * 3 + ["attached"]
        assert len(asked) == 3
        assert listener.statistics().refused == {"weekday": 2}
        assert "not on a weekday" in listener.last_refused
        assert rep.statistics().attached == 1
        await rep.aclose()
    await heard.task


async def test_a_dialling_socket_may_refuse_too_and_says_why(scheme: str, tmp_path: Path) -> None:
    def admit(pipe: Pipe) -> None:
        raise PipeRefused(f"{pipe.url} is not for us")

    async with Rep0() as rep, Req0(admit=admit, options=QUICK) as req:
        listener = await rep.listen(listen_url(scheme, tmp_path))
        dialer = req.dial(listener.url)
        await until(lambda: dialer.statistics().failed.get("not wanted", 0) >= 2)
        assert dialer.last_error == f"{listener.url} is not for us"
        with pytest.raises(PipeRefused, match="not for us"):
            await req.dial_once(listener.url)
        assert req.pipes == []


async def test_closing_the_pipe_in_the_hook_refuses_it(scheme: str, tmp_path: Path) -> None:
    async with Pair0(admit=lambda pipe: pipe.close("go away")) as pair, Pair0(options=QUICK) as other:
        heard = Heard(pair)
        listener = await pair.listen(listen_url(scheme, tmp_path))
        other.dial(listener.url)
        await until(lambda: listener.statistics().refused.get("not wanted", 0) >= 2)
        assert set(heard.kinds) == {"attaching"}
        assert heard.events[0].pipe.close_reason == "go away"
        assert pair.pipes == [] and pair.statistics().attached == 0
        await pair.aclose()
    await heard.task


async def test_closing_the_socket_from_the_hook_or_from_an_event_does_not_hang(
    scheme: str, tmp_path: Path
) -> None:
    closing: list[asyncio.Task[None]] = []

    def admit(pipe: Pipe) -> None:
        closing.append(asyncio.create_task(pull.aclose()))

    pull = Pull0(admit=admit)
    listener = await pull.listen(listen_url(scheme, tmp_path))
    async with Push0(dial=listener.url, options=QUICK):
        await until(lambda: closing)
        await closing[0]
        assert pull.closed

    reader = Pull0()
    stream = reader.events()
    listener = await reader.listen(listen_url(scheme, tmp_path))
    async with Push0(dial=listener.url, options=QUICK):
        kinds = []
        async for event in stream:
            kinds.append(event.kind)
            if event.kind == "attached":
                event.pipe.close("enough")
                await reader.aclose()
    assert kinds == ["attaching", "attached", "detached"]


async def test_a_failing_hook_admits_no_peer_and_is_reported() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    failing = [True]

    def admit(pipe: Pipe) -> None:
        if failing[0]:
            raise KeyError("who?")

    async with Pull0(admit=admit) as pull, Push0(options=QUICK) as push:
        listener = await pull.listen("tcp://127.0.0.1:0")
        push.dial(listener.url)
        await until(lambda: listener.statistics().refused.get("hook failed", 0) >= 2)
        assert "the admit hook of" in told[0]["message"]
        assert isinstance(told[0]["exception"], KeyError)
        failing[0] = False
        await pull.wait_for_peers(1)  # messages sent into a connection that is being refused are lost
        await push.send(b"at last")
        assert await pull.recv() == b"at last"


async def test_an_unread_stream_keeps_the_newest_events_and_counts_the_rest() -> None:
    async with Pub0() as pub:
        stream = pub.events(limit=4)
        peers = [Peer(pub, name=str(i)) for i in range(5)]
        for peer in peers:
            peer.hang_up()
        assert stream.missed == 11
        await pub.aclose()
        assert [event.kind async for event in stream] == ["detached"] * 4
    with pytest.raises(ValueError, match="limit is 0"):
        Pub0().events(limit=0)


async def test_several_streams_get_the_same_events_and_a_forgotten_one_costs_nothing() -> None:
    async with Pub0() as pub:
        first, second = pub.events(), pub.events()
        pub.events()  # nobody holds it
        Peer(pub)
        assert [(await anext(first)).kind for _ in range(2)] == ["attaching", "attached"]
        assert [(await anext(second)).kind for _ in range(2)] == ["attaching", "attached"]
        second.close()
        Peer(pub)
        assert (await anext(first)).kind == "attaching"
        with pytest.raises(StopAsyncIteration):
            await anext(second)


async def test_a_cancelled_reader_takes_no_event() -> None:
    async with Pub0() as pub:
        stream = pub.events()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)
        Peer(pub)
        assert (await anext(stream)).kind == "attaching"


class Refusing:
    """A receiver that refuses every peer, in one of the two ways."""

    def __init__(self, how: Callable[[Pipe], None]) -> None:
        self.how = how

    def pipe_attached(self, pipe: Pipe) -> None:
        self.how(pipe)

    def pipe_detached(self, pipe: Pipe, reason: str) -> None: ...

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None: ...

    def pipe_writable(self, pipe: Pipe) -> None: ...


def refuse(pipe: Pipe) -> None:
    raise PipeRefused("no")


@pytest.mark.parametrize("how", [refuse, lambda pipe: pipe.close("no")])
async def test_a_pipe_that_the_receiver_refuses_was_never_attached(how: Callable[[Pipe], None]) -> None:
    socket = RawSocket(Pub0, receiver=Refusing(how))
    stream = socket.events()
    try:
        Peer(socket)
    except PipeRefused:
        pass
    await socket.aclose()
    assert [event.kind async for event in stream] == ["attaching"]


# --- why pipes end


async def test_ends_are_counted_by_cause_and_the_last_are_remembered(scheme: str, tmp_path: Path) -> None:
    async with Pull0() as pull:
        listener = await pull.listen(listen_url(scheme, tmp_path))
        for count in range(1, 19):
            async with Push0() as push:
                await push.dial_once(listener.url)
                await pull.wait_for_peers()
            await until(lambda: not pull.pipes)
            assert pull.statistics().closed == {CLOSED_BY_PEER: count}
        recent = pull.statistics().recently_closed
        assert len(recent) == 16
        assert {(each.cause, each.url) for each in recent} == {(CLOSED_BY_PEER, listener.url)}
        assert [each.id for each in recent] == sorted(each.id for each in recent)


async def test_each_way_to_end_has_its_own_cause(tmp_path: Path) -> None:
    header = encode_header(ProtocolNumber.PUSH0)
    cases = {
        CLOSED_BY_PEER: (b"", False),
        CUT_INSIDE_FRAME: (bytes(7) + b"\x05he", False),
        CONNECTION_LOST: (b"", True),
        "too large": (b"\x7f" + b"\xff" * 7, False),
    }
    async with Pull0(listen="tcp://127.0.0.1:0") as pull:
        url = pull.listeners[0].url
        for word, (rest, reset) in cases.items():
            async with raw_peer(url) as peer:
                peer.writer.write(header + rest)
                await peer.reader.readexactly(8)
                await pull.wait_for_peers() if word != "too large" else None
                if reset:
                    peer.writer.transport.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")
                    peer.writer.transport.abort()
            await until(lambda: pull.statistics().closed.get(word) == 1 and not pull.pipes)  # noqa: B023
        reasons = [each.reason for each in pull.statistics().recently_closed]
        assert reasons[0] == "closed by the peer"
        assert reasons[1] == "closed by the peer inside a frame"
        assert "reset" in reasons[2]
        assert reasons[3] == (
            "a message of 9223372036854775807 bytes is above the limit of 1048576 (recv_size_max)"
        )


async def test_a_dialer_says_why_its_pipe_ended(scheme: str, tmp_path: Path) -> None:
    async with Pull0() as pull, Push0(options=replace(QUICK, reconnect_min_s=5.0)) as push:
        listener = await pull.listen(listen_url(scheme, tmp_path))
        dialer = push.dial(listener.url)
        pipe = await dialer.wait_connected()
        assert dialer.last_error == ""
        pipe.close("the operator said so")
        await until(lambda: dialer.statistics().ended)
        assert dialer.statistics().ended == {CLOSED_HERE: 1}
        assert dialer.last_error == "the operator said so"


# --- options of one endpoint


async def test_an_endpoint_has_the_options_of_its_socket_or_its_own(tmp_path: Path) -> None:
    mine = SocketOptions(recv_size_max=10)
    async with Pull0(options=mine) as pull, Push0() as push:
        narrow = await pull.listen(f"ipc://{tmp_path}/narrow")
        wide = await pull.listen(f"ipc://{tmp_path}/wide", options=replace(mine, recv_size_max=100))
        pipe = await push.dial_once(wide.url)
        await push.send(b"x" * 100)
        assert await pull.recv() == b"x" * 100
        pipe.close("now the other")
        await push.dial_once(narrow.url)
        await push.send(b"x" * 100)
        await until(lambda: pull.statistics().closed.get("too large"))
        assert narrow.statistics().broken == {"too large": 1}
        assert not wide.statistics().broken


async def test_a_dialer_may_have_options_of_its_own(tmp_path: Path) -> None:
    mine = SocketOptions(recv_size_max=10, reconnect_min_s=0.01)
    async with Sub0(topics=[""], options=mine) as sub, Pub0(listen=f"ipc://{tmp_path}/x") as pub:
        dialer = sub.dial(f"ipc://{tmp_path}/x")
        await pub.wait_for_peers()
        await pub.send(b"x" * 11)
        await until(lambda: dialer.statistics().ended == {"too large": 1})
        await dialer.aclose()
        sub.dial(f"ipc://{tmp_path}/x", options=replace(mine, recv_size_max=11))
        await until(lambda: len(pub.pipes) == 1 and len(sub.pipes) == 1)
        await pub.send(b"x" * 11)
        assert await sub.recv() == b"x" * 11
        for pipe in sub.pipes:
            pipe.close("next")
        await sub.dial_once(f"ipc://{tmp_path}/x", options=replace(mine, recv_size_max=5))
        await until(lambda: len(sub.pipes) == 2)


async def test_a_shared_listener_has_options_of_its_own(tmp_path: Path) -> None:
    from protocols import SharedListener

    async with Pull0() as pull:
        with pytest.raises(TypeError, match="has options of its own"):
            await pull.listen(SharedListener(f"ipc://{tmp_path}/x"), options=SocketOptions())  # type: ignore[call-overload]
