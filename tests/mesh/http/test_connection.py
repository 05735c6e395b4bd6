"""Bad clients of one connection: they drip, flood, garble, go silent. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from itertools import pairwise
from typing import Any

import pytest

from mesh.http import connection, server
from mesh.http.messages import Request, Response
from mesh.http.server import CONNECTIONS_MAX, STREAMS_MAX, HttpServer
from mesh.listen import HttpListen
from tests.mesh.http.client import Caller, get

pytestmark = pytest.mark.virtual
BODY = b"x" * 1000


class Pages:
    """Open pages, as the server knows them."""

    def __init__(self) -> None:
        self.pushes: list[Callable[[bytes], None]] = []

    def add(self, push: Callable[[bytes], None]) -> bytes:
        self.pushes.append(push)
        return b"first"

    def remove(self, push: Callable[[bytes], None]) -> None:
        self.pushes.remove(push)


class Site:
    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(HTTPStatus.OK, BODY, stream=request.path == "/live")


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[HttpServer, Site, Pages]]:
    site, pages = Site(), Pages()
    http = HttpServer(HttpListen("0"), site, pages)
    await http.open()
    try:
        yield http, site, pages
    finally:
        http.aclose()
        await asyncio.sleep(connection.LINGER_S + 1)


async def test_requests_of_one_connection_are_answered_in_order() -> None:
    async with serving() as (http, site, _):
        caller = await Caller.dial(http.url)
        for path in ("/a", "/b?c=d"):
            caller.ask(path)
            assert (await caller.answer()).body == BODY
        caller.ask("/head", "HEAD")
        answer = await caller.answer(body=False)
        assert answer.headers["content-length"] == "1000"
        caller.ask("/after")
        assert (await caller.answer()).status == 200
        assert [request.path for request in site.requests] == ["/a", "/b", "/head", "/after"]
        assert site.requests[0].local and http.connections == 1
        caller.close()


async def test_a_pipeline_is_answered_a_few_requests_a_turn() -> None:
    """A megabyte of short requests came in one read, and blocked the loop until all were answered."""
    async with serving() as (http, site, _):
        caller = await Caller.dial(http.url)
        caller.say(b"GET / HTTP/1.1\r\nhost: ::1\r\n\r\n" * 200)
        seen = []
        while len(site.requests) < 200:
            seen.append(len(site.requests))
            await asyncio.sleep(0)
        steps = [later - earlier for earlier, later in pairwise(seen)]
        assert max(steps) <= connection.REQUESTS_A_TURN
        for _ in range(200):
            assert (await caller.answer()).body == BODY
        caller.close()


class FastNetwork(asyncio.Transport):
    """A client that sends a read's worth of requests in each turn, and reads all answers."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.reads = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: Any) -> None: ...
    def close(self) -> None: ...


async def test_a_pipeline_is_not_read_faster_than_it_is_answered() -> None:
    """Each turn read up to 256 KiB, and answered eight requests. The rest was kept without a bound, and
    copied for each answer."""
    http, network = HttpServer(HttpListen("0"), Site(), Pages()), FastNetwork()
    connected = connection.HttpConnection(http)
    connected.connection_made(network)
    sent = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 100
    for _ in range(100):
        if network.reads:
            connected.data_received(sent)
        await asyncio.sleep(0)
        assert len(connected._http.trailing_data[0]) <= len(sent)
    assert http.answers[HTTPStatus.OK] > 500, "it is read again once all are answered"
    connected.connection_lost(None)


async def test_a_head_that_arrives_byte_by_byte_times_out_after_ten_seconds() -> None:
    """Slow loris: if each byte renewed the time limit, an occasional byte would keep a connection
    forever."""
    async with serving() as (http, site, _):
        caller = await Caller.dial(http.url)
        began = asyncio.get_running_loop().time()
        caller.say(b"GET / HTTP/1.1\r\nhost: ::1\r\n")

        async def drip() -> None:
            while True:
                await asyncio.sleep(1)
                caller.say(b"x-more: 1\r\n")

        dripping = asyncio.create_task(drip())
        answer = await caller.answer()
        dripping.cancel()
        assert answer.status == HTTPStatus.REQUEST_TIMEOUT and "10 s" in answer.text
        assert asyncio.get_running_loop().time() - began == pytest.approx(connection.HEAD_S, abs=0.1)
        await caller.ended()
        await asyncio.sleep(connection.LINGER_S + 1)
        assert not http.connections and not site.requests
        caller.close()


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with serving() as (http, _, _):
        caller = await Caller.dial(http.url)
        assert await caller.ended() == b""
        assert asyncio.get_running_loop().time() > connection.HEAD_S - 1
        caller.close()
        await asyncio.sleep(1)
        assert not http.connections


async def test_an_idle_connection_outlives_the_pause_between_scrapes() -> None:
    async with serving() as (http, _, _):
        caller = await Caller.dial(http.url)
        for _ in range(3):
            caller.ask("/")
            assert (await caller.answer()).status == 200
            await asyncio.sleep(60)
        await asyncio.sleep(20)
        assert await caller.ended() == b"" and not http.connections
        caller.close()


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 20_000, 431),
        (b"G" * 20_000, 431),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost : a\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"\x00SP\x00\x00\x30\x00\x00\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET / HTTP/9.9\r\nhost: a\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n", 400),
    ],
)
async def test_a_malformed_request_is_refused_and_ends_the_connection(said: bytes, status: int) -> None:
    async with serving() as (http, site, _):
        caller = await Caller.dial(http.url)
        caller.say(said)
        answer = await caller.answer()
        assert answer.status == status and answer.headers["connection"] == "close"
        assert answer.text.count("\n") == 1
        assert await caller.ended() == b"" and not site.requests
        assert http.answers == {status: 1}
        caller.close()


async def test_a_client_that_does_not_read_is_not_read_from_and_then_cut_off() -> None:
    """The transport bounds unread answers by what it takes before it pauses."""
    async with serving() as (http, site, _):
        caller = await Caller.dial(http.url)
        caller.reader._limit = 1024  # type: ignore[attr-defined]
        caller.say(b"GET / HTTP/1.1\r\nhost: ::1\r\n\r\n" * 5000)
        await asyncio.sleep(5)
        asked = len(site.requests)
        assert asked < 5000 and http.connections == 1
        await asyncio.sleep(connection.WRITE_S)
        assert len(site.requests) == asked and not http.connections
        caller.close()


async def test_a_stream_gets_pushed_chunks_until_its_client_disconnects() -> None:
    async with serving() as (http, _, pages):
        caller = await Caller.dial(http.url)
        caller.ask("/live")
        assert (await caller.head()).headers["transfer-encoding"] == "chunked"
        assert await caller.chunk() == b"first"
        pages.pushes[0](b"second")
        assert await caller.chunk() == b"second"
        await asyncio.sleep(200)
        pages.pushes[0](b"much later")
        assert await caller.chunk() == b"much later"
        caller.say(b"GET / HTTP/1.1\r\n")  # nobody reads the answer, and nothing breaks
        caller.close()
        await asyncio.sleep(1)
        assert not pages.pushes and not http.connections


async def test_a_stream_that_is_not_read_misses_frames_and_is_cut_off() -> None:
    async with serving() as (http, _, pages):
        caller = await Caller.dial(http.url)
        caller.reader._limit = 1024  # type: ignore[attr-defined]
        caller.ask("/live")
        await caller.head()
        for _ in range(100):
            if pages.pushes:
                pages.pushes[0](b"f" * 100_000)
            await asyncio.sleep(0.1)
        [open_one] = http._connections
        assert open_one.frames_missed > 90, "one frame waits, not a hundred"
        await asyncio.sleep(connection.WRITE_S)
        assert not pages.pushes and not http.connections
        caller.close()


async def test_one_connection_too_many_takes_the_place_of_the_oldest_quiet_one() -> None:
    async with serving() as (http, _, _):
        quiet = [await Caller.dial(http.url) for _ in range(CONNECTIONS_MAX)]
        assert (await get(http.url, "/")).status == 200
        assert await quiet[0].ended() == b"", "it was the oldest"
        await asyncio.sleep(1)
        assert http.connections == CONNECTIONS_MAX - 1
        for caller in quiet:
            caller.close()


async def test_pages_beyond_the_limit_are_told_to_retry_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", STREAMS_MAX + 1)
    async with serving() as (http, _, pages):
        callers = [await Caller.dial(http.url) for _ in range(STREAMS_MAX + 1)]
        for caller in callers[:STREAMS_MAX]:
            caller.ask("/live")
            await caller.head()
        callers[-1].ask("/live")
        answer = await callers[-1].answer()
        assert answer.status == 503 and answer.headers["retry-after"] == "5"
        assert len(pages.pushes) == STREAMS_MAX
        callers[-1].close()
        await asyncio.sleep(1)
        last = await Caller.dial(http.url)
        refused = await Caller.dial(http.url)  # takes the place of `last`, which is idle
        assert await last.ended() == b""
        for caller in (*callers, last, refused):
            caller.close()


async def test_a_broker_that_ends_closes_its_streams_in_order() -> None:
    async with serving() as (http, _, _):
        caller = await Caller.dial(http.url)
        caller.ask("/live")
        await caller.head()
        assert await caller.chunk() == b"first"
        http.aclose()
        assert await caller.ended() == b"0\r\n\r\n"
        caller.close()
