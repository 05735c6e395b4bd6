"""Star0: every node passes on the messages it receives."""

from __future__ import annotations

import pytest

from protocols import LocalProtocolError, RawSocket, SocketOptions, Star0, Timeout
from protocols.wire.hops import HOP_WORDS
from tests.support.link import Link, Peer, made
from tests.support.waiting import turns, until


@pytest.mark.parametrize("raw", [False, True])
async def test_a_received_message_goes_to_all_but_its_origin_with_one_hop_more(raw: bool) -> None:
    async with made(Star0, raw) as star:
        origin, *others = [Peer(star, name=str(number)) for number in range(4)]
        origin.say(HOP_WORDS[0] + b"hello", HOP_WORDS[3] + b"far")
        await until(
            lambda: all(peer.heard == [HOP_WORDS[1] + b"hello", HOP_WORDS[4] + b"far"] for peer in others)
        )
        assert origin.heard == []
        expected = [HOP_WORDS[1] + b"hello", HOP_WORDS[4] + b"far"] if raw else [b"hello", b"far"]
        assert [await star.recv(), await star.recv()] == expected


async def test_every_node_of_a_tree_except_the_sender_receives_a_message_once() -> None:
    nodes = [Star0() for _ in range(7)]
    for number in range(1, 7):
        Link(nodes[(number - 1) // 2], nodes[number])
    await nodes[5].send(b"from a leaf")
    for node in nodes:
        if node is not nodes[5]:
            assert await node.recv(timeout=5.0) == b"from a leaf"
    await turns(20)
    for node in nodes:
        with pytest.raises(Timeout):
            await node.recv(timeout=0.001)
        await node.aclose()


async def test_the_first_sender_writes_no_hop() -> None:
    async with Star0() as star:
        peers = [Peer(star, name=str(number)) for number in range(2)]
        await star.send(b"1")
        await star.send_many([b"2", b"3"])
        await until(
            lambda: all(peer.heard == [HOP_WORDS[0] + body for body in (b"1", b"2", b"3")] for peer in peers)
        )


@pytest.mark.parametrize("raw", [False, True])
async def test_malformed_frames_are_dropped_and_the_pipe_stays(raw: bool) -> None:
    async with made(Star0, raw) as star:
        peer, other = Peer(star), Peer(star, name="other")
        peer.say(b"", b"\0\0\0", b"\1\0\0\0x", b"\0\1\0\0x", b"\0\0\1\0x", b"\0\0\0\1good")
        assert await star.recv() == (HOP_WORDS[2] + b"good" if raw else b"good")
        await until(lambda: other.heard == [HOP_WORDS[2] + b"good"])
        assert not peer.pipe.closed
        assert star.statistics().drops == {"malformed": 5}


@pytest.mark.parametrize("raw", [False, True])
async def test_a_message_with_ttl_hops_goes_no_further(raw: bool) -> None:
    async with made(Star0, raw, options=SocketOptions(ttl=3)) as star:
        peer, other = Peer(star), Peer(star, name="other")
        peer.say(HOP_WORDS[3] + b"too far", HOP_WORDS[2] + b"last", HOP_WORDS[255] + b"too far")
        await until(lambda: other.heard == [HOP_WORDS[3] + b"last"])
        assert star.statistics().drops == {"over ttl": 2}


@pytest.mark.parametrize("ttl", [1, 2, 8])
async def test_a_message_in_a_cycle_ends_when_its_hops_do(ttl: int) -> None:
    """Three nodes in a ring; without suppression of duplicates each message runs in both directions."""
    nodes = [Star0(options=SocketOptions(ttl=ttl)) for _ in range(3)]
    for number in range(3):
        Link(nodes[number], nodes[(number + 1) % 3])
    await nodes[0].send(b"round")

    def over() -> int:
        return sum(node.statistics().drops.get("over ttl", 0) for node in nodes)

    await until(lambda: over() == 2)
    await turns(50)
    assert over() == 2
    assert sum(node.statistics().frames_in for node in nodes) == 2 * (ttl + 1)
    for node in nodes:
        await node.aclose()


@pytest.mark.parametrize("raw", [False, True])
async def test_an_application_that_does_not_read_still_forwards(raw: bool) -> None:
    async with made(Star0, raw, options=SocketOptions(recv_queue=4)) as star:
        peer, other = Peer(star), Peer(star, name="other")
        for number in range(100):
            peer.say(HOP_WORDS[0] + b"%d" % number, HOP_WORDS[0] + b"and")
            await turns(2)
        assert len(other.heard) == 200
        assert not peer.connection.paused
        assert star.statistics().drops == {"inbox full": 196}
        word = HOP_WORDS[1] if raw else b""
        assert [await star.recv() for _ in range(4)] == [word + body for body in (b"0", b"and", b"1", b"and")]


async def test_a_slow_peer_misses_messages_that_others_get() -> None:
    async with Star0(options=SocketOptions(send_queue=3)) as star:
        origin, slow, fast = (Peer(star, name=name) for name in ("origin", "slow", "fast"))
        slow.connection.hold()
        for number in range(10):
            origin.say(HOP_WORDS[0] + b"%d" % number)
            await turns(2)
        assert len(fast.heard) == 10
        assert star.statistics().drops == {"peer slow": 7}
        slow.connection.release()
        assert [frame[4:] for frame in slow.heard] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("raw", [False, True])
async def test_peers_that_keep_up_receive_all_messages_of_one_turn(raw: bool) -> None:
    """Ten runs are read in one turn, each as long as a queue: queued frames are written before the next
    run.
    """
    async with made(Star0, raw, options=SocketOptions(send_queue=100)) as star:
        peers = [Peer(star, name=str(number)) for number in range(10)]
        for number, peer in enumerate(peers):
            peer.say(*[HOP_WORDS[0] + b"%d" % number] * 100)
        await turns()
        assert [len(peer.heard) for peer in peers] == [900] * 10
        assert set(star.statistics().drops) <= {"inbox full"}


async def test_a_send_never_waits() -> None:
    async with Star0(options=SocketOptions(send_queue=10)) as star:
        await star.send(b"to nobody")
        Peer(star, reads=False)
        for _ in range(200):
            await star.send(b"x", timeout=1.0)
        assert star.statistics().drops == {"peer slow": 190}


async def test_raw_sockets_send_frames_with_a_hop_count_unchanged() -> None:
    async with RawSocket(Star0) as star:
        peer = Peer(star)
        await star.send(HOP_WORDS[4] + b"x")
        await until(lambda: peer.heard == [HOP_WORDS[4] + b"x"])
        with pytest.raises(LocalProtocolError, match="not with nothing"):
            await star.send(b"")
        with pytest.raises(LocalProtocolError, match="not with 6e 6f 20 77"):
            await star.send(b"no word")
