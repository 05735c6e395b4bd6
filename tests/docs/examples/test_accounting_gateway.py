"""The accounting gateway: no device is answered before its record is on disk, and each is in the end."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
from pathlib import Path

import pytest

from mesh import Broker, Client
from simulations import Mesh, World
from tests.docs.examples.programs import program

gateway = program("accounting_gateway")
SECRET = b"s3cret"
NAS = ("10.0.0.9", 49152)


def attribute(kind: int, value: bytes) -> bytes:
    return bytes([kind, len(value) + 2]) + value


def request(identifier: int, *attributes: bytes, secret: bytes = SECRET, code: int = 4) -> bytes:
    """As RFC 2866, section 3, has it, by other means than the gateway's."""
    rest = b"".join(attributes)
    head = bytes([code, identifier]) + (20 + len(rest)).to_bytes(2, "big")
    return head + hashlib.md5(head + b"\0" * 16 + rest + secret).digest() + rest


def start(number: int) -> bytes:
    """The record of a session that starts."""
    return request(number % 256, attribute(40, struct.pack("!I", 1)), attribute(44, b"session-%d" % number))


def is_answer(answer: bytes, packet: bytes, *attributes: bytes) -> bool:
    rest = b"".join(attributes)
    head = bytes([5, packet[1]]) + (20 + len(rest)).to_bytes(2, "big")
    return answer == head + hashlib.md5(head + packet[4:20] + rest + SECRET).digest() + rest


class Transport:
    """A socket that notes what it sends."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendto(self, answer: bytes, to: tuple[str, int]) -> None:
        assert to == NAS
        self.sent.append(answer)

    def is_closing(self) -> bool:
        return False


class Site:
    """A gateway at a broker, and a device in front of it that repeats its records every second."""

    def __init__(self, mesh: Mesh, *, at: str = "broker-2") -> None:
        self.transport = Transport()
        self.records: list[bytes] = []
        self.repeats = True
        mesh.client("gateway", self._serve, at=at)
        mesh.world.run_until(lambda: hasattr(self, "gateway"), timeout_s=10, what="the gateway")

    def unanswered(self) -> list[bytes]:
        return [
            record
            for record in self.records
            if not any(is_answer(one, record) for one in self.transport.sent)
        ]

    async def _serve(self, client: Client) -> None:
        self.gateway = gateway.Gateway(client, SECRET)
        self.gateway.connection_made(self.transport)
        while True:
            for record in self.unanswered() if self.repeats else ():
                self.gateway.datagram_received(record, NAS)
            await asyncio.sleep(1)


async def make_queue(client: Client) -> None:
    async with client.subscribe("radius.#", durable=gateway.QUEUE):
        pass


async def stored(client: Client) -> list[tuple[str | None, bytes]]:
    """The kept records, with their keys."""
    async with client.subscribe(durable=gateway.QUEUE) as jobs:
        found = [await anext(jobs) for _ in range(jobs.waiting)]
    return [(job.key, job.body) for job in found]


def test_a_device_is_answered_only_after_its_record_is_stored() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(make_queue, at="broker-1")
        site = Site(mesh)
        world.inject("crash", ["broker-1"])
        site.records += [start(number) for number in range(5)]
        world.run_for(20)
        assert site.transport.sent == [], "the home is away: nobody is promised anything"
        world.inject("crash", ["broker-2"])
        world.run_for(20)
        assert site.gateway.counts["not stored"] > 5, "no broker is there"
        world.inject("start", mesh.brokers)
        world.run_until(lambda: not site.unanswered(), timeout_s=30, what="all answers")
        world.inject("power_off", mesh.brokers)
        world.inject("start", mesh.brokers)
        mesh.wait_whole()
        kept = mesh.run(stored, at="broker-1")
        assert sorted(body for _, body in kept) == sorted(site.records)
        assert len({key for key, _ in kept}) == 5


def test_a_repetition_is_answered_again_and_stored_once() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(make_queue, at="broker-1")
        site = Site(mesh)
        site.repeats = False
        packet = start(1)
        world.inject("slow_disk", ["broker-1"], value=3)
        for _ in range(3):
            site.gateway.datagram_received(packet, NAS)
            world.run_for(0.5)
        assert site.transport.sent == []
        world.run_for(5)
        assert len(site.transport.sent) == 1
        site.gateway.datagram_received(packet, NAS)
        assert len(site.transport.sent) == 2 and all(is_answer(one, packet) for one in site.transport.sent)
        assert mesh.run(stored, at="broker-1") == [(f"{NAS[0]}-{packet[4:20].hex()}", packet)]
        assert site.gateway.counts == {"stored": 1, "repeated": 1, "discarded": 0, "not stored": 0}


def test_the_oldest_stored_record_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "ANSWERED_MAX", 2)
    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.run(make_queue)
        site = Site(mesh, at="broker-1")
        site.records += [start(number) for number in range(3)]
        world.run_until(lambda: not site.unanswered(), timeout_s=10, what="all answers")
        assert len(site.gateway._answered) == 2 and not site.gateway._under_way


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\4\1\0\x14" + b"x" * 16,
        request(1, secret=b"another"),
        request(1, code=1),
        start(1)[:-1],
        b"\4\1\0\x05" + start(1)[4:],
    ],
    ids=["empty", "forged", "other secret", "other code", "cut", "length below the header"],
)
def test_packets_that_are_no_requests_are_discarded(packet: bytes) -> None:
    assert not gateway.is_request(packet, SECRET)


def test_bytes_after_the_length_of_a_packet_are_padding() -> None:
    assert gateway.is_request(start(1) + b"\0\0", SECRET)


def test_an_answer_has_the_proxy_states_in_their_order() -> None:
    states = attribute(33, b"one"), attribute(33, b"two")
    packet = request(7, states[0], attribute(44, b"s"), states[1])
    assert is_answer(gateway.answer_to(packet, SECRET), packet, *states)
    cut = request(7, states[0], b"\x21\xff")
    assert is_answer(gateway.answer_to(cut, SECRET), cut, states[0])
    empty = request(7, b"\x21\x00", states[0])
    assert is_answer(gateway.answer_to(empty, SECRET), empty), "an attribute of no bytes ends them"


async def test_the_gateway_answers_over_udp(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with (
        Broker(name="home", listen="tcp://127.0.0.1:0", state_dir=tmp_path) as broker,
        Client(broker.url) as client,
    ):
        await make_queue(client)
        transport, _ = await loop.create_datagram_endpoint(
            lambda: gateway.Gateway(client, SECRET), ("127.0.0.1", 0)
        )
        with socket.socket(type=socket.SOCK_DGRAM) as device:
            device.setblocking(False)
            device.connect(transport.get_extra_info("sockname"))
            device.send(start(1))
            assert is_answer(await loop.sock_recv(device, 4096), start(1))
        transport.close()
        assert [body for _, body in await stored(client)] == [start(1)]
