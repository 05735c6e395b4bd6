"""Req0: one question, one answer; sent again when it has to be."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import Closed, Req0, RequestLost, SocketOptions, SPError, StateError, Timeout, WouldBlock
from protocols.patterns.reqrep import Ids, Requester, RequesterLane
from protocols.wire.backtrace import END_BIT, encode_word, peek
from tests.support.link import Peer, Plug
from tests.support.waiting import turns, until


def requester(resend_s: float | None = 60.0) -> Requester:
    return Requester(SocketOptions(resend_s=resend_s), random.Random(1))


def answer(request: bytes, body: bytes) -> bytes:
    return request[:4] + body


# --- sockets


async def test_recv_before_send_is_a_state_error() -> None:
    async with Req0() as req:
        with pytest.raises(StateError, match="sends first"):
            await req.recv()
        with pytest.raises(StateError):
            req.recv_nowait()


async def test_an_answer_is_received_once() -> None:
    async with Req0() as req:
        peer = Peer(req)
        await req.send(b"q")
        with pytest.raises(WouldBlock):
            req.recv_nowait()
        peer.say(answer(peer.heard[0], b"a"))
        assert req.recv_nowait() == b"a"
        with pytest.raises(StateError):
            await req.recv()


async def test_ids_have_bit_31_and_count_up_from_a_random_start() -> None:
    async with Req0(rng=random.Random(5)) as req, Req0(rng=random.Random(6)) as other:
        peer, stranger = Peer(req), Peer(other)
        for number in range(3):
            await req.send(b"%d" % number)
        await other.send(b"x")
        await until(lambda: len(peer.heard) == 3)
        ids = [peek(frame) for frame in peer.heard]
        assert all(id & END_BIT for id in ids)
        assert [id - ids[0] for id in ids] == [0, 1, 2]
        assert peek(stranger.heard[0]) != ids[0]


def test_ids_wrap_inside_31_bits() -> None:
    ids = Ids(random.Random(1))
    ids._last = END_BIT - 2
    assert [ids.draw(), ids.draw(), ids.draw()] == [0xFFFFFFFF, END_BIT, END_BIT | 1]


async def test_a_new_question_gives_up_the_old_one_and_its_answer() -> None:
    async with Req0() as req:
        peer = Peer(req)
        await req.send(b"1")
        waiting = asyncio.create_task(req.recv())
        await turns()
        await req.send(b"2")
        with pytest.raises(StateError, match="replaced"):
            await waiting
        await until(lambda: len(peer.heard) == 2)
        peer.say(answer(peer.heard[0], b"old"), answer(peer.heard[1], b"new"))
        assert await req.recv() == b"new"
        assert req.statistics().drops == {"stale": 1}


async def test_a_new_question_also_replaces_an_answer_that_was_not_taken() -> None:
    async with Req0() as req:
        peer = Peer(req)
        await req.send(b"1")
        waiting = asyncio.create_task(req.recv())
        await turns()
        peer.say(answer(peer.heard[0], b"old"))  # the reader is woken ...
        await req.send(b"2")  # ... and superseded before it could check
        with pytest.raises(StateError, match="replaced"):
            await waiting


async def test_a_second_recv_at_once_is_a_state_error() -> None:
    async with Req0() as req:
        peer = Peer(req)
        await req.send(b"q")
        waiting = asyncio.create_task(req.recv())
        await turns()
        with pytest.raises(StateError, match="context"):
            await req.recv()
        peer.say(answer(peer.heard[0], b"a"))
        assert await waiting == b"a"


async def test_a_cancelled_recv_leaves_the_question_open() -> None:
    async with Req0() as req:
        peer = Peer(req)
        await req.send(b"q")
        with pytest.raises(Timeout):
            await req.recv(timeout=0.01)
        waiting = asyncio.create_task(req.recv())
        await turns()
        peer.say(answer(peer.heard[0], b"a"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await req.recv() == b"a"


async def test_send_waits_for_a_peer_and_a_late_one_gets_it() -> None:
    async with Req0() as req:
        with pytest.raises(WouldBlock):
            req.send_nowait(b"x")
        with pytest.raises(Timeout):
            await req.send(b"x", timeout=0.01)
        with pytest.raises(StateError):
            await req.recv()
        waiting = asyncio.create_task(req.send(b"late"))
        await turns()
        peer = Peer(req)
        await waiting
        await until(lambda: [frame[4:] for frame in peer.heard] == [b"late"])


async def test_a_request_that_waits_for_room_does_not_overtake_a_later_one() -> None:
    async with Req0(options=SocketOptions(linger_s=0.0)) as req:
        former = asyncio.create_task(req.send(b"former"))
        await turns()
        later = asyncio.create_task(req.send(b"later"))
        await turns()
        with pytest.raises(StateError, match="replaced"):
            await former
        peer = Peer(req)
        await later
        await until(lambda: len(peer.heard) == 1)
        assert peer.heard[0][4:] == b"later"
        peer.say(answer(peer.heard[0], b"to the later"))
        assert await req.recv() == b"to the later"


async def test_a_request_that_waits_in_one_context_leaves_others_alone() -> None:
    async with Req0(options=SocketOptions(linger_s=0.0)) as req, req.new_context() as context:
        waiting = [asyncio.create_task(req.send(b"one")), asyncio.create_task(context.send(b"two"))]
        await turns()
        peer = Peer(req)
        await asyncio.gather(*waiting)
        await until(lambda: [frame[4:] for frame in peer.heard] == [b"one", b"two"])


@pytest.mark.parametrize("frame", [b"", b"abc"])
async def test_an_answer_without_an_id_costs_the_pipe(frame: bytes) -> None:
    async with Req0() as req:
        peer = Peer(req)
        peer.say(frame)
        assert peer.pipe.closed
        assert req.statistics().drops == {"malformed": 1}


@pytest.mark.parametrize("frame", [encode_word(END_BIT | 1) + b"x", encode_word(1) + b"x", bytes(4)])
async def test_an_answer_without_an_open_question_is_dropped(frame: bytes) -> None:
    async with Req0() as req:
        peer = Peer(req)
        await req.send(b"q")
        peer.say(frame, answer(peer.heard[0], b"a"))
        assert await req.recv() == b"a"
        assert not peer.pipe.closed
        assert req.statistics().drops == {"stale": 1}


async def test_contexts_ask_in_parallel_and_answers_never_cross() -> None:
    async with Req0() as req:
        peers = [Peer(req, name=str(number)) for number in range(3)]

        async def ask(number: int) -> None:
            async with req.new_context() as context:
                for turn in range(20):
                    await context.send(b"%d.%d" % (number, turn))
                    assert await context.recv(timeout=10.0) == b"answer to %d.%d" % (number, turn)

        async def serve(peer: Peer) -> None:
            rng = random.Random(1)
            while True:
                await asyncio.sleep(0)
                frames = peer.heard[:]
                peer.heard.clear()
                rng.shuffle(frames)
                for frame in frames:
                    peer.say(frame[:4] + b"answer to " + frame[4:])

        serving = [asyncio.create_task(serve(peer)) for peer in peers]
        await asyncio.gather(*(ask(number) for number in range(40)))
        for task in serving:
            task.cancel()
        await asyncio.wait(serving)


async def test_closing_a_context_ends_its_calls_and_forgets_its_question() -> None:
    async with Req0() as req:
        peer = Peer(req)
        context = req.new_context()
        await context.send(b"q")
        waiting = asyncio.create_task(context.recv())
        await turns()
        await context.aclose()
        with pytest.raises(Closed, match="the context is closed"):
            await waiting
        with pytest.raises(Closed):
            await context.send(b"x")
        await context.aclose()
        peer.say(answer(peer.heard[0], b"a"))
        assert req.statistics().drops == {"stale": 1}
        await req.send(b"still works")


async def test_a_lost_peer_makes_the_question_go_to_another_at_once() -> None:
    async with Req0() as req:
        one, two = Peer(req, name="one"), Peer(req, name="two")
        await req.send(b"q")
        await until(lambda: one.heard)
        one.hang_up()
        await until(lambda: two.heard)
        assert two.heard == one.heard
        two.say(answer(two.heard[0], b"a"))
        assert await req.recv() == b"a"


async def test_a_question_outlives_all_peers_and_goes_to_the_next_that_comes() -> None:
    async with Req0() as req:
        Peer(req).hang_up()
        first = Peer(req)
        await req.send(b"q")
        first.hang_up()
        waiting = asyncio.create_task(req.recv())
        await turns()
        second = Peer(req)
        await until(lambda: second.heard)
        second.say(answer(second.heard[0], b"a"))
        assert await waiting == b"a"


async def test_a_question_is_asked_again_when_no_answer_comes() -> None:
    async with Req0(options=SocketOptions(resend_s=0.02)) as req:
        peer = Peer(req)
        await req.send(b"q")
        await until(lambda: len(peer.heard) >= 3)
        assert len(set(peer.heard)) == 1
        peer.say(answer(peer.heard[0], b"a"), answer(peer.heard[0], b"a"))
        assert await req.recv() == b"a"
        assert req.statistics().drops == {"stale": 1}


async def test_a_question_that_found_room_late_is_also_asked_again() -> None:
    """While it had no room, nothing had a deadline, so no timer ran."""
    async with Req0(options=SocketOptions(resend_s=0.02, send_queue=1)) as req:
        peer = Peer(req, reads=False)
        await req.send(b"q")
        await until(lambda: peer.pipe.refused)
        peer.connection.release()
        await until(lambda: len(peer.heard) >= 5, timeout_s=5)
        assert len(set(peer.heard)) == 1


@pytest.mark.parametrize("resend_s", [None, 0])
async def test_recv_fails_when_the_peer_is_lost_without_resending(resend_s: float | None) -> None:
    async with Req0(options=SocketOptions(resend_s=resend_s)) as req:
        one, two = Peer(req, name="one"), Peer(req, name="two")
        await req.send(b"q")
        waiting = asyncio.create_task(req.recv())
        await until(lambda: one.heard)
        one.hang_up()
        with pytest.raises(RequestLost, match="is gone and resend_s is off"):
            await waiting
        assert two.heard == []
        with pytest.raises(StateError):
            await req.recv()
        assert issubclass(RequestLost, (SPError, ConnectionError))


# --- the machine, in its own time


def lane_of(pattern: Requester) -> RequesterLane:
    return pattern.lane


def test_a_question_is_sent_again_after_each_resend_time_without_an_answer() -> None:
    pattern = requester(2.5)
    plug = Plug(pattern)
    assert pattern.next_deadline() is None
    assert pattern.lane.send(b"q", 10.0)
    (first,) = plug.take()
    for due in (12.5, 15.0, 17.5):
        assert pattern.next_deadline() == due
        pattern.deadline_reached(due - 0.1)
        assert plug.take() == []
        pattern.deadline_reached(due)
        assert plug.take() == [first]


def test_a_unassigned_question_has_no_deadline_and_goes_before_new_ones() -> None:
    pattern = requester(5.0)
    plug = Plug(pattern)
    pattern.lane.send(b"old", 0.0)
    plug.lose(1.0)
    assert pattern.next_deadline() is None
    assert not pattern.open_lane().send(b"new", 2.0)
    later = Plug(pattern, 2, now=3.0)
    assert [frame[4:] for frame in later.take()] == [b"old"]
    assert pattern.next_deadline() == 8.0


def test_giving_up_a_question_removes_all_its_state() -> None:
    pattern = requester(5.0)
    plug = Plug(pattern)
    pattern.lane.send(b"q", 0.0)
    plug.lose()
    pattern.lane.close()
    other = Plug(pattern, 2)
    assert other.take() == []
    assert pattern.next_deadline() is None
    assert not pattern._requests and not pattern._unassigned


Step = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 3)),
    st.tuples(st.just("recv"), st.integers(0, 3)),
    st.tuples(st.just("answer"), st.integers(0, 9)),
    st.tuples(st.just("lose"), st.integers(0, 2)),
    st.tuples(st.just("attach"), st.just(0)),
    st.tuples(st.just("pass"), st.integers(1, 9)),
    st.tuples(st.just("garbage"), st.integers(0, 2)),
)


@given(st.lists(Step, max_size=60), st.sampled_from([None, 3.0]))
def test_a_lane_always_gets_the_answer_to_its_own_last_question(
    steps: list[tuple[str, int]], resend_s: float | None
) -> None:
    pattern = requester(resend_s)
    lanes = [pattern.lane, *(pattern.open_lane() for _ in range(3))]
    asked: list[bytes | None] = [None] * 4
    plugs: list[Plug] = []
    wire: list[tuple[Plug, bytes]] = []
    now = 0.0
    for number, (what, which) in enumerate(steps):
        if what == "send":
            body = b"%d by %d" % (number, which)
            asked[which] = body if lanes[which].send(body, now) else None
        elif what == "recv":
            try:
                got = lanes[which].recv(now, False)
            except (StateError, RequestLost):
                asked[which] = None
            else:
                assert got is None or got == b"re " + (asked[which] or b"never")
                asked[which] = None if got is not None else asked[which]
        elif what == "attach":
            plugs.append(Plug(pattern, number + 1, now=now))
        elif what == "pass":
            now += which
            due = pattern.next_deadline()
            if due is not None and due <= now:
                pattern.deadline_reached(now)
        elif plugs and what == "lose":
            plugs.pop(which % len(plugs)).lose(now)
        elif plugs and what == "garbage":
            plugs[which % len(plugs)].say(encode_word(END_BIT | number), now=now)
        elif what == "answer" and wire:
            plug, frame = wire[which % len(wire)]
            if plug in plugs:
                plug.say(frame[:4] + b"re " + frame[4:], now=now)
        wire += [(plug, frame) for plug in plugs for frame in plug.take()]
        assert len(pattern._requests) <= 4
        assert set(pattern._due).isdisjoint(pattern._unassigned)
        due = pattern.next_deadline()
        assert due is None or due == min(request.due for request in pattern._due.values())
