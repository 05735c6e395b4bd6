"""The syslog forwarder: nothing that it has taken is lost, though mesh and forwarder go and come."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from mesh import Broker, Client
from simulations import Mesh, Process, World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from tests.docs.examples.programs import program

syslog = program("syslog_forwarder")
QUEUE = "logs"


def message(number: int, priority: int = 34) -> bytes:
    return b"<%d>1 2026-11-23T03:00:00Z host app 1 - - message %d" % (priority, number)


async def make_queue(client: Client) -> None:
    async with client.subscribe("syslog.#", durable=QUEUE):
        pass


async def stored(client: Client) -> list[tuple[str, bytes]]:
    async with client.subscribe(durable=QUEUE, window=10_000) as jobs:
        found = [await anext(jobs) for _ in range(jobs.waiting)]
    return [(job.topic, job.body) for job in found]


class Site:
    """A forwarder on the host of a broker, with its outbox on that host's disk."""

    def __init__(self, world: World, **options: int) -> None:
        self.world = world
        self.forwarder: syslog.Forwarder | None = None  # type: ignore[name-defined]
        self.client: Client | None = None
        self._options = options
        self.node = world.add_node("forwarder", self._main, host="broker-2")
        self.start()

    def start(self) -> None:
        self.forwarder = None
        self.node.start()
        self.world.run_until(lambda: self.forwarder is not None, timeout_s=10, what="the forwarder")

    async def _main(self, process: Process) -> None:
        environment = environment_of(process)
        url = url_of(process.address)
        async with Client(url, outbox="/syslog.db", environment=environment, **self._options) as self.client:
            forwarder = self.forwarder = syslog.Forwarder(self.client)
            tcp = await asyncio.start_server(forwarder.serve, process.address, 5514, limit=syslog.SIZE_MAX)
            forwarding = asyncio.create_task(forwarder.forward())
            await process.stopping.wait()
            tcp.close()
            await forwarder.gathered.join()
            forwarding.cancel()
            await asyncio.gather(forwarding, return_exceptions=True)

    def is_empty(self) -> bool:
        """True if all accepted messages are stored."""
        assert self.forwarder is not None and self.client is not None and self.client.outbox is not None
        return self.forwarder.gathered.empty() and not self.client.outbox.messages

    def take(self, *messages: bytes) -> None:
        """Datagrams."""
        assert self.forwarder is not None
        for each in messages:
            self.forwarder.datagram_received(each, ("10.0.0.9", 514))


def test_no_message_is_lost_while_the_mesh_is_away_for_an_hour_and_the_forwarder_dies() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(make_queue, at="broker-1")
        site = Site(world)
        world.inject("crash", mesh.brokers)
        for part in range(6):
            site.take(*(message(number) for number in range(part * 10, part * 10 + 10)))
            world.run_for(600)
            if part == 2:
                world.inject("crash", ["forwarder"])
                site.start()
            if part == 4:
                world.inject("stop", ["forwarder"])
                world.run_for(1)
                site.start()
        world.inject("start", mesh.brokers)
        mesh.wait_whole()
        world.run_until(site.is_empty, timeout_s=120, what="the end of the outbox")
        bodies = [message(number) for number in range(60)]
        assert mesh.run(stored, at="broker-1") == [("syslog.auth.crit", body) for body in bodies]


def test_a_full_outbox_holds_back_tcp_and_counts_datagrams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "GATHERED_MAX", 10)
    sent = 0

    async def flood(process: Process) -> None:
        nonlocal sent
        _, writer = await asyncio.open_connection(url_of(process.address)[6:].partition(":")[0], 5514)
        for sent in range(2000):
            body = message(sent) + b" " + b"x" * 1000
            writer.write(b"%d %b" % (len(body), body))
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        site = Site(world, outbox_max_bytes=100_000)
        world.add_node("device", flood, host="broker-2").start()
        world.run_for(60)
        assert sent < 1999, "it is held back"
        site.take(*(message(number) for number in range(20)))
        assert site.forwarder is not None and site.forwarder.dropped >= 10
        mesh.run(make_queue, at="broker-1")
        world.run_until(site.is_empty, timeout_s=600, what="the end of the flood")
        assert sent == 1999
        kept = mesh.run(stored, at="broker-1")
        flooded = [body for _, body in kept if body.endswith(b"x")]
        assert flooded == [message(number) + b" " + b"x" * 1000 for number in range(2000)]


async def read(data: bytes) -> list[bytes]:
    reader = asyncio.StreamReader(limit=syslog.SIZE_MAX)
    reader.feed_data(data)
    reader.feed_eof()
    return [each async for each in syslog.messages_of(reader)]


async def test_messages_of_a_stream_begin_with_their_length_or_end_with_a_line_feed() -> None:
    one, two = message(1), message(2) + b"\nsecond line"
    assert await read(b"%d %b%d %b" % (len(one), one, len(two), two)) == [one, two]
    assert await read(b"<34>1 a\n\r\n<34>1 b\r\n<34>1 c") == [b"<34>1 a", b"<34>1 b", b"<34>1 c"]
    assert await read(b"") == []


@pytest.mark.parametrize("data", [b"99999999 x", b"5 x", b"12x 34", b"123", b"<" * 70_000])
async def test_a_stream_that_breaks_the_rules_is_an_error_that_ends_its_connection(data: bytes) -> None:
    with pytest.raises((EOFError, ValueError, asyncio.LimitOverrunError)):
        await read(data)


@pytest.mark.parametrize(
    ("start", "topic"),
    [
        (b"<0>1 ", "syslog.kern.emerg"),
        (b"<34>1 ", "syslog.auth.crit"),
        (b"<191>1 ", "syslog.local7.debug"),
        (b"<192>1 ", "syslog.other"),
        (b"<34>Oct 11 22:14:15 ", "syslog.other"),
        (b"", "syslog.other"),
    ],
)
def test_the_topic_is_made_of_facility_and_severity(start: bytes, topic: str) -> None:
    assert syslog.topic_of(start + b"x") == topic


async def test_messages_arrive_over_udp_and_tcp(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with (
        Broker(name="home", listen="tcp://127.0.0.1:0", state_dir=tmp_path) as broker,
        Client(broker.url, outbox=tmp_path / "syslog.db") as client,
    ):
        await make_queue(client)
        forwarder = syslog.Forwarder(client)
        forwarding = asyncio.create_task(forwarder.forward())
        udp, _ = await loop.create_datagram_endpoint(lambda: forwarder, ("127.0.0.1", 0))
        tcp = await asyncio.start_server(forwarder.serve, "127.0.0.1", 0)
        with socket.socket(type=socket.SOCK_DGRAM) as device:
            device.sendto(message(1), udp.get_extra_info("sockname"))
        _, writer = await asyncio.open_connection(*tcp.sockets[0].getsockname())
        writer.write(message(2) + b"\n")
        async with client.subscribe(durable=QUEUE) as jobs:
            found = [(await anext(jobs)).body for _ in range(2)]
        assert sorted(found) == [message(1), message(2)]
        writer.close()
        udp.close()
        tcp.close()
        forwarding.cancel()
        await asyncio.gather(forwarding, return_exceptions=True)


async def test_a_length_above_the_limit_is_refused_before_memory_is_taken() -> None:
    reader = asyncio.StreamReader(limit=syslog.SIZE_MAX)
    reader.feed_data(b"65537 x")
    with pytest.raises(ValueError, match="a message of 65537 bytes; 65536 are allowed"):
        async for _ in syslog.messages_of(reader):
            pass
