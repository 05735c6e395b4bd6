"""A blocking client's connection speaks every transport's codec: plain, TLS, WebSocket, and both."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mesh import BlockingClient, Disconnected
from mesh.clients.blocking_connection import BrokerDialer
from protocols import AddressError, ConnectionRefused, HandshakeError, TlsConfig
from tests.support.certificates import alice, authority, config, local, stranger
from tests.support.children import ends_with_tests

pytestmark = pytest.mark.process

BROKER = """
import asyncio, sys
from mesh import Broker
from mesh.tls import tls_config
async def main():
    cert, key, ca, *urls = sys.argv[1:]
    async with Broker(listen=urls, name="alpha", tls=tls_config(cert=cert, key=key, ca=ca)) as broker:
        print(*broker.statistics()["listeners"], flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
ANYWHERE = {
    "tls+tcp": "tls+tcp://127.0.0.1:0",
    "ws": "ws://127.0.0.1:0/mesh",
    "wss": "wss://127.0.0.1:0/mesh",
    "abstract": "abstract://",
}


@dataclass
class Served:
    """A broker in a process of its own, at one address of each kind."""

    urls: dict[str, str]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("blocking")
    files = [*local().write(folder, "server"), authority().write(folder)]
    process = subprocess.Popen(
        ends_with_tests([sys.executable, "-c", BROKER, *files, *ANYWHERE.values()]),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    urls = process.stdout.readline().split()
    yield Served(dict(zip(ANYWHERE, urls, strict=True)))
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("kind", list(ANYWHERE))
def test_bodies_of_any_size_come_back_over_every_transport(served: Served, kind: str) -> None:
    url = served.urls[kind]
    bodies = [b"", b"small", os.urandom(70_000), os.urandom(3_000_000)]
    with BlockingClient(url, tls=config()) as mesh, mesh.subscribe(f"any.{kind[:2]}") as subscription:
        for body in bodies:
            mesh.publish(f"any.{kind[:2]}", body)
        for body in bodies:
            delivery = subscription.receive(10.0)
            assert delivery is not None and delivery.body == body


@pytest.mark.parametrize(
    ("tls", "sentence"),
    [
        (None, "not signed by an authority trusted here"),
        (config(trust=stranger()), "not signed by an authority trusted here"),
        (config(server_name="other.example"), "is not for other.example"),
        (TlsConfig(ca_file="/nonexistent"), "/nonexistent cannot be read"),
        (config(stranger().sign("eve@example.com")), "does not trust who signed our certificate"),
    ],
)
@pytest.mark.parametrize("kind", ["tls+tcp", "wss"])
def test_a_refusal_by_tls_is_named_in_the_error(
    served: Served, kind: str, tls: TlsConfig | None, sentence: str
) -> None:
    with pytest.raises(Disconnected, match=sentence):
        BlockingClient(served.urls[kind], tls=tls, connect_timeout=5.0).open()


def test_tls_at_a_plain_address_and_the_reverse_are_named_in_the_error(served: Served) -> None:
    host = served.urls["tls+tcp"].removeprefix("tls+")
    with pytest.raises(Disconnected, match="closed the connection after 0 of 8 header bytes"):
        BlockingClient(host, connect_timeout=5.0).open()
    with pytest.raises(Disconnected, match="speaks plain HTTP, not TLS|after no byte of TLS"):
        BlockingClient(served.urls["ws"].replace("ws", "wss", 1), tls=config(), connect_timeout=5.0).open()
    with pytest.raises(AddressError, match="without an event loop there are tcp"):
        BlockingClient("inproc://x")


def test_a_forked_child_has_a_tls_session_of_its_own(served: Served) -> None:
    """The child must send nothing in the parent's TLS stream, not even a goodbye."""
    url = served.urls["tls+tcp"]
    with BlockingClient(url, tls=config(alice())) as mesh, mesh.subscribe("forked.#") as subscription:
        mesh.publish("forked.before", b"1")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                mesh.publish("forked.child", b"2")
                mesh.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        mesh.publish("forked.after", b"3")
        found = {subscription.receive(10.0).topic for _ in range(3)}  # type: ignore[union-attr]
        assert found == {"forked.before", "forked.child", "forked.after"}


def test_threads_share_one_tls_stream(served: Served) -> None:
    with (
        BlockingClient(served.urls["tls+tcp"], tls=config()) as mesh,
        mesh.subscribe("crowd") as subscription,
    ):

        def publish(number: int) -> None:
            for _ in range(20):
                mesh.publish("crowd", bytes([number]) * 5000)

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        got = [subscription.receive(20.0) for _ in range(160)]
        for thread in threads:
            thread.join()
        assert sorted(delivery.body[0] for delivery in got if delivery) == sorted([*range(8)] * 20)
        assert all(delivery and len(set(delivery.body)) == 1 for delivery in got)


def test_a_listener_that_sends_byte_by_byte_is_given_up_at_the_deadline() -> None:
    """Single bytes of the header arrived with pauses: each one began a new wait."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def dribble() -> None:
            peer, _ = server.accept()
            with peer:
                for byte in b"\0SP\0\0\x31\0":
                    if done.wait(0.4):
                        return
                    peer.sendall(bytes([byte]))
                done.wait(120)

        thread = threading.Thread(target=dribble)
        thread.start()
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            BrokerDialer(url, None, time.monotonic).connect(0.5)
        assert time.monotonic() - start < 2.8, "the last byte has come by then"
        done.set()
        thread.join()


def test_new_files_are_used_for_the_next_connection(served: Served, tmp_path: Path) -> None:
    ca = stranger().write(tmp_path)
    now = [0.0]
    dialer = BrokerDialer(served.urls["tls+tcp"], TlsConfig(ca_file=ca), lambda: now[0])
    with pytest.raises(HandshakeError) as caught:
        dialer.connect(5.0)
    assert caught.value.reason == "tls: untrusted certificate"
    authority().write(tmp_path)
    now[0] += 1.0
    dialer.connect(5.0).close()


@pytest.mark.parametrize(
    ("url", "family"),
    [
        ("tcp://broker.example:7", socket.AF_UNSPEC),
        ("tcp4://broker.example:7", socket.AF_INET),
        ("tls+tcp6://broker.example:7", socket.AF_INET6),
        ("ws6://broker.example:7/mesh", socket.AF_INET6),
        ("wss4://broker.example:7/mesh", socket.AF_INET),
    ],
)
def test_a_url_for_one_family_is_looked_up_in_that_family(
    url: str, family: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def look_up(*question: object) -> list[object]:
        asked.append(question)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(AddressError, match=r"broker.example has no address"):
        BrokerDialer(url, None, time.monotonic).connect(1.0)
    assert asked == [("broker.example", 7, family, socket.SOCK_STREAM)]


def test_the_next_address_of_a_name_is_tried_when_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dead:
        refusing = dead.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)
            for address in (refusing, server.getsockname())
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *question: found)
        heard: list[bytes] = []

        def hang_up() -> None:
            peer, _ = server.accept()
            with peer:
                heard.append(peer.recv(8))

        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        with pytest.raises(HandshakeError, match="closed the connection"):
            BrokerDialer("tcp://broker.example:7", None, time.monotonic).connect(60.0)
        hanging_up.join()
        assert heard[0].startswith(b"\0SP\0")


def test_the_next_address_is_tried_when_one_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first used up all the time, and the second had to answer at once."""
    with socket.socket() as full, socket.create_server(("127.0.0.1", 0)) as server:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        holding = [socket.socket() for _ in range(4)]
        for peer in holding:  # the backlog is full, so the kernel drops further connections
            peer.setblocking(False)
            peer.connect_ex(full.getsockname())
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)
            for address in (full.getsockname(), server.getsockname())
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *question: found)
        accepted: list[socket.socket] = []

        def answer() -> None:
            accepted.append(server.accept()[0])
            accepted[0].sendall(b"\0SP\0\0\x31\0\0")

        answering = threading.Thread(target=answer)
        answering.start()
        begun = time.monotonic()
        connection = BrokerDialer("tcp://broker.example:7", None, time.monotonic).connect(8.0)
        assert time.monotonic() - begun < 6.0
        answering.join()
        connection.close()
        for each in (*holding, *accepted):
            each.close()


def test_the_first_refusal_is_raised_when_no_address_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dead:
        refusing = dead.getsockname()
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", refusing),
        (socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("::1", refusing[1], 0, 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *question: found)
    with pytest.raises(ConnectionRefused, match="nobody listens at tcp://broker.example:7"):
        BrokerDialer("tcp://broker.example:7", None, time.monotonic).connect(3.0)
