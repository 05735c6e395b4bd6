"""Pub0 and Sub0: every message to every subscriber, filtered by the subscriber."""

from __future__ import annotations

import pytest

from protocols import Closed, NotSupported, Pub0, SocketOptions, Sub0, WouldBlock
from tests.support.link import Link, Peer
from tests.support.waiting import turns, until


async def test_every_subscriber_gets_everything_it_wants() -> None:
    async with Pub0() as pub, Sub0(topics=["a"]) as one, Sub0(topics=[b""]) as all_, Sub0() as none:
        for sub in (one, all_, none):
            Link(pub, sub)
        await pub.send_many([b"a1", b"b1", b"a2"])
        assert [await one.recv(1.0), await one.recv(1.0)] == [b"a1", b"a2"]
        assert [await all_.recv(1.0) for _ in range(3)] == [b"a1", b"b1", b"a2"]
        await turns()
        for sub in (one, none):
            with pytest.raises(WouldBlock):
                sub.recv_nowait()


async def test_send_without_subscribers_does_nothing_and_does_not_wait() -> None:
    async with Pub0() as pub:
        for _ in range(10_000):
            await pub.send(b"x")
        assert pub.statistics().drops == {}


async def test_a_slow_subscriber_loses_its_oldest_and_the_others_nothing() -> None:
    async with Pub0(options=SocketOptions(send_queue=4)) as pub:
        slow, quick = Peer(pub, reads=False, name="slow"), Peer(pub, name="quick")
        for number in range(10):
            await pub.send(b"%d" % number)
            quick.connection.flush()
        await pub.send_many([b"10", b"11"])
        await until(lambda: len(quick.heard) == 12)
        slow.connection.release()
        assert slow.heard == [b"8", b"9", b"10", b"11"]
        statistics = pub.statistics()
        assert statistics.drops == {"peer slow": 8}
        assert statistics.refused == 8


async def test_a_batch_larger_than_the_queue_leaves_its_newest() -> None:
    async with Pub0(options=SocketOptions(send_queue=4)) as pub:
        slow = Peer(pub, reads=False)
        await pub.send_many([b"%d" % number for number in range(100)])
        slow.connection.release()
        assert slow.heard == [b"96", b"97", b"98", b"99"]


async def test_a_subscriber_that_sends_loses_its_pipe() -> None:
    async with Pub0() as pub:
        bad, good = Peer(pub, name="bad"), Peer(pub, name="good")
        bad.say(b"hello?")
        assert bad.pipe.closed and bad.pipe.close_reason == "a subscriber may not send"
        await pub.send(b"x")
        await until(lambda: good.heard == [b"x"])
        assert pub.statistics().drops == {"unsolicited": 1}


async def test_directions() -> None:
    async with Pub0() as pub, Sub0() as sub:
        with pytest.raises(NotSupported, match="pub0 sockets do not receive"):
            await pub.recv()
        with pytest.raises(NotSupported):
            pub.recv_nowait()
        with pytest.raises(NotSupported):
            await pub.recv_many()
        with pytest.raises(NotSupported, match="only receives"):
            await sub.send(b"x")
        with pytest.raises(NotSupported):
            sub.send_nowait(b"x")
        with pytest.raises(NotSupported):
            await sub.send_many([b"x"])


@pytest.mark.parametrize(
    ("topics", "wanted"),
    [
        ([], []),
        ([b""], [b"a", b"ab", b"\x00", b"", b"b"]),
        ([b"a"], [b"a", b"ab"]),
        ([b"ab", b"\x00"], [b"ab", b"\x00"]),
        (["b", "b"], [b"b"]),
        ([b"abc"], []),
    ],
)
async def test_a_topic_is_a_prefix_of_the_body(topics: list[str | bytes], wanted: list[bytes]) -> None:
    async with Sub0(topics=topics) as sub:
        Peer(sub).say(b"a", b"ab", b"\x00", b"", b"b")
        assert [sub.recv_nowait() for _ in wanted] == wanted
        with pytest.raises(WouldBlock):
            sub.recv_nowait()


async def test_unsubscribing_removes_queued_messages_except_those_still_wanted() -> None:
    async with Sub0(topics=["a", "ab", "c"]) as sub:
        Peer(sub).say(b"a1", b"ab1", b"c1", b"a2")
        sub.unsubscribe("a")
        assert await sub.recv_many() == [b"ab1", b"c1"]
        assert sub.statistics().drops == {"unsubscribed": 2}


@pytest.mark.parametrize(("prefer_new", "kept"), [(True, [b"2", b"3", b"4"]), (False, [b"0", b"1", b"2"])])
async def test_a_full_inbox_drops_the_oldest_or_the_newest(prefer_new: bool, kept: list[bytes]) -> None:
    async with Sub0(topics=[""], options=SocketOptions(recv_queue=3, prefer_new=prefer_new)) as sub:
        peer = Peer(sub)
        peer.say(b"0", b"1")
        peer.say(b"2", b"3", b"4")
        assert await sub.recv_many() == kept
        assert sub.statistics().drops == {"inbox full": 2}


async def test_contexts_have_topics_of_their_own_and_get_their_own_copy() -> None:
    async with Sub0(topics=["a"]) as sub:
        peer = Peer(sub)
        async with sub.new_context() as one, sub.new_context() as two:
            one.subscribe("a")
            two.subscribe("b")
            peer.say(b"a1", b"b1")
            assert await one.recv(1.0) == b"a1"
            assert await two.recv(1.0) == b"b1"
            assert await sub.recv(1.0) == b"a1"
            two.unsubscribe("b")
            peer.say(b"b2")
            with pytest.raises(WouldBlock):
                two.recv_nowait()
        with pytest.raises(Closed, match="the context is closed"):
            await one.recv()
        with pytest.raises(Closed, match="the context is closed"):
            one.subscribe("c")
        with pytest.raises(Closed, match="the context is closed"):
            one.unsubscribe("a")
        peer.say(b"a2")
        assert await sub.recv(1.0) == b"a2"


async def test_topics_given_as_one_string_are_refused_with_a_sentence() -> None:
    with pytest.raises(TypeError, match=r"topics=\['abc'\]"):
        Sub0(topics="abc")


async def test_a_publisher_that_never_suspends_does_not_drown_a_subscriber_that_keeps_up() -> None:
    async with Pub0(options=SocketOptions(send_queue=8)) as pub:
        peer = Peer(pub)
        for number in range(100):
            await pub.send(b"%d" % number)
        await pub.send_many([b"%d" % number for number in range(100, 200)])
        await until(lambda: len(peer.heard) == 200)
        assert peer.heard == [b"%d" % number for number in range(200)]
        assert pub.statistics().drops == {}
