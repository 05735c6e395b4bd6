"""Items 91 to 107: Pub0 and Sub0."""

from __future__ import annotations

import asyncio

import pytest

from protocols import Device, ProtocolNumber, StateError, Timeout, WouldBlock
from tests.support.waiting import until

from .declaring import EACH, OURS_OURS, OURS_PYNNG, PAIRS, PYNNG, STREAMS, TRANSPORTS, item
from .links import End, Link

SUB, PUB = ProtocolNumber.SUB0, ProtocolNumber.PUB0
EVERYTHING = {"topics": [b""]}


@item(91, transports=TRANSPORTS, pairs=PAIRS)
async def test_all_subscribers_receive_all_messages_of_their_topics(link: Link) -> None:
    async with link:
        pub = link.first("Pub0")
        subs = [link.second("Sub0", topics=[b""]) for _ in range(3)]
        await link.meet(pub, *subs)
        for number in range(10):
            await pub.send(b"%d" % number)
        for sub in subs:
            assert [await sub.recv() for _ in range(10)] == [b"%d" % number for number in range(10)]


@item(92, pairs=EACH)
async def test_publishing_without_subscribers_never_waits(link: Link) -> None:
    async with link:
        pub = link.first("Pub0", send_queue=4)
        for _ in range(1000):
            await pub.send(b"nobody", timeout=5.0)


@item(93, transports=TRANSPORTS, pairs=(OURS_OURS, OURS_PYNNG))
async def test_a_slow_subscriber_loses_its_oldest_and_the_others_nothing(link: Link) -> None:
    async with link:
        pub = link.first("Pub0", send_queue=8)
        slow = link.ours("Sub0", raw=True, recv_queue=1)  # a raw one stops reading
        quick = link.second("Sub0", topics=[b""])
        await link.meet(pub, slow, quick)
        body = bytes(256 << 10)
        for number in range(100):
            await pub.send(b"%03d" % number + body)
            assert (await quick.recv())[:3] == b"%03d" % number
        assert pub.statistics().drops["peer slow"] > 0
        last = b""
        while last != b"099":
            _, frames = await slow.recv_run()
            last = frames[-1][:3]  # the newest is there: only old ones were lost


@item(94, transports=STREAMS, pairs=EACH)
async def test_a_subscriber_that_sends_loses_its_pipe(link: Link) -> None:
    async with link.scripted("Pub0", SUB) as (pub, good):
        bad = await link.script(SUB, pub)
        await bad.send(b"unasked")
        await bad.read_all()
        await until(lambda: len(pub.pipes) == 1)
        await pub.send(b"news")
        assert await good.recv() == b"news"


@item(95, transports=TRANSPORTS, pairs=(OURS_OURS, OURS_PYNNG))
async def test_each_peer_has_a_queue_of_its_own(link: Link) -> None:
    async with link:
        pub = link.first("Pub0", send_queue=5)
        subs = [link.second("Sub0", topics=[b""]) for _ in range(2)]
        await link.meet(pub, *subs)
        for number in range(7):  # in one loop turn
            pub.send_nowait(b"%d" % number)
        assert pub.statistics().drops == {"peer slow": 4}
        for sub in subs:
            assert [await sub.recv() for _ in range(5)] == [b"2", b"3", b"4", b"5", b"6"]


@item(96, transports=("tcp",), pairs=PAIRS)
async def test_a_socket_without_subscriptions_receives_nothing(link: Link) -> None:
    async with link:
        pub, deaf, sub = link.first("Pub0"), link.second("Sub0"), link.second("Sub0", topics=[b""])
        await link.meet(pub, deaf, sub)
        await pub.send(b"news")
        assert await sub.recv() == b"news"
        with pytest.raises((Timeout, WouldBlock)):
            await deaf.recv(timeout=0.02)
        deaf.subscribe(b"la")
        await pub.send(b"later")
        assert await deaf.recv() == b"later"


@item(97, transports=TRANSPORTS, pairs=PAIRS)
async def test_topics_are_prefixes_byte_by_byte(link: Link) -> None:
    async with link.pair("Sub0", "Pub0", a={"topics": [b"ab", b"\x00\xff"]}) as (sub, pub):
        for body in (b"", b"a", b"abc", b"AB", b"ba", b"\x00", b"\x00\xff\x00", b"\xff\x00", b"ab"):
            await pub.send(body)
        assert [await sub.recv() for _ in range(3)] == [b"abc", b"\x00\xff\x00", b"ab"]
        sub.subscribe(b"")
        await pub.send(b"")
        await pub.send(b"anything")
        assert [await sub.recv(), await sub.recv()] == [b"", b"anything"]


@item(98, transports=("tcp",), pairs=PAIRS)
async def test_subscribing_twice_is_subscribing_once(link: Link) -> None:
    async with link.pair("Sub0", "Pub0", a={"topics": [b"a", b"a", b"b"]}) as (sub, pub):
        await pub.send(b"a")
        assert await sub.recv() == b"a"
        sub.unsubscribe(b"a")
        await pub.send(b"a")
        await pub.send(b"b")
        assert await sub.recv() == b"b"


@item(99, pairs=EACH)
async def test_unsubscribing_an_unknown_topic_is_an_error(link: Link) -> None:
    async with link:
        sub = link.first("Sub0", topics=[b"a"])
        with pytest.raises(StateError):
            sub.unsubscribe(b"b")
        sub.unsubscribe(b"a")
        with pytest.raises(StateError):
            sub.unsubscribe(b"a")


@item(100, transports=TRANSPORTS, pairs=PAIRS)
async def test_unsubscribing_removes_unwanted_queued_messages(link: Link) -> None:
    async with link.pair("Sub0", "Pub0", a={"topics": [b"a", b"b"]}) as (sub, pub):
        witness = link.second("Pub0")
        for body in (b"a1", b"b1", b"a2", b"b2"):
            await pub.send(body)
        await queued(link, sub, 4)
        sub.unsubscribe(b"a")
        assert [await sub.recv(), await sub.recv()] == [b"b1", b"b2"]
        await witness.aclose()


async def queued(link: Link, sub: End, count: int) -> None:
    """Wait until so many messages have arrived and are in the inbox."""
    if link.case.pair[0] == PYNNG:
        await asyncio.sleep(0.2)  # NNG does not tell
    else:
        await until(lambda: sub.statistics().frames_in == count)


@item(101, transports=TRANSPORTS, pairs=PAIRS)
async def test_unsubscribing_under_load(link: Link) -> None:
    async with link.pair("Sub0", "Pub0", a={"topics": [b"a", b"b"]}) as (sub, pub):

        async def publish() -> None:
            for number in range(300):
                await pub.send(b"%s%d" % (b"ab"[number % 2 : number % 2 + 1], number))
                if number % 20 == 0:
                    await asyncio.sleep(0)
            while not done:
                await pub.send(b"b end")
                await asyncio.sleep(0.001)

        done = False
        publishing = asyncio.create_task(publish())
        assert await sub.recv() == b"a0"
        sub.unsubscribe(b"a")
        while (body := await sub.recv()) != b"b end":
            assert body.startswith(b"b")
        done = True
        await publishing


@item(102, transports=STREAMS, pairs=EACH)
async def test_a_full_inbox_drops_the_oldest_or_the_newest(link: Link) -> None:
    for prefer_new, kept in ((True, [b"6", b"7", b"8", b"9"]), (False, [b"0", b"1", b"2", b"3"])):
        async with Link(link.case, link.folder) as one:
            sub = one.first("Sub0", topics=[b""], recv_queue=4, prefer_new=prefer_new)
            one.url = (await sub.listen(one.address())).url
            peer = await one.script(PUB, sub)
            await peer.send(*(b"%d" % number for number in range(10)))
            await queued(one, sub, 10)
            assert [await sub.recv() for _ in range(4)] == kept
            await peer.send(b"next")
            assert await sub.recv() == b"next"


@item(103, transports=TRANSPORTS, pairs=(OURS_OURS, OURS_PYNNG), note="pynng's contexts cannot subscribe")
async def test_contexts_have_topics_of_their_own_and_copies_of_their_own(link: Link) -> None:
    async with link.pair("Sub0", "Pub0") as (sub, pub):
        one, both = sub.new_context(), sub.new_context()
        one.subscribe(b"a")
        both.subscribe(b"a")
        both.subscribe(b"b")
        for body in (b"a1", b"b1", b"c1", b"a2"):
            await pub.send(body)
        assert [await both.recv() for _ in range(3)] == [b"a1", b"b1", b"a2"]
        assert [await one.recv() for _ in range(2)] == [b"a1", b"a2"]


@item(104, transports=TRANSPORTS, pairs=(OURS_OURS, OURS_PYNNG), note="pynng's contexts cannot subscribe")
async def test_a_closed_context_leaves_the_socket_and_the_others(link: Link) -> None:
    async with link.pair("Sub0", "Pub0", a={"topics": [b"s"]}) as (sub, pub):
        gone, stays = sub.new_context(), sub.new_context()
        gone.subscribe(b"")
        stays.subscribe(b"c")
        await gone.aclose()
        for body in (b"c", b"s"):
            await pub.send(body)
        assert await sub.recv() == b"s"
        assert await stays.recv() == b"c"


@item(105, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_message_that_came_before_the_recv_is_delivered(link: Link) -> None:
    async with link.pair("Sub0", "Pub0", a=EVERYTHING) as (sub, pub):
        await pub.send(b"early")
        await queued(link, sub, 1)
        assert await sub.recv() == b"early"


@item(106, transports=TRANSPORTS, pairs=(OURS_OURS, OURS_PYNNG), note="the raw end is ours: pynng has none")
async def test_a_raw_subscriber_receives_everything(link: Link) -> None:
    async with link.pair("Sub0", "Pub0", a={"raw": True}) as (sub, pub):
        for body in (b"a", b"b", b""):
            await pub.send(body)
        assert [(await sub.recv_message()).body for _ in range(3)] == [b"a", b"b", b""]


@item(107, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_forwarder_passes_all_topics(link: Link) -> None:
    async with link:
        pub, sub = link.first("Pub0"), link.second("Sub0", topics=[b"b"])
        front, back = link.ours("Sub0", raw=True), link.ours("Pub0", raw=True)
        running = asyncio.create_task(Device(front, back).run())
        await link.meet(front, pub)
        await link.meet(back, sub)
        for body in (b"a", b"b1", b"b2"):
            await pub.send(body)
        assert [await sub.recv(), await sub.recv()] == [b"b1", b"b2"]
        await front.aclose()
        assert (await running).forward.frames == 3
