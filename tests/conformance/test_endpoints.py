"""Items 141 to 156: dialers, listeners, pipes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import socket as sockets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from protocols import (
    AddressError,
    Closed,
    ConnectionRefused,
    Listener,
    Pipe,
    PipeRefused,
    ProtocolNumber,
)
from protocols.dial_schedule import backoff_s
from tests.support.waiting import turns, until

from .declaring import EACH, OURS_OURS, PAIRS, STREAMS, TRANSPORTS, item
from .links import Link

PUSH = ProtocolNumber.PUSH0

MALFORMED = (
    "",
    "tcp",
    "tcp:127.0.0.1:1",
    "://127.0.0.1:1",
    "nosuch://127.0.0.1:1",
    "tcp://",
    "tcp://127.0.0.1",
    "tcp://127.0.0.1:",
    "tcp://127.0.0.1:port",
    "tcp://127.0.0.1:-1",
    "tcp://127.0.0.1:65536",
    "ipc://",
    "ws://127.0.0.1:port/",
    "tls+tcp://127.0.0.1",
    "inproc://",
)


@pytest.mark.parametrize("url", MALFORMED)
@item(141)
async def test_a_malformed_url_is_an_error(url: str, link: Link) -> None:
    async with link:
        pull = link.ours("Pull0")
        with pytest.raises(AddressError):
            pull.dial(url)
        with pytest.raises(AddressError):
            await pull.listen(url)
        with pytest.raises(AddressError):
            await pull.dial_once(url)


@item(141, pairs=EACH)
async def test_an_unknown_scheme_is_an_error(link: Link) -> None:
    async with link:
        pull = link.first("Pull0")
        with pytest.raises(AddressError):
            pull.dial("nosuch://127.0.0.1:1")
        with pytest.raises(AddressError):
            await pull.listen("nosuch://127.0.0.1:1")


@item(143, transports=STREAMS)
async def test_an_endpoint_has_its_own_options_or_its_sockets(link: Link) -> None:
    async with link:
        pull = link.first("Pull0", recv_size_max=100)
        narrow = await pull.listen(link.address(), options=replace(pull.options, recv_size_max=10))
        wide = await pull.listen(link.address())
        for listener, size, passes in ((narrow, 11, False), (narrow, 10, True), (wide, 100, True)):
            link.url = listener.url
            peer = await link.script(PUSH, pull)
            await peer.send(bytes(size))
            if passes:
                assert len(await pull.recv()) == size
            else:
                await peer.read_all()
            await peer.aclose()
            await until(lambda: not pull.pipes)


@item(144, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_dialer_that_was_first_connects_later(link: Link) -> None:
    async with link:
        pull, push = link.first("Pull0"), link.second("Push0")
        url = link.address()
        push.dial(url)
        await turns(20)
        await pull.listen(url)
        await push.send(b"at last")
        assert await pull.recv() == b"at last"


@item(145, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_dialer_finds_a_listener_that_comes_back(link: Link) -> None:
    async with link:
        push = link.second("Push0")
        url = link.address()
        push.dial(url)
        for turn in range(3):
            pull = link.first("Pull0")
            await pull.listen(url)
            await until(lambda: push.pipes)
            await push.send(b"%d" % turn)
            assert await pull.recv() == b"%d" % turn
            await pull.aclose()
            await until(lambda: not push.pipes)


@item(146)
async def test_pauses_double_to_a_maximum_with_jitter() -> None:
    rng = random.Random(1)
    pauses = [backoff_s(attempt, 0.1, 1.0, rng) for attempt in range(60)]
    for attempt, pause in enumerate(pauses):
        ceiling = min(1.0, 0.1 * 2.0**attempt)
        assert ceiling / 2 <= pause <= ceiling
    assert len(set(pauses[10:])) > 40
    assert all(backoff_s(attempt, 0.0, 1.0, rng) == 0.0 for attempt in range(60))
    assert all(backoff_s(attempt, 0.1, 0.0, rng) <= 0.1 for attempt in range(60))


@item(147, transports=TRANSPORTS, pairs=(OURS_OURS,))
async def test_pauses_grow_while_the_pattern_refuses_us(link: Link) -> None:
    """The socket is connected each time, and never attached."""
    async with link.pair("Pair0", "Pair0") as (pair, _):
        third = link.ours("Pair0", reconnect_min_s=0.005, reconnect_max_s=100.0)
        begun = asyncio.get_running_loop().time()
        dialer = third.dial(link.url)
        await until(lambda: dialer.statistics().attempts >= 7)
        waited_s = asyncio.get_running_loop().time() - begun
        assert waited_s >= sum(0.005 * 2**attempt / 2 for attempt in range(6))
        assert len(pair.pipes) == 1


@contextlib.contextmanager
def mute_listener(link: Link) -> Iterator[str]:
    """The kernel accepts connections there, and nobody ever answers."""
    url = link.address()
    scheme, _, rest = url.partition("://")
    if scheme in ("ipc", "abstract"):
        listening = sockets.socket(sockets.AF_UNIX)
        listening.bind(rest if scheme == "ipc" else "\0" + rest)
    else:
        listening = sockets.socket()
        host, _, port = rest.partition("/")[0].rpartition(":")
        listening.bind((host, int(port)))
    with listening:
        listening.listen()
        yield url


@item(148, transports=STREAMS, pairs=EACH)
async def test_closing_ends_an_attempt_that_hangs(link: Link) -> None:
    async with link:
        with mute_listener(link) as url:
            push = link.first("Push0")
            push.dial(url)
            await turns(20)
            await asyncio.wait_for(push.aclose(), 5.0)
            other = link.ours("Push0")
            attempt = asyncio.create_task(other.dial_once(url))
            await turns(20)
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt


@item(149, transports=TRANSPORTS)
async def test_a_single_attempt_without_a_listener_is_refused(link: Link) -> None:
    async with link:
        push = link.first("Push0")
        with pytest.raises(ConnectionRefused):
            await push.dial_once(link.address())


@item(150, transports=("tcp",))
async def test_a_listener_outlives_accepts_that_fail(link: Link) -> None:
    """No file descriptor is left for the waiting connection; a second later there is one."""
    async with link:
        pull = link.first("Pull0")
        listener = await pull.listen(link.address())
        host, _, port = listener.url.removeprefix("tcp://").rpartition(":")
        told: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with sockets.socket() as peer:
            spare = sockets.socket()
            lowest = spare.fileno()
            spare.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            try:
                peer.connect((host, int(port)))
                await until(lambda: told)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            peer.setblocking(False)
            assert len(await loop.sock_recv(peer, 8)) == 8


@item(151, transports=TRANSPORTS)
async def test_a_closed_listener_is_reported_and_accepts_no_connections(link: Link) -> None:
    async with link:
        pull = link.first("Pull0")
        listener = await pull.listen(link.address())
        await listener.aclose()
        with pytest.raises(Closed):
            await listener.start()
        with pytest.raises(ConnectionRefused):
            await link.ours("Push0").dial_once(listener.url)
        again = Listener(pull, listener.url)
        await again.aclose()
        with pytest.raises(Closed):
            await again.start()


@item(152, transports=TRANSPORTS, pairs=(OURS_OURS,))
async def test_each_step_of_a_pipe_is_reported_once(link: Link) -> None:
    async with link:
        pull, push = link.first("Pull0"), link.second("Push0")
        listening, dialling = pull.events(), push.events()
        await link.meet(pull, push)
        await push.aclose()
        await until(lambda: not pull.pipes)
        await pull.aclose()
        for events in (listening, dialling):
            seen = [event async for event in events]
            assert [event.kind for event in seen] == ["attaching", "attached", "detached"]
            assert len({event.pipe.id for event in seen}) == 1


@pytest.mark.parametrize("way", ["raises", "closes"])
@item(153, transports=TRANSPORTS, pairs=(OURS_OURS,))
async def test_a_pipe_refused_while_it_attaches_was_never_there(way: str, link: Link) -> None:
    def admit(pipe: Pipe) -> None:
        if way == "raises":
            raise PipeRefused("not today")
        pipe.close("not today")

    async with link:
        pull, push = link.first("Pull0", admit=admit), link.second("Push0")
        events = pull.events()
        listener = await pull.listen(link.address())
        push.dial(listener.url)
        await until(lambda: listener.statistics().refused)
        assert not pull.pipes
        await push.aclose()
        await pull.aclose()
        assert {event.kind async for event in events} == {"attaching"}
        assert pull.statistics().attached == 0


@item(154, note="unique among the pipes of a socket; NNG and mangos: of the process")
async def test_pipe_ids_wrap_and_are_not_used_twice(link: Link) -> None:
    async with link:
        link.transport = "inproc"
        pull = link.ours("Pull0")
        pull._core.roster.last_pipe_id = 0x7FFFFFFD
        pushes = [link.ours("Push0") for _ in range(4)]
        await link.meet(pull, *pushes)
        assert [pipe.id for pipe in pull.pipes] == [0x7FFFFFFE, 0x7FFFFFFF, 1, 2]
        await pushes[2].aclose()
        await until(lambda: len(pull.pipes) == 3)
        pull._core.roster.last_pipe_id = 0x7FFFFFFD  # the count has wrapped around
        await link.join(pull, link.ours("Push0"))
        assert [pipe.id for pipe in pull.pipes] == [0x7FFFFFFE, 0x7FFFFFFF, 2, 1]


@pytest.mark.parametrize(
    "kind, other", [("Pair0", "Pair0"), ("Pull0", "Push0"), ("Rep0", "Req0"), ("Sub0", "Pub0")]
)
@item(155, transports=TRANSPORTS, pairs=PAIRS)
async def test_traffic_continues_after_any_number_of_cuts_of_the_pipe(
    kind: str, other: str, link: Link
) -> None:
    topics = {"topics": [b""]} if kind == "Sub0" else {}
    async with link.pair(kind, other, a=topics) as (one, two):
        for turn in range(5):
            for pipe in list(one.pipes):
                pipe.close("cut")
            body = b"%d" % turn
            heard = asyncio.create_task(hear(one, body))
            while not heard.done():  # the data on its way when the pipe was cut is lost
                await two.send(body)
                await asyncio.wait((heard,), timeout=0.02)
            await heard


async def hear(end: Any, body: bytes) -> None:
    while await end.recv() != body:
        pass


@item(156, transports=("inproc", "tcp", "ipc"), pairs=(OURS_OURS,), note="300 clients; 4000 marked long")
async def test_300_clients(link: Link) -> None:
    await crowd(link, 300)


@pytest.mark.long
@item(156, transports=("inproc", "tcp"), pairs=(OURS_OURS,))
async def test_4000_clients(link: Link) -> None:
    await crowd(link, 4000)


async def crowd(link: Link, count: int) -> None:
    async with link:
        rep = link.ours("Rep0")
        url = (await rep.listen(link.address())).url
        clients = [link.ours("Req0", handshake_timeout_s=30.0) for _ in range(count)]
        for client in clients:
            client.dial(url)
        await rep.wait_for_peers(count, timeout=40.0)
        for number, client in enumerate(clients):
            await client.send(b"%d" % number)
        for _ in clients:
            await rep.send(b"re " + await rep.recv())
        for number, client in enumerate(clients):
            assert await client.recv() == b"re %d" % number
