"""Rep0 and Respondent0: take a question, give one answer."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import Rep0, Respondent0, Socket, SocketOptions, StateError, Timeout, WouldBlock
from protocols.patterns.replier import Replier
from protocols.patterns.survey import Respondent
from protocols.wire.backtrace import END_BIT, encode_word
from tests.support.link import Peer, Plug
from tests.support.waiting import turns, until

ID = encode_word(END_BIT | 7)

pytestmark = pytest.mark.parametrize("kind", [Rep0, Respondent0])
Kind = type[Rep0] | type[Respondent0]


def question(body: bytes = b"?", hops: int = 0) -> bytes:
    return b"".join(encode_word(hop + 1) for hop in range(hops)) + ID + body


async def test_the_answer_goes_to_its_requester(kind: Kind) -> None:
    async with kind() as socket:
        one, two = Peer(socket, name="one"), Peer(socket, name="two")
        two.say(question(b"from two"))
        one.say(question(b"from one"))
        assert await socket.recv() == b"from two"
        await socket.send(b"to two")
        assert await socket.recv() == b"from one"
        await socket.send(b"to one")
        await until(lambda: two.heard == [ID + b"to two"])
        await until(lambda: one.heard == [ID + b"to one"])


@pytest.mark.parametrize("hops", [0, 2, 7])
async def test_the_backtrace_comes_back_word_for_word(kind: Kind, hops: int) -> None:
    async with kind() as socket:
        peer = Peer(socket)
        peer.say(question(b"q", hops))
        assert await socket.recv() == b"q"
        await socket.send(b"a")
        assert peer.heard == [question(b"a", hops)]


async def test_more_hops_than_ttl_are_dropped_and_the_pipe_kept(kind: Kind) -> None:
    async with kind() as socket:
        peer = Peer(socket)
        peer.say(question(b"far", 8), question(b"near", 7))
        assert await socket.recv() == b"near"
        assert not peer.pipe.closed
        assert socket.statistics().drops == {"over ttl": 1}


@pytest.mark.parametrize("frame", [b"", b"abc", b"\x00\x00\x00\x01", b"\x00\x00\x00\x01\x80\x00"])
async def test_a_malformed_question_costs_its_pipe_and_no_other(kind: Kind, frame: bytes) -> None:
    async with kind() as socket:
        bad, good = Peer(socket, name="bad"), Peer(socket, name="good")
        bad.say(question(b"before"), frame, question(b"after"))
        good.say(question(b"good"))
        assert bad.pipe.closed and "backtrace" in bad.pipe.close_reason
        assert [await socket.recv(), await socket.recv()] == [b"before", b"good"]
        await socket.send(b"fine")
        assert good.heard == [ID + b"fine"]
        assert socket.statistics().drops == {"malformed": 1, "not answered": 1}


async def test_send_before_recv_and_a_second_send_are_state_errors(kind: Kind) -> None:
    async with kind() as socket:
        with pytest.raises(StateError, match="nothing to answer"):
            await socket.send(b"x")
        peer = Peer(socket)
        peer.say(question())
        await socket.recv()
        await socket.send(b"1")
        with pytest.raises(StateError):
            socket.send_nowait(b"2")
        assert peer.heard == [ID + b"1"]


async def test_the_later_question_is_answered_after_two_recvs(kind: Kind) -> None:
    async with kind() as socket:
        peer = Peer(socket)
        peer.say(encode_word(END_BIT | 1) + b"1", encode_word(END_BIT | 2) + b"2")
        assert [await socket.recv(), await socket.recv()] == [b"1", b"2"]
        await socket.send(b"a")
        assert peer.heard == [encode_word(END_BIT | 2) + b"a"]
        assert socket.statistics().drops == {"not answered": 1}


async def test_an_answer_to_a_peer_that_left_is_dropped_silently(kind: Kind) -> None:
    async with kind() as socket:
        peer = Peer(socket)
        peer.say(question())
        await socket.recv()
        peer.hang_up()
        await socket.send(b"too late")
        assert socket.statistics().drops == {"peer gone": 1}
        with pytest.raises(StateError):
            await socket.send(b"again")


async def test_a_question_survives_its_askers_leaving(kind: Kind) -> None:
    async with kind() as socket:
        peer = Peer(socket)
        peer.say(question(b"fire and forget"))
        peer.hang_up()
        assert await socket.recv() == b"fire and forget"


async def test_send_waits_for_room_and_gives_up_when_the_peer_leaves(kind: Kind) -> None:
    async with kind(options=SocketOptions(send_queue=1)) as socket:
        peer = Peer(socket, reads=False)
        peer.say(question(), question(), question())
        await socket.recv()
        await socket.send(b"1")
        await socket.recv()
        with pytest.raises(WouldBlock):
            socket.send_nowait(b"2")
        with pytest.raises(Timeout):
            await socket.send(b"2", timeout=0.01)
        waiting = asyncio.create_task(socket.send(b"2"))
        await turns()
        peer.connection.release()
        await waiting
        await until(lambda: peer.heard == [ID + b"1", ID + b"2"])
        peer.connection.hold()
        await socket.recv()
        await socket.send(b"3")
        peer.say(question())
        await socket.recv()
        waiting = asyncio.create_task(socket.send(b"4"))
        await turns()
        assert not waiting.done()
        peer.hang_up()
        await waiting


async def test_a_second_recv_at_once_is_a_state_error(kind: Kind) -> None:
    async with kind() as socket:
        waiting = asyncio.create_task(socket.recv())
        await turns()
        with pytest.raises(StateError, match="context"):
            await socket.recv()
        Peer(socket).say(question(b"q"))
        assert await waiting == b"q"


async def test_contexts_answer_in_parallel_and_never_cross(kind: Kind) -> None:
    async with kind() as socket:
        peer = Peer(socket)
        contexts = [socket.new_context() for _ in range(10)]

        async def serve(number: int) -> None:
            context = contexts[number]
            for _ in range(10):
                body = await context.recv()
                await turns(number % 3)
                await context.send(b"answer to " + body)

        serving = [asyncio.create_task(serve(number)) for number in range(10)]
        for number in range(100):
            peer.say(encode_word(END_BIT | number) + b"%d" % number)
            await turns(1)
        await asyncio.gather(*serving)
        await until(lambda: len(peer.heard) == 100)
        assert sorted(peer.heard) == sorted(
            encode_word(END_BIT | number) + b"answer to %d" % number for number in range(100)
        )


async def test_a_wake_up_that_a_cancelled_context_did_not_use_goes_to_the_next(kind: Kind) -> None:
    async with kind() as socket:
        peer = Peer(socket)
        first, second = socket.new_context(), socket.new_context()
        one = asyncio.create_task(first.recv())
        two = asyncio.create_task(second.recv())
        await turns()
        peer.say(question(b"q"))  # wakes the first ...
        one.cancel()  # ... which is cancelled before it could look
        assert await two == b"q"


async def test_a_full_inbox_stops_reading(kind: Kind) -> None:
    async with kind(options=SocketOptions(recv_queue=2)) as socket:
        peer = Peer(socket)
        peer.say(question(), question())
        assert peer.connection.paused
        await socket.recv()
        await socket.recv()
        with pytest.raises(WouldBlock):
            socket.recv_nowait()
        assert not peer.connection.paused


async def test_a_large_answer_passes_whole(kind: Kind) -> None:
    async with kind() as socket:
        peer = Peer(socket)
        peer.say(question())
        await socket.recv()
        body = bytes(10_000_000)
        await socket.send(body)
        assert peer.heard == [ID + body]


async def test_a_lone_answer_is_written_in_the_call_and_others_share_a_write(kind: Kind) -> None:
    async with kind() as socket:
        peer = Peer(socket)
        peer.say(question())
        await socket.recv()
        await socket.send(b"alone")
        assert peer.heard == [ID + b"alone"]
        peer.say(question(), question())
        await socket.recv()
        await socket.send(b"1")
        await socket.recv()
        await socket.send(b"2")
        assert peer.heard == [ID + b"alone"]
        await until(lambda: peer.heard == [ID + b"alone", ID + b"1", ID + b"2"])


@given(st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5), max_size=8))
def test_no_frames_at_all_break_the_machine(kind: Kind, runs: list[list[bytes]]) -> None:
    pattern = (Replier if kind is Rep0 else Respondent)(SocketOptions(), random.Random(1))
    plugs = [Plug(pattern, id, limit=100) for id in (1, 2)]
    for number, run in enumerate(runs):
        plugs[number % 2].say(*run)
    answered = 0
    while (body := pattern.lane.recv(0.0, False)) is not None:
        assert pattern.lane.send(body, 0.0)
        answered += 1
    heard = sum(len(plug.take()) for plug in plugs)
    assert heard + pattern.drops.get("peer gone", 0) == answered
    assert pattern.owed == 0


def test_the_two_differ_in_their_numbers(kind: Kind) -> None:
    socket: Socket = kind()
    assert (socket.protocol, socket.peer) == ((0x31, 0x30) if kind is Rep0 else (0x63, 0x62))


async def waits_for_room(socket: Rep0 | Respondent0, peer: Peer, count: int = 1) -> None:
    """Fill the one place in the peer's queue, and take its next question."""
    peer.connection.hold()
    for _ in range(count):
        peer.say(question(b"filler"))
        await socket.recv()
        await socket.send(b"fills the queue")
    peer.say(question(b"from one"))
    assert await socket.recv() == b"from one"


async def test_an_answer_that_waits_for_room_never_goes_to_another_requester(kind: Kind) -> None:
    """A second task took the next question meanwhile: its requester got the first one's answer."""
    async with kind(options=SocketOptions(send_queue=1, linger_s=0.0)) as socket:
        one, two = Peer(socket, name="one"), Peer(socket, name="two")
        await waits_for_room(socket, one)
        answering = asyncio.create_task(socket.send(b"for one"))
        await turns()
        two.say(question(b"from two"))
        assert await socket.recv() == b"from two"
        with pytest.raises(StateError, match="replaced"):
            await answering
        one.connection.release()
        await socket.send(b"for two")
        await until(lambda: two.heard == [ID + b"for two"])
        assert one.heard == [ID + b"fills the queue"]
        assert socket.statistics().drops == {"not answered": 1}


async def test_two_answers_wait_for_room_and_one_is_sent_the_other_a_state_error(kind: Kind) -> None:
    async with kind(options=SocketOptions(send_queue=1, linger_s=0.0)) as socket:
        one, two = Peer(socket, name="one"), Peer(socket, name="two")
        await waits_for_room(socket, one)
        answering = [asyncio.create_task(socket.send(body)) for body in (b"first", b"second")]
        await turns()
        one.connection.release()
        first, second = await asyncio.gather(*answering, return_exceptions=True)
        assert first is None and isinstance(second, StateError)
        two.say(question(b"from two"))
        assert await socket.recv() == b"from two"
        await socket.send(b"for two")
        await until(lambda: one.heard == [ID + b"fills the queue", ID + b"first"])
        await until(lambda: two.heard == [ID + b"for two"])
