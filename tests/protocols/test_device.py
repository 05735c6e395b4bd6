"""Devices: raw sockets joined, chains of them, and their ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from protocols import (
    Bus0,
    Closed,
    Device,
    DeviceStatistics,
    NotSupported,
    Pair0,
    Pair1,
    Pub0,
    Pull0,
    Push0,
    RawSocket,
    Rep0,
    Req0,
    Respondent0,
    Socket,
    SocketOptions,
    Star0,
    StateError,
    Sub0,
    Surveyor0,
    Timeout,
)
from protocols.wire.backtrace import END_BIT, encode_word
from protocols.wire.hops import HOP_WORDS
from tests.support.link import Link, Peer
from tests.support.waiting import turns, until

ID = encode_word(END_BIT | 7)
PAIRS = [
    (Pair0, Pair0),
    (Pair1, Pair1),
    (Bus0, Bus0),
    (Star0, Star0),
    (Rep0, Req0),
    (Respondent0, Surveyor0),
    (Pull0, Push0),
    (Sub0, Pub0),
]


@asynccontextmanager
async def joined(front: Socket, back: Socket | None = None) -> AsyncIterator[Device]:
    """A running device; its sockets are closed at the end, which must end it."""
    middle = Device(front, back)
    running = asyncio.create_task(middle.run())
    await turns(2)
    try:
        yield middle
    finally:
        await front.aclose()
        if back is not None:
            await back.aclose()
        assert (await running).ended


Stops = list[tuple[Socket, Socket]]


async def chain(front: type[Socket], back: type[Socket], length: int, ttl: int = 8) -> Stops:
    """Devices in a row, each one's back linked to the next one's front."""
    options = SocketOptions(ttl=ttl)
    stops = [(RawSocket(front, options=options), RawSocket(back, options=options)) for _ in range(length)]
    for (_, this), (that, _) in pairwise(stops):
        Link(this, that)
    return stops


async def run(stops: Stops) -> list[asyncio.Task[DeviceStatistics]]:
    running = [asyncio.create_task(Device(front, back).run()) for front, back in stops]
    await turns(2)
    return running


async def end(stops: Stops, running: list[asyncio.Task[DeviceStatistics]]) -> None:
    for front, back in stops:
        await front.aclose()
        await back.aclose()
    await asyncio.gather(*running)


# --- allowed pairs


@pytest.mark.parametrize("kinds", PAIRS)
async def test_complementary_raw_sockets_can_be_joined_either_way_round(
    kinds: tuple[type[Socket], ...],
) -> None:
    first, second = kinds
    for one, two in ((first, second), (second, first)):
        async with joined(RawSocket(one), RawSocket(two)) as middle:
            assert middle.statistics().ended == ""


async def test_sockets_that_cannot_be_joined_are_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="at least one socket"):
        Device(None, None)
    with pytest.raises(NotSupported, match=r"RawSocket\(Rep0\)"):
        Device(Rep0(), RawSocket(Req0))
    with pytest.raises(NotSupported, match=r"RawSocket\(Req0\)"):
        Device(RawSocket(Rep0), Req0())
    with pytest.raises(NotSupported, match="cannot join rep0 and rep0; rep0 goes with req0"):
        Device(RawSocket(Rep0), RawSocket(Rep0))
    with pytest.raises(NotSupported, match="cannot join sub0 and push0"):
        Device(RawSocket(Sub0), RawSocket(Push0))
    for kind in (Req0, Rep0, Pub0, Sub0, Push0, Pull0, Surveyor0, Respondent0):
        with pytest.raises(NotSupported, match="reflects pair, bus or star"):
            Device(RawSocket(kind))


async def test_a_socket_that_is_closed_busy_or_has_a_receiver_is_refused() -> None:
    class Nobody:
        def pipe_attached(self, pipe: object) -> None: ...
        def pipe_detached(self, pipe: object, reason: str) -> None: ...
        def frames_received(self, pipe: object, frames: list[bytes]) -> None: ...
        def pipe_writable(self, pipe: object) -> None: ...

    bus = RawSocket(Bus0)
    async with joined(bus):
        with pytest.raises(StateError, match="in a device already"):
            await Device(bus).run()
        other = RawSocket(Bus0)
        with pytest.raises(StateError, match="in a device already"):
            await Device(other, bus).run()
        await device_ends_with(other)
    with pytest.raises(Closed, match="the bus0 socket of the device is closed"):
        await Device(bus).run()
    async with RawSocket(Bus0, receiver=Nobody()) as handed:
        with pytest.raises(NotSupported, match="receiver"):
            await Device(handed).run()


async def device_ends_with(socket: Socket) -> None:
    """The socket is free for another device, and that one ends when it closes."""
    running = asyncio.create_task(Device(socket).run())
    await turns(2)
    await socket.aclose()
    assert (await running).ended == "the bus0 socket was closed"


# --- crossing


@pytest.mark.parametrize("length", [1, 3])
async def test_requests_cross_devices_and_their_answers_return(length: int) -> None:
    stops = await chain(Rep0, Req0, length)
    running = await run(stops)
    async with Req0() as one, Req0() as two, Rep0() as rep:
        Link(one, stops[0][0])
        Link(two, stops[0][0])
        Link(stops[-1][1], rep)

        async def serve() -> None:
            async for question in rep:
                await rep.send(b"re " + question)

        serving = asyncio.create_task(serve())
        contexts = [
            (who, socket.new_context()) for who, socket in ((b"1", one), (b"2", two)) for _ in range(20)
        ]
        for number, (who, context) in enumerate(contexts):
            await context.send(b"%s %d" % (who, number))
        for number, (who, context) in enumerate(contexts):
            assert await context.recv(timeout=10.0) == b"re %s %d" % (who, number)
        await rep.aclose()
        await serving
        await end(stops, running)
    for task in running:
        assert task.result().forward.frames == task.result().backward.frames == 40
        assert task.result().ended == "the rep0 socket was closed"


async def test_surveys_cross_devices_and_collect_all_answers() -> None:
    stops = await chain(Respondent0, Surveyor0, 2)
    running = await run(stops)
    async with Surveyor0(options=SocketOptions(survey_s=20.0)) as surveyor:
        Link(surveyor, stops[0][0])
        respondents = [Respondent0() for _ in range(5)]
        for respondent in respondents:
            Link(stops[-1][1], respondent)
        await surveyor.send(b"who?")
        for number, respondent in enumerate(respondents):
            assert await respondent.recv(timeout=10.0) == b"who?"
            await respondent.send(b"%d" % number)
        assert sorted([await surveyor.recv() for _ in respondents]) == [b"0", b"1", b"2", b"3", b"4"]
        for respondent in respondents:
            await respondent.aclose()
        await end(stops, running)


async def test_publications_cross_unfiltered_in_one_direction() -> None:
    stops = await chain(Sub0, Pub0, 2)
    running = await run(stops)
    async with Pub0() as pub, Sub0(topics=["a"]) as sub, Sub0(topics=[""]) as everything:
        Link(pub, stops[0][0])
        Link(stops[-1][1], sub)
        Link(stops[-1][1], everything)
        await pub.send_many([b"a1", b"b2", b"a3"])
        assert [await sub.recv(timeout=5.0) for _ in range(2)] == [b"a1", b"a3"]
        assert [await everything.recv(timeout=5.0) for _ in range(3)] == [b"a1", b"b2", b"a3"]
        await end(stops, running)
    assert running[0].result().backward.frames == 0


@pytest.mark.parametrize("kind", [Pair0, Pair1, Bus0, Star0])
async def test_symmetric_patterns_cross_both_ways(kind: type[Socket]) -> None:
    stops = await chain(kind, kind, 3)
    running = await run(stops)
    async with kind() as a, kind() as b:
        Link(a, stops[0][0])
        Link(stops[-1][1], b)
        await a.send(b"there")
        assert await b.recv(timeout=5.0) == b"there"
        await b.send(b"back")
        assert await a.recv(timeout=5.0) == b"back"
        await end(stops, running)


@pytest.mark.parametrize(("kinds", "links"), [((Rep0, Req0), 4), ((Pair1, Pair1), 4), ((Star0, Star0), 4)])
async def test_a_message_crosses_as_many_links_as_ttl_and_no_more(
    kinds: tuple[type[Socket], type[Socket]], links: int
) -> None:
    """Three devices are four links; with ttl 3 the last device drops the message."""
    for ttl, arrives in ((links, True), (links - 1, False)):
        stops = await chain(*kinds, links - 1, ttl)
        running = await run(stops)
        sender, taker = kinds[1](), kinds[0](options=SocketOptions(ttl=ttl))
        Link(sender, stops[0][0])
        Link(stops[-1][1], taker)
        await sender.send(b"x")
        if arrives:
            assert await taker.recv(timeout=5.0) == b"x"
        else:
            with pytest.raises(Timeout):
                await taker.recv(timeout=0.2)
            assert taker.statistics().drops == {"over ttl": 1}
        await sender.aclose()
        await taker.aclose()
        await end(stops, running)


async def test_a_loop_of_devices_is_ended_by_ttl() -> None:
    """Requests that find a way back to their device circulate until their backtrace is ttl words long."""
    front, back = RawSocket(Rep0), RawSocket(Req0)
    async with joined(front, back) as middle:
        peer = Peer(front)
        Link(back, front)
        peer.say(ID + b"round")
        await until(lambda: front.statistics().drops == {"over ttl": 1})
        assert middle.statistics().forward.frames == 8


# --- reflectors


async def test_a_reflecting_bus_sends_to_all_except_the_origin() -> None:
    async with RawSocket(Bus0) as bus, joined(bus) as middle:
        peers = [Peer(bus, name=str(number)) for number in range(3)]
        peers[0].say(b"hello", b"again")
        await until(lambda: peers[1].heard == peers[2].heard == [b"hello", b"again"])
        assert peers[0].heard == []
        assert middle.statistics().forward.frames == 2


@pytest.mark.parametrize(
    ("kind", "said", "heard"), [(Pair0, b"x", b"x"), (Pair1, HOP_WORDS[1], HOP_WORDS[2])]
)
async def test_a_reflecting_pair_is_an_echo(kind: type[Socket], said: bytes, heard: bytes) -> None:
    async with RawSocket(kind) as pair, joined(pair, pair):
        peer = Peer(pair)
        peer.say(said)
        await until(lambda: peer.heard == [heard])


async def test_a_reflecting_star_sends_nothing_twice() -> None:
    async with RawSocket(Star0) as star, joined(star, star) as middle:
        one, two = Peer(star), Peer(star, name="two")
        one.say(HOP_WORDS[0] + b"x")
        await turns(10)
        assert (one.heard, two.heard) == ([], [HOP_WORDS[1] + b"x"])
        assert middle.statistics().forward.frames == 1


# --- no room


async def test_a_full_destination_stops_the_source_and_nothing_is_lost() -> None:
    options = SocketOptions(send_queue=4)
    pull, push = RawSocket(Pull0, options=options), RawSocket(Push0, options=options)
    async with joined(pull, push) as middle:
        one, two = Peer(pull, name="one"), Peer(pull, name="two")
        one.say(b"1", b"2")  # nobody is there yet
        assert one.connection.paused and not two.connection.paused
        assert middle.statistics().forward.waiting == 2
        taker = Peer(push, reads=False)
        assert not one.connection.paused
        two.say(*(b"%d" % number for number in range(3, 9)))
        assert two.connection.paused and not one.connection.paused
        one.say(b"last")
        assert one.connection.paused
        taker.connection.release()
        await until(lambda: len(taker.heard) == 9)
        assert not one.connection.paused and not two.connection.paused
        assert taker.heard == [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"last"]
        assert middle.statistics().forward.drops == {}


async def test_a_puller_that_stops_reading_makes_the_pusher_wait_across_the_device() -> None:
    options = SocketOptions(send_queue=8, recv_queue=8)
    front, back = RawSocket(Pull0, options=options), RawSocket(Push0, options=options)
    async with joined(front, back), Push0(options=options) as push, Pull0(options=options) as pull:
        Link(push, front)
        Link(back, pull)
        sending = asyncio.create_task(push.send_many([b"%d" % number for number in range(500)]))
        await turns(50)
        assert not sending.done()
        assert [await pull.recv(timeout=5.0) for _ in range(500)] == [b"%d" % number for number in range(500)]
        await sending


async def test_a_peer_that_does_not_read_answers_is_not_read_and_delays_no_other() -> None:
    front = RawSocket(Rep0, options=SocketOptions(send_queue=4))
    back = RawSocket(Req0)
    async with joined(front, back) as middle:
        stubborn, honest = Peer(front, reads=False, name="stubborn"), Peer(front, name="honest")
        replier = Peer(back)
        stubborn.say(*[ID + b"q"] * 10)
        honest.say(ID + b"q")
        await until(lambda: len(replier.heard) == 11)
        replier.say(*replier.heard)
        await until(lambda: honest.heard == [ID + b"q"])
        assert stubborn.connection.paused and not honest.connection.paused and not replier.connection.paused
        assert middle.statistics().backward.waiting == 6
        stubborn.connection.release()
        await until(lambda: stubborn.heard == [ID + b"q"] * 10)
        assert not stubborn.connection.paused
        assert middle.statistics().backward.drops == {}


async def test_answers_for_peers_that_left_are_dropped_and_counted() -> None:
    front = RawSocket(Rep0, options=SocketOptions(send_queue=1))
    async with joined(front, RawSocket(Req0)) as middle:
        asker = Peer(front, reads=False)
        replier = Peer(middle._back)
        asker.say(ID + b"1", ID + b"2", ID + b"3")
        await until(lambda: len(replier.heard) == 3)
        replier.say(*replier.heard[:2])
        asker.hang_up()
        replier.say(replier.heard[2])
        assert middle.statistics().backward.drops == {"peer lost": 1, "peer gone": 1}


async def test_best_effort_drops_where_a_device_would_hold() -> None:
    pull, push = RawSocket(Pull0), RawSocket(Push0, options=SocketOptions(best_effort=True))
    async with joined(pull, push):
        peer = Peer(pull)
        peer.say(b"1", b"2")
        assert not peer.connection.paused
        assert push.statistics().drops == {"peer slow": 2}


# --- the end


@pytest.mark.parametrize("which", [0, 1])
async def test_closing_either_socket_ends_the_device_and_says_which(which: int) -> None:
    sockets = (RawSocket(Rep0), RawSocket(Req0))
    running = asyncio.create_task(Device(*sockets).run())
    await turns(2)
    asker = Peer(sockets[0])
    asker.say(ID + b"held: nobody answers")
    assert asker.connection.paused
    await sockets[which].aclose()
    result = await running
    assert result.ended == f"the {('rep0', 'req0')[which]} socket was closed"
    assert result.forward.drops == {"device ended": 1}
    other = sockets[1 - which]
    assert not other.closed
    await other.aclose()


async def test_a_cancelled_device_leaves_raw_sockets_as_they_were() -> None:
    async with RawSocket(Pull0) as pull, RawSocket(Push0) as push:
        early = Peer(pull)
        early.say(b"before")
        middle = Device(pull, push)
        running = asyncio.create_task(middle.run())
        await turns(2)
        taker = Peer(push)
        await until(lambda: taker.heard == [b"before"])
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert middle.statistics().ended == "the device was cancelled"
        early.say(b"after")
        assert await pull.recv() == b"after"
        with pytest.raises(StateError, match="runs once"):
            await middle.run()
        again = asyncio.create_task(Device(pull, push).run())
        await turns(2)
        early.say(b"again")
        await until(lambda: taker.heard == [b"before", b"again"])
        again.cancel()
        await asyncio.wait([again])


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "inproc"])
async def test_a_chain_of_devices_over_real_transports(scheme: str, tmp_path: Path) -> None:
    def url(number: int) -> str:
        if scheme == "tcp":
            return "tcp://127.0.0.1:0"
        return f"{scheme}://{tmp_path}/{number}"

    stops: Stops = [(RawSocket(Rep0), RawSocket(Req0)) for _ in range(3)]
    urls = [(await front.listen(url(number))).url for number, (front, _) in enumerate(stops)]
    rep = Rep0()
    urls.append((await rep.listen(url(9))).url)
    for (_, back), there in zip(stops, urls[1:], strict=True):
        back.dial(there)
    running = await run(stops)
    async with Req0(dial=urls[0]) as req:
        for size in (0, 1, 70_000, 900_000):
            await req.send(bytes(size), timeout=10.0)
            assert await rep.recv(timeout=10.0) == bytes(size)
            await rep.send(bytes(size))
            assert await req.recv(timeout=10.0) == bytes(size)
    await rep.aclose()
    await end(stops, running)


async def test_a_reader_of_a_diverted_socket_waits_until_its_own_timeout() -> None:
    async with RawSocket(Bus0) as bus, joined(bus):
        Peer(bus).say(b"x")
        with pytest.raises(Timeout):
            await bus.recv(timeout=0.01)
