"""Raw sockets: whole frames, pipe by pipe, handed over or queued."""

from __future__ import annotations

import asyncio

import pytest

from protocols import (
    Bus0,
    Closed,
    Message,
    NotSupported,
    Pair0,
    Pipe,
    PipeRefused,
    Pub0,
    Pull0,
    Push0,
    RawSocket,
    Rep0,
    Req0,
    Respondent0,
    Socket,
    SocketOptions,
    Sub0,
    Surveyor0,
    Timeout,
    WouldBlock,
)
from protocols.wire.backtrace import END_BIT, encode_word, pop, push
from tests.support.link import Link, Peer
from tests.support.waiting import turns, until

ALL = [Pair0, Bus0, Pub0, Sub0, Push0, Pull0, Req0, Rep0, Surveyor0, Respondent0]
WITH_BACKTRACE = [Req0, Rep0, Surveyor0, Respondent0]
ID = encode_word(END_BIT | 7)


class Recorder:
    """Keeps its calls, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self.refusing = False

    def pipe_attached(self, pipe: Pipe) -> None:
        if self.refusing:
            raise PipeRefused("not you")
        self.events.append(("attached", pipe))

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        self.events.append(("detached", pipe, reason))

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        self.events.append(("frames", pipe, frames))

    def pipe_writable(self, pipe: Pipe) -> None:
        self.events.append(("writable", pipe))


@pytest.mark.parametrize("kind", ALL)
async def test_a_receiver_is_told_of_every_event_in_its_own_turn(kind: type[Socket]) -> None:
    recorder = Recorder()
    async with RawSocket(kind, receiver=recorder, options=SocketOptions(send_queue=2)) as socket:
        peer = Peer(socket, reads=False)
        pipe = peer.pipe
        pipe.context = "mine"
        assert recorder.events == [("attached", pipe)]
        recorder.events.clear()
        if kind not in (Pub0, Push0):
            peer.say(ID + b"1", ID + b"2")
            assert recorder.events == [("frames", pipe, [ID + b"1", ID + b"2"])]
            recorder.events.clear()
        assert socket.send_to(pipe, [ID + b"a", ID + b"b"])
        assert not socket.send_to(pipe, [ID + b"c"])
        assert socket.send_to(pipe, [ID + b"control"], control=True)
        peer.connection.release()
        assert peer.heard == [ID + b"control", ID + b"a", ID + b"b"]
        assert recorder.events == [("writable", pipe)]
        recorder.events.clear()
        peer.hang_up("gone")
        assert recorder.events == [("detached", pipe, "gone")]
        assert pipe.context == "mine"
        assert not socket.send_to(pipe, [b"x"])
        assert not socket.send_to(pipe, [b"x"], control=True)


async def test_a_receiver_may_refuse_a_peer() -> None:
    recorder = Recorder()
    async with RawSocket(Pair0, receiver=recorder) as socket:
        recorder.refusing = True
        with pytest.raises(PipeRefused, match="not you"):
            Peer(socket)
        recorder.refusing = False
        Peer(socket)
        assert socket.statistics().attached == 1


async def test_a_receiver_may_close_a_pipe_while_it_is_attached() -> None:
    class Hostile(Recorder):
        def pipe_attached(self, pipe: Pipe) -> None:
            super().pipe_attached(pipe)
            pipe.close("not now")

    recorder = Hostile()
    async with RawSocket(Bus0, receiver=recorder) as socket:
        peer = Peer(socket)
        assert peer.pipe.closed
        assert [event[0] for event in recorder.events] == ["attached", "detached"]
        assert socket.pipes == []
        assert socket.statistics().detached == 1


async def test_frames_are_broadcast_only_on_request() -> None:
    async with RawSocket(Surveyor0) as socket:
        one, two = Peer(socket, name="one"), Peer(socket, name="two")
        assert socket.send_to(one.pipe, [ID + b"only one"])
        await until(lambda: one.heard == [ID + b"only one"])
        assert two.heard == []


async def test_send_to_takes_all_or_nothing() -> None:
    async with RawSocket(Bus0, options=SocketOptions(send_queue=3)) as socket:
        peer = Peer(socket, reads=False)
        assert socket.send_to(peer.pipe, [b"1", b"2"])
        assert not socket.send_to(peer.pipe, [b"3", b"4"])
        assert socket.send_to(peer.pipe, [b"3"])
        assert socket.send_to(peer.pipe, [])
        with pytest.raises(ValueError, match="4 frames never fit in a queue of 3"):
            socket.send_to(peer.pipe, [b"x"] * 4)
        peer.connection.release()
        assert peer.heard == [b"1", b"2", b"3"]


@pytest.mark.parametrize("kind", WITH_BACKTRACE)
async def test_backtraces_are_checked_and_left_in_front(kind: type[Socket]) -> None:
    async with RawSocket(kind, options=SocketOptions(ttl=3)) as socket:
        peer = Peer(socket)
        hop = encode_word(1)
        peer.say(ID + b"near", hop + ID + b"far", hop * 3 + ID + b"too far", hop * 2 + ID)
        assert await socket.recv_run() == (peer.pipe, [ID + b"near", hop + ID + b"far", hop * 2 + ID])
        assert socket.statistics().drops == {"over ttl": 1}
        peer.say(ID + b"good", b"\x00\x00\x00\x01bad", ID + b"after")
        assert peer.pipe.closed
        assert await socket.recv_run() == (peer.pipe, [ID + b"good"])
        assert socket.statistics().drops == {"over ttl": 1, "malformed": 1}


@pytest.mark.parametrize("kind", [Pair0, Bus0, Sub0, Pull0])
async def test_patterns_without_backtrace_pass_every_frame(kind: type[Socket]) -> None:
    async with RawSocket(kind) as socket:
        peer = Peer(socket)
        peer.say(b"", b"x", b"\x00\x00\x00\x01")
        assert await socket.recv_run() == (peer.pipe, [b"", b"x", b"\x00\x00\x00\x01"])


async def test_a_raw_subscriber_receives_every_message() -> None:
    async with RawSocket(Sub0) as sub:
        Peer(sub).say(b"anything")
        assert await sub.recv() == b"anything"
        assert not hasattr(sub, "subscribe")


async def test_pipes_take_turns_and_a_full_inbox_stops_reading_that_pipe_only() -> None:
    async with RawSocket(Bus0, options=SocketOptions(recv_queue=3)) as socket:
        flood, quiet = Peer(socket, name="flood"), Peer(socket, name="quiet")
        flood.say(*[b"flood"] * 3)
        quiet.say(b"quiet")
        flood.say(b"more")  # messages that were already on their way
        assert flood.connection.paused and not quiet.connection.paused
        assert await socket.recv_run() == (flood.pipe, [b"flood"] * 3 + [b"more"])
        assert not flood.connection.paused
        assert await socket.recv_run() == (quiet.pipe, [b"quiet"])
        with pytest.raises(Timeout):
            await socket.recv_run(timeout=0.01)


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_large_frames_fill_a_raw_inbox_by_their_bytes(one_by_one: bool) -> None:
    async with RawSocket(Bus0) as socket:
        peer = Peer(socket)
        megabyte = bytes(1 << 20)
        for _ in range(2):  # an inbox that was emptied has all of its room again
            for _ in range(16):
                assert not peer.connection.paused
                peer.say(megabyte)
            assert peer.connection.paused
            if one_by_one:
                assert [len(await socket.recv()) for _ in range(16)] == [1 << 20] * 16
            else:
                await socket.recv_run()
            assert not peer.connection.paused


async def test_one_frame_at_a_time_also_takes_turns() -> None:
    async with RawSocket(Rep0, options=SocketOptions(recv_queue=2)) as socket:
        one, two = Peer(socket, name="one"), Peer(socket, name="two")
        hop = encode_word(1)
        one.say(ID + b"1a", hop + ID + b"1b")
        two.say(ID + b"2a")
        assert await socket.recv_message() == Message(one.pipe, ID, b"1a")
        assert await socket.recv_message() == Message(two.pipe, ID, b"2a")
        assert one.connection.paused
        message = await socket.recv_message()
        assert message == Message(one.pipe, hop + ID, b"1b")
        assert not one.connection.paused
        message.body = b"answer"
        assert socket.send_message(message)
        await until(lambda: one.heard == [hop + ID + b"answer"])


async def test_messages_of_a_peer_that_left_can_still_be_read() -> None:
    async with RawSocket(Pull0) as socket:
        peer = Peer(socket)
        peer.say(b"1")
        peer.hang_up()
        assert await socket.recv_run() == (peer.pipe, [b"1"])


@pytest.mark.parametrize("kind", [Bus0, Surveyor0, Pub0])
async def test_send_spreads_to_all(kind: type[Socket]) -> None:
    async with RawSocket(kind, options=SocketOptions(send_queue=3)) as socket:
        peers = [Peer(socket, name=str(number)) for number in range(3)]
        await socket.send(ID + b"1")
        await socket.send_many([ID + b"2", ID + b"3"])
        await until(lambda: all(peer.heard == [ID + b"1", ID + b"2", ID + b"3"] for peer in peers))
        for peer in peers[1:]:
            peer.connection.hold()
        await socket.send_many([ID] * 3)
        await turns()
        await socket.send(ID)
        assert socket.statistics().drops == {"peer slow": 2}


@pytest.mark.parametrize("kind", [Req0, Push0])
async def test_send_gives_each_frame_to_one_and_waits(kind: type[Socket]) -> None:
    async with RawSocket(kind, options=SocketOptions(send_queue=1)) as socket:
        peers = [Peer(socket, reads=False, name=str(number)) for number in range(2)]
        await socket.send(ID + b"1")
        await socket.send(ID + b"2")
        with pytest.raises(WouldBlock):
            socket.send_nowait(ID + b"3")
        waiting = asyncio.create_task(socket.send(ID + b"3"))
        await turns()
        peers[1].connection.release()
        await waiting
        await until(lambda: peers[1].heard == [ID + b"2", ID + b"3"])


@pytest.mark.parametrize("kind", [Rep0, Respondent0])
async def test_answers_go_to_a_pipe_and_not_anywhere(kind: type[Socket]) -> None:
    async with RawSocket(kind) as socket:
        Peer(socket)
        with pytest.raises(NotSupported, match="send_to"):
            await socket.send(ID)


@pytest.mark.parametrize("kind", [Req0, Rep0, Surveyor0, Respondent0, Sub0])
async def test_raw_sockets_have_no_contexts(kind: type[Socket]) -> None:
    async with RawSocket(kind) as socket:
        with pytest.raises(NotSupported, match="raw sockets have no contexts"):
            socket.new_context()


@pytest.mark.parametrize("kind", [Pub0, Push0])
async def test_a_pattern_that_only_sends_receives_nothing(kind: type[Socket]) -> None:
    recorder = Recorder()
    async with RawSocket(kind, receiver=recorder) as socket:
        peer = Peer(socket)
        peer.say(b"hello?")
        assert not any(event[0] == "frames" for event in recorder.events)
        assert peer.pipe.closed == (kind is Pub0)
        assert socket.statistics().drops == {"unsolicited": 1}


async def test_unsuitable_calls_are_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="7"):
        RawSocket(7)
    async with RawSocket(Rep0, receiver=Recorder()) as handed:
        with pytest.raises(NotSupported, match="receiver"):
            await handed.recv()
        with pytest.raises(NotSupported, match="receiver"):
            await handed.recv_run()
        with pytest.raises(NotSupported, match="receiver"):
            await handed.recv_message()
    async with RawSocket(Bus0) as bus:
        with pytest.raises(NotSupported, match="recv_run"):
            await bus.recv_many()


async def test_a_raw_publisher_drops_the_oldest_as_the_cooked_one_does() -> None:
    async with RawSocket(Pub0, options=SocketOptions(send_queue=3)) as pub:
        peer = Peer(pub, reads=False)
        await pub.send_many([b"1", b"2"])
        await pub.send_many([b"3", b"4"])
        peer.connection.release()
        assert peer.heard == [b"2", b"3", b"4"]
        assert pub.statistics().drops == {"peer slow": 1}
        assert pub.statistics().refused == 1


async def test_a_raw_bus_sends_past_the_peer_it_heard_from() -> None:
    async with RawSocket(Bus0, options=SocketOptions(send_queue=2)) as bus:
        origin, *others = [Peer(bus, name=str(number)) for number in range(3)]
        origin.say(b"1", b"2")
        bus.send_past(*await bus.recv_run())
        await until(lambda: all(peer.heard == [b"1", b"2"] for peer in others))
        assert origin.heard == []
        others[0].connection.hold()
        bus.send_past(origin.pipe, [b"x"] * 3)
        assert bus.statistics().drops == {"peer slow": 2}
        others[0].connection.release()


async def test_closing_ends_a_waiting_recv_run() -> None:
    socket = RawSocket(Bus0)
    waiting = [asyncio.create_task(socket.recv_run()), asyncio.create_task(socket.recv_message())]
    await turns()
    await socket.aclose()
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, Closed)


async def test_two_raw_sockets_make_a_relay() -> None:
    """Requests cross one hop and answers return; the ends cannot tell."""
    async with Req0() as req, Rep0() as rep, RawSocket(Rep0) as front, RawSocket(Req0) as back:
        Link(req, front)
        Link(back, rep)

        async def forward() -> None:
            while True:
                pipe, frames = await front.recv_run()
                await back.send_many([push(frame, pipe.id) for frame in frames])

        async def backward() -> None:
            while True:
                _, frames = await back.recv_run()
                for frame in frames:
                    word, rest = pop(frame)
                    (pipe,) = [pipe for pipe in front.pipes if pipe.id == word]
                    front.send_to(pipe, [rest])

        relaying = [asyncio.create_task(forward()), asyncio.create_task(backward())]
        for number in range(10):
            await req.send(b"q%d" % number)
            assert await rep.recv() == b"q%d" % number
            await rep.send(b"a%d" % number)
            assert await req.recv() == b"a%d" % number
        for task in relaying:
            task.cancel()
        await asyncio.wait(relaying)
