"""A connection that sends bad input is closed and counted, and all others continue."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mesh.broker import node as node_module
from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.dataplane.options import ExchangeOptions
from mesh.errors import ConfigError, ListenError, TopicError
from mesh.wire.blocks import seal
from mesh.wire.session_frames import Kind, data_head, encode
from protocols import Req0
from tests.mesh.loopback import (
    BUS,
    PAIR,
    PUB,
    PUSH,
    REQ,
    RESPONDENT,
    SUB,
    SURVEYOR,
    Cluster,
    Stranger,
    eventually,
    linked,
    states,
)

pytestmark = pytest.mark.virtual

ADDRESS = b"\x80\x00\x00\x01"
"""The backtrace of a stock REQ's first request."""


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No callback of the event loop may fail, for any input."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@asynccontextmanager
async def broker_with_traffic() -> AsyncIterator[Broker]:
    """A broker with a subscriber and a publisher that must not notice anything."""
    async with Cluster() as cluster:
        broker = await cluster.broker("alpha")
        async with Client(broker.url) as client, client.subscribe("traffic.#") as received:
            yield broker
            for number in range(100):
                await client.publish("traffic.test", b"%d" % number)
            for number in range(100):
                delivery = await asyncio.wait_for(anext(received), 5)
                assert delivery.body == b"%d" % number


def refused(broker: Broker) -> int:
    return sum(broker.statistics()["refused"].values())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x00" * 64,
        b"\x00SP\x01" + struct.pack(">HH", REQ, 0),
        b"\x00SP\x00" + struct.pack(">HH", REQ, 9),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    ],
    ids=["http", "zeros", "bad magic", "reserved bytes set", "tls"],
)
async def test_garbage_instead_of_a_header_costs_the_connection(garbage: bytes) -> None:
    async with broker_with_traffic() as broker:
        stranger = await Stranger.connect(broker.url)
        stranger.write(garbage)
        assert await stranger.hung_up()
        assert refused(broker) == 1
        await stranger.close()


@pytest.mark.parametrize("protocol", [PAIR, 0x7777, 0, 49, 81])
async def test_an_unknown_protocol_number_is_refused_and_counted(protocol: int) -> None:
    async with broker_with_traffic() as broker:
        stranger = await Stranger.connect(broker.url)
        stranger.write(b"\x00SP\x00" + struct.pack(">HH", protocol, 0))
        assert await stranger.hung_up()
        assert refused(broker) == 1
        await stranger.close()


@pytest.mark.parametrize("protocol", [REQ, SUB, PUSH, PUB, BUS, SURVEYOR, RESPONDENT])
async def test_an_oversized_length_costs_the_connection_before_memory_is_taken(protocol: int) -> None:
    async with broker_with_traffic() as broker:
        stranger = await Stranger.connect(broker.url, protocol)
        stranger.write(struct.pack(">Q", 1 << 40) + b"x" * 100)
        assert await stranger.hung_up()
        assert refused(broker) >= 1
        await stranger.close()


@pytest.mark.parametrize("protocol", [REQ, SUB, PUSH, PUB, BUS, SURVEYOR, RESPONDENT])
async def test_a_truncated_frame_is_forgotten_with_its_connection(protocol: int) -> None:
    async with broker_with_traffic() as broker:
        stranger = await Stranger.connect(broker.url, protocol)
        stranger.write(struct.pack(">Q", 1000) + b"news.uk half")
        await stranger.close()


@pytest.mark.parametrize(
    "frame",
    [
        bytes([0x91, 0xFF]),
        bytes([0x90]),
        encode(Kind.SUBSCRIBE, 1, ["#"], 0, 10, 10),
        encode(Kind.HELLO, 1, 2),
        encode(Kind.HELLO, 99, 1, 1, "x", 0),
        encode(Kind.HELLO, 1, "id", 1, "x", 0),
        encode(Kind.HELLO, 1, 1, 1, "x", 0)[:-1],
        bytes([0x93, 5, 0xC4, 16]) + bytes(40),
    ],
    ids=["no kind", "empty", "no hello", "short", "version", "type", "cut", "data"],
)
async def test_a_broken_session_frame_is_answered_with_a_sentence_and_a_closed_connection(
    frame: bytes,
) -> None:
    async with broker_with_traffic() as broker:
        stranger = await Stranger.connect(broker.url, REQ)
        stranger.send(ADDRESS + frame)
        answer = await stranger.receive()
        assert answer[:4] == ADDRESS
        assert answer[5] == Kind.ERROR
        assert await stranger.hung_up()
        assert broker.statistics()["refused"] in ({"bad_session_frame": 1}, {"version": 1})
        await stranger.close()


async def test_publishing_beyond_credit_costs_the_session() -> None:
    async with broker_with_traffic() as broker:
        stalled = await Stranger.connect(broker.url, REQ)
        stalled.send(ADDRESS + encode(Kind.HELLO, 1, 11, 12, "stalled", 0))
        stalled.send(ADDRESS + encode(Kind.SUBSCRIBE, 1, ["flood"], 0, 1, 1))
        flood = await Stranger.connect(broker.url, REQ)
        flood.send(ADDRESS + encode(Kind.HELLO, 1, 21, 22, "flood", 0))
        await eventually(lambda: broker.statistics()["subscriptions"] == 2, "both subscriptions")
        for number in range(ExchangeOptions().session_messages // 1000 + 2):
            block = seal(
                b"flood", [b"x" * 16] * 1000, publisher=21, boot=22, sequence=1 + number * 1000, level=0
            )
            flood.send(ADDRESS + data_head(0, 0, 0, 0, len(block)) + block)
        assert await flood.hung_up()
        assert broker.statistics()["refused"] == {"beyond_credit": 1}
        await flood.close()
        await stalled.close()


async def test_connections_that_never_send_their_header_are_closed_and_delay_no_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_module, "HANDSHAKE_TIMEOUT_S", 0.3)
    async with broker_with_traffic() as broker:
        silent = [await Stranger.connect(broker.url) for _ in range(20)]
        async with Client(broker.url) as client:
            await client.publish("traffic2.test", b"meanwhile")
        for stranger in silent:
            assert await stranger.hung_up()
            await stranger.close()
        assert refused(broker) == 20


@pytest.mark.parametrize("protocol", [PUSH, PUB])
@pytest.mark.parametrize("frame", [b"\xff\xfe nonsense", b"bad..topic x", b"$sys.status x", b""])
async def test_a_stock_publisher_with_a_bad_topic_loses_its_connection(protocol: int, frame: bytes) -> None:
    async with broker_with_traffic() as broker:
        stranger = await Stranger.connect(broker.url, protocol)
        stranger.send(frame)
        assert await stranger.hung_up()
        assert broker.statistics()["refused"] == {"stock_publisher": 1}
        await stranger.close()


async def test_a_stock_request_with_a_bad_topic_gets_a_sentence_and_may_try_again() -> None:
    async with broker_with_traffic() as broker:
        stranger = await Stranger.connect(broker.url, REQ)
        stranger.send(ADDRESS + b"bad..topic hello")
        assert (await stranger.receive())[4:].startswith(b"error: topic 'bad..topic' has an empty token")
        stranger.send(b"\x80\x00\x00\x02" + b"good.topic hello")
        assert (await stranger.receive()) == (b"\x80\x00\x00\x02accepted topic=good.topic broker=alpha seq=1")
        await stranger.close()


async def test_a_subscriber_that_sends_loses_its_connection() -> None:
    async with broker_with_traffic() as broker:
        stranger = await Stranger.connect(broker.url, SUB)
        stranger.send(b"I am a SUB")
        assert await stranger.hung_up()
        await stranger.close()


@pytest.mark.parametrize("frame", [b"", b"hello", bytes([0x91, 32]), bytes([0x93, 5]) + bytes(30)])
@pytest.mark.parametrize("protocol", [BUS, SURVEYOR, RESPONDENT])
async def test_a_broken_link_frame_costs_the_connection_and_gets_nothing(protocol: int, frame: bytes) -> None:
    async with broker_with_traffic() as broker:
        stranger = await Stranger.connect(broker.url, protocol)
        stranger.send(ADDRESS + frame if protocol != BUS else frame)
        assert await stranger.hung_up()
        assert refused(broker) >= 1
        await stranger.close()


@pytest.mark.parametrize("key", [b"another one", None])
async def test_a_broker_with_another_mesh_key_or_none_gets_no_link(key: bytes | None) -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo", mesh_key=b"the secret")
        stranger = await cluster.broker("stranger", alpha, mesh_key=key)
        await eventually(lambda: refused(alpha) + refused(stranger) > 0, "the stranger is refused")
        assert linked(alpha) == {"bravo"}
        assert linked(stranger) == set()
        assert "stranger" not in states(alpha) and "stranger" not in states(bravo)


async def test_a_broker_of_another_mesh_gets_no_link() -> None:
    async with Cluster() as cluster:
        alpha = await cluster.broker("alpha", mesh="one")
        other = await cluster.broker("other", alpha, mesh="two")
        await eventually(lambda: refused(alpha) + refused(other) > 0, "the other is refused")
        assert linked(alpha) == linked(other) == set()


async def test_a_port_in_use_by_a_broker_says_which() -> None:
    async with Cluster() as cluster:
        alpha = await cluster.broker("alpha", mesh="home")
        with pytest.raises(
            ListenError, match=r"cannot listen on .*: broker alpha of mesh home \(process \d+\)"
        ):
            await cluster.broker("bravo", listen=alpha.url)


async def test_an_address_given_twice_is_named_in_the_error(tmp_path: Path) -> None:
    """The error said that another program listens there."""
    url = f"ipc://{tmp_path}/a.sock"
    with pytest.raises(ListenError, match="cannot listen on .* twice; name it once"):
        async with Broker(listen=[url, url]):
            pass


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"listen": "nonsense"}, "is not a URL like tcp://host:port"),
        ({"listen": "tcp://127.0.0.1:99999"}, "99999"),
        ({"join": "gopher://x:1"}, "no transport 'gopher'"),
        ({"advertise": "nowhere"}, "is not a URL"),
        ({"name": "a b"}, "name 'a b' must be 1 to 64 of the characters"),
        ({"name": ""}, "must be 1 to 64"),
        ({"mesh": "x" * 65}, "must be 1 to 64"),
        ({"mesh_key": b""}, "mesh_key is empty"),
        ({"mesh_key": "short"}, "mesh_key has 5 bytes; use at least 8"),
        ({"join": "tcp://*:7770"}, "wildcards and 0 are for listening"),
        ({"join": "tcp://0.0.0.0:1"}, "wildcards and 0 are for listening"),
        ({"advertise": "tcp://0.0.0.0:1"}, "wildcards and 0 are for listening"),
        ({"period_s": 0}, "period_s is 0; it must be above zero"),
        ({"period_s": float("inf")}, "period_s is inf; it must be above zero and finite"),
        ({"stats_s": -1}, "stats_s is -1"),
        ({"period_s": 1, "deadline_s": 2}, "deadline_s is 2; it must be above zero and at most period_s"),
    ],
)
def test_a_bad_option_is_one_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Broker(**options)  # type: ignore[arg-type]
    assert sentence in str(caught.value)


def test_a_bad_export_pattern_is_one_sentence() -> None:
    with pytest.raises(TopicError, match="may only be the last token"):
        Broker(export=["a.#.b"])


@pytest.mark.parametrize("protocol", [REQ, SUB, PUSH, PUB, BUS, SURVEYOR, RESPONDENT])
async def test_random_and_corrupted_frames_harm_no_other_client(protocol: int) -> None:
    """Frames of random bytes, and valid frames that were altered and cut, behind valid and invalid
    backtraces."""
    rng = random.Random(protocol)
    good = [
        encode(Kind.HELLO, 1, 5, 6, "noise", 0),
        encode(Kind.SUBSCRIBE, 1, ["a.#"], 1, 100, 10_000),
        encode(Kind.CREDIT, 1, 10, 10),
        encode(Kind.REQUEST, 1, "$sys.status", b"", b"", 100),
        encode(Kind.SURVEY, 2, "a.b", b"x", b"", 100),
        encode(Kind.BYE, "noise"),
        data_head(0, 0, 0, 1, 60) + seal(b"a.b", [b"12345678"] * 2, publisher=5, boot=6, sequence=1),
        b"news.uk hello",
        bytes([0x93, 32]) + rng.randbytes(40),
        bytes([0x92, 40, 0x90]),
    ]

    def frame() -> bytes:
        body = bytearray(rng.choice(good) if rng.random() < 0.8 else rng.randbytes(rng.randrange(80)))
        for _ in range(rng.choice((0, 0, 1, 3))):
            if body:
                body[rng.randrange(len(body))] = rng.randrange(256)
        if rng.random() < 0.2:
            del body[rng.randrange(len(body) + 1) :]
        words = rng.choice((ADDRESS, ADDRESS, b"\x00\x00\x00\x07" + ADDRESS, b"", rng.randbytes(4)))
        return bytes(words + body)

    async with broker_with_traffic() as broker:
        for _ in range(60):
            stranger = await Stranger.connect(broker.url, protocol)
            for _ in range(rng.randrange(1, 12)):
                stranger.send(frame())
            if rng.random() < 0.3:
                await stranger.hung_up_or_quiet()
            await stranger.close()


async def test_a_stock_message_above_the_limit_is_logged_and_counted_and_its_sender_backs_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It cannot succeed, however often it is sent. Its sender and the operator of the broker must be told."""
    loop = asyncio.get_running_loop()
    async with broker_with_traffic() as broker, Req0(dial=broker.url) as stock:
        begun = loop.time()
        await stock.send(b"news " + bytes(2 << 20))
        dialer = stock.dialers[0]
        await eventually(lambda: sum(dialer.statistics().ended.values()) >= 5, "the message refused again")
        assert loop.time() - begun > 0.1 * sum(2**turn for turn in range(4)) / 2, "the pauses double"
        assert broker.statistics()["refused"]["too_large"] >= 5
    lines = [record.getMessage() for record in caplog.records if record.name == "protocols"]
    (of_broker,) = [line for line in lines if line.startswith("the connection of tcp://")]
    assert "above the limit of 1048576 (recv_size_max)" in of_broker
    assert re.search(r"the connection of tcp://[\d.]+:\d+ at ", of_broker), "with the peer's port"
    (of_sender,) = [line for line in lines if line.startswith("the connection to ")]
    assert "times in a row" in of_sender


@pytest.mark.parametrize(("protocol", "frame"), [(REQ, b""), (REQ, b"\x00\x00\x00\x01x"), (SUB, b"news")])
async def test_a_frame_that_its_pattern_forbids_is_logged_and_counted_among_the_refused(
    protocol: int, frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It cost the connection, but neither the log nor the status said so."""
    async with broker_with_traffic() as broker:
        stranger = await Stranger.connect(broker.url, protocol)
        stranger.send(frame)
        assert await stranger.hung_up()
        assert broker.statistics()["refused"] == {"bad_message": 1}
        await stranger.close()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "protocols"]
    assert line.startswith("the connection of tcp://")
