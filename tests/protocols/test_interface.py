"""The interface of sockets: only names that programs may use, and each where it is expected."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from types import ModuleType

import pytest

import protocols
from protocols import (
    Bus0,
    Dialer,
    Pair0,
    Pair1,
    PipeView,
    Pub0,
    Pull0,
    Push0,
    RawSocket,
    Rep0,
    Req0,
    Respondent0,
    SharedListener,
    Socket,
    SocketOptions,
    Star0,
    Sub0,
    Surveyor0,
    errors,
)
from tests.support.link import Link, Peer
from tests.support.waiting import until

COOKED = [Bus0, Pair0, Pair1, Pub0, Pull0, Push0, Rep0, Req0, Respondent0, Star0, Sub0, Surveyor0]


@pytest.mark.parametrize("kind", COOKED)
async def test_a_peer_of_a_cooked_socket_can_be_looked_at_but_not_sent_to(kind: type[Socket]) -> None:
    """A frame without its pattern's header would have gone out."""
    async with kind() as socket:
        peer = Peer(socket)
        (pipe,) = socket.pipes
        assert isinstance(pipe, PipeView) and pipe is socket.pipes[0]
        assert (pipe.id, pipe.url, pipe.remote_address) == (peer.pipe.id, "fake://peer", "peer:remote")
        assert not any(hasattr(pipe, call) for call in ("send", "send_many", "send_control", "owner"))
        with pytest.raises(AttributeError):
            pipe.url = "another"  # type: ignore[misc]
        pipe.close("no longer wanted")
        assert pipe.closed and pipe.close_reason == "no longer wanted" and socket.pipes == []


@pytest.mark.parametrize("kind", COOKED)
def test_a_socket_has_few_base_classes_and_no_calls_of_its_engine(kind: type[Socket]) -> None:
    above = [each for each in inspect.getmro(kind)[1:] if each.__module__.startswith("protocols")]
    assert len(above) <= 3, above
    for call in ("attach", "pipe_received", "pipe_closed", "pipe_writable", "send_to", "recv_run"):
        assert not hasattr(kind, call)


async def test_dial_returns_a_dialer_and_waits_for_nothing() -> None:
    async with Pull0() as pull, Push0() as push:
        dialer = push.dial("inproc://later")
        assert isinstance(dialer, Dialer)
        assert dialer.pipe is None
        await pull.listen("inproc://later")
        assert await dialer.wait_connected() is dialer.pipe


@pytest.mark.parametrize(
    ("first", "second"),
    [(Push0, Pull0), (Pair0, Pair0), (Pair1, Pair1), (Bus0, Bus0), (Pub0, Sub0), (Star0, Star0)],
)
async def test_a_message_names_the_peer_that_sent_it(first: type[Socket], second: type[Socket]) -> None:
    async with Sub0(topics=[""]) if second is Sub0 else second() as reader, first() as writer:
        link = Link(writer, reader)
        for body in (b"1", b"2"):
            await writer.send(body)
            message = await reader.recv_message(timeout=5.0)
            assert (message.body, message.header) == (body, b"")
            assert message.pipe == link.second


async def test_messages_of_several_peers_in_one_inbox_keep_their_origins() -> None:
    async with Pull0() as pull:
        one, two = Peer(pull, name="one"), Peer(pull, name="two")
        one.say(b"1", b"2")
        two.say(b"3")
        one.say(b"4")
        assert await pull.recv() == b"1"
        origins = [(await pull.recv_message()).pipe for _ in range(3)]
        assert origins == [one.pipe, two.pipe, one.pipe]
        two.hang_up()
        one.say(b"5")
        assert (await pull.recv_message()).pipe == one.pipe


async def test_origins_survive_dropped_and_unwanted_messages() -> None:
    async with Sub0(topics=["a", "b"], recv_queue=4) as sub:
        one, two = Peer(sub, name="one"), Peer(sub, name="two")
        one.say(b"a1", b"b1", b"a2")
        two.say(b"a3", b"b2", b"a4")
        sub.unsubscribe("b")
        got = [await sub.recv_message() for _ in range(3)]
        assert [(each.body, each.pipe) for each in got] == [
            (b"a2", one.pipe),
            (b"a3", two.pipe),
            (b"a4", two.pipe),
        ]


async def test_questions_and_answers_name_their_peers_too() -> None:
    async with Req0() as req, Rep0() as rep:
        link = Link(req, rep)
        await req.send(b"q")
        question = await rep.recv_message()
        await rep.send(b"a")
        answer = await req.recv_message()
        assert (question.body, question.pipe) == (b"q", link.second)
        assert (answer.body, answer.pipe) == (b"a", link.first)
    async with Surveyor0() as surveyor, Respondent0() as respondent:
        link = Link(surveyor, respondent)
        await surveyor.send(b"q")
        assert (await respondent.recv_message()).pipe == link.second
        await respondent.send(b"a")
        assert (await surveyor.recv_message()).pipe == link.first


def test_options_are_keywords_of_every_constructor() -> None:
    for kind in COOKED:
        assert kind(send_queue=7, linger_s=None).options == SocketOptions(send_queue=7, linger_s=None)
        with pytest.raises(TypeError, match="sendqueue"):
            kind(sendqueue=7)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="send_queue is 0"):
            kind(send_queue=0)
    base = SocketOptions(ttl=3, send_queue=5)
    assert RawSocket(Rep0, options=base, send_queue=7).options == SocketOptions(ttl=3, send_queue=7)


async def test_a_shared_listener_is_open_inside_async_with() -> None:
    async with Rep0() as rep, SharedListener("tcp://127.0.0.1:0") as listener:
        assert not listener.url.endswith(":0")
        assert await rep.listen(listener) is listener
        async with Req0(dial=listener.url) as req:
            asking = asyncio.create_task(req.request(b"q", timeout=20.0))
            assert await rep.recv(timeout=20.0) == b"q"
            await rep.send(b"a")
            assert await asking == b"a"
    assert listener.closed


def test_modules_are_not_hidden_by_names_of_the_package() -> None:
    for name in ("device", "socket", "errors", "pipe", "message"):
        module = importlib.import_module(f"protocols.{name}")
        assert isinstance(module, ModuleType) and getattr(protocols, name) is module


def test_all_errors_are_in_one_module() -> None:
    for name in protocols.__all__:
        each = getattr(protocols, name)
        if isinstance(each, type) and issubclass(each, BaseException):
            assert each.__module__ == "protocols.errors", name
            assert name in (errors.__doc__ or "")


async def test_a_pair_that_was_left_can_be_used_again() -> None:
    async with Pair0() as pair:
        first = Peer(pair, name="first")
        first.hang_up()
        await until(lambda: not pair.pipes)
        Peer(pair, name="second").say(b"x")
        assert (await pair.recv_message()).pipe.remote_address == "second:remote"
