"""Behaviour that virtual time cannot show: brokers on real sockets, files and clocks, with stock programs as
clients.

Everything else about brokers is tested in virtual time, in the tests of their packages. This module has one
smoke test of each kind, and tests of what only a real machine has.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.broker import listeners
from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.environment import Environment
from mesh.errors import ListenError, StorageError
from mesh.listen import Listen
from mesh.storage import ThreadStorage
from protocols import Pipe, SocketOptions, Sub0, TlsConfig
from tests.mesh.loopback import (
    LOCAL,
    REQ,
    ROOMY,
    SUB,
    Cluster,
    Stranger,
    crash,
    eventually,
    rows,
    states,
    whole,
)
from tests.mesh.peers import Peers
from tests.support import certificates

FIVE = ("alpha", "bravo", "charlie", "delta", "echo")


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No callback of the event loop may have failed."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


# --- one of each kind


async def test_five_peerings_find_each_other_and_one_that_crashes_is_dead() -> None:
    async with Peers() as peers:
        mesh = await peers.mesh(*FIVE, **ROOMY)
        await mesh[4].crash()
        await eventually(lambda: all(peer.states()["echo"] == "dead" for peer in mesh[:4]), "echo is dead")


@pytest.mark.parametrize(
    "listen", [LOCAL, "tls+tcp://127.0.0.1:0", "ws://127.0.0.1:0/mesh", "wss://127.0.0.1:0/mesh", "ipc"]
)
async def test_brokers_carry_messages_over_every_transport(tmp_path: Path, listen: str) -> None:
    tls = certificates.config(certificates.local())
    brokers: list[Broker] = []
    async with Cluster(tls=tls, **ROOMY) as cluster:
        for name in FIVE[:3]:
            url = f"ipc://{tmp_path}/{name}" if listen == "ipc" else listen
            brokers.append(await cluster.broker(name, brokers[0] if brokers else None, listen=url))
        await whole(brokers)
        urls = [broker.url for broker in brokers]
        async with Client(urls[0], tls=tls) as publisher, Client(urls[1], tls=tls) as reader:
            async with reader.subscribe("news.*") as news:
                for number in range(500):
                    await publisher.publish("news.uk", b"%d" % number)
                    await publisher.publish("other.uk", b"not wanted")
                for number in range(500):
                    delivery = await asyncio.wait_for(anext(news), 60)
                    assert (delivery.topic, delivery.body) == ("news.uk", b"%d" % number)
            result = await reader.survey("$sys.status", b"", deadline=10.0)
            assert sorted(json.loads(answer.body)["name"] for answer in result.answers) == list(FIVE[:3])
        assert brokers[2].statistics()["totals"]["msgs_in"] == 0, "nobody on charlie asked for anything"


async def test_a_broker_that_dies_returns_with_its_id_and_one_that_leaves_has_left(tmp_path: Path) -> None:
    logs, state = tmp_path / "logs", tmp_path / "state"
    async with Cluster(log_dir=str(logs), state_dir=str(state), stats_s=0.3, **ROOMY) as cluster:
        alpha, bravo, victim = await cluster.mesh(*FIVE[:3])
        id, url = victim.id, victim.url
        await crash(victim)
        await eventually(lambda: states(alpha)["charlie"] == states(bravo)["charlie"] == "dead", "dead")
        again = await cluster.broker("charlie", None, listen=url)
        await whole(
            [alpha, bravo, again]
        )  # through the known peers in its state folder: it was given no URL to join
        assert again.id == id
        await eventually(lambda: {"hb", "stats"} <= {row["kind"] for row in rows(logs)}, "rows on disk")
        await again.leave()
        await eventually(lambda: states(alpha)["charlie"] == states(bravo)["charlie"] == "left", "left")
    found = rows(logs)
    assert {row["kind"] for row in found} >= {"meta", "hb", "mem", "link", "stats"}
    assert all(row["rss_bytes"] > 1 << 20 for row in found if row["kind"] == "stats")
    answers = [row for row in found if row["kind"] == "hb" and row["msg"] == "answer"]
    assert answers and all(row["rtt_us"] > 0 for row in answers)
    assert not list(logs.glob("*.part"))


async def test_bad_input_costs_its_connection_and_harms_no_other_client() -> None:
    async with Cluster(**ROOMY) as cluster:
        broker = await cluster.broker("alpha")
        async with Client(broker.url) as client, client.subscribe("traffic") as traffic:
            garbage = await Stranger.connect(broker.url)
            garbage.write(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
            oversized = await Stranger.connect(broker.url, REQ)
            oversized.write(struct.pack(">Q", 1 << 40) + b"x" * 100)
            speaking = await Stranger.connect(broker.url, SUB)
            speaking.send(b"I am a SUB")
            for number, stranger in enumerate((garbage, oversized, speaking)):
                assert await stranger.hung_up()
                await stranger.close()
                await client.publish("traffic", b"%d" % number)
                assert (await asyncio.wait_for(anext(traffic), 60)).body == b"%d" % number
        assert sum(broker.statistics()["refused"].values()) >= 2


# --- stock programs


@pytest.mark.interop
@pytest.mark.process
@pytest.mark.skipif(shutil.which("nngcat") is None, reason="nngcat is not installed (Debian: nng-utils)")
async def test_the_two_nngcat_lines_of_the_manual_work_between_two_brokers() -> None:
    async with Cluster(**ROOMY) as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        subscriber = await asyncio.create_subprocess_exec(
            *("nngcat", "--sub", "--dial", bravo.url, "--subscribe", "news.", "--quoted"),
            stdout=subprocess.PIPE,
        )
        try:
            await eventually(lambda: bravo.statistics()["taps"], "the tap")
            await eventually(lambda: knows_interest(alpha, bravo), "alpha knows of it")
            publisher = await asyncio.create_subprocess_exec(
                *("nngcat", "--req", "--dial", alpha.url, "--ascii", "--data", "news.uk hello"),
                stdout=subprocess.PIPE,
            )
            receipt, _ = await asyncio.wait_for(publisher.communicate(), 60)
            assert receipt.strip() == b"accepted topic=news.uk broker=alpha seq=1"
            assert subscriber.stdout is not None
            line = await asyncio.wait_for(subscriber.stdout.readline(), 60)
            assert line.strip() == b'"news.uk hello"'
        finally:
            subscriber.kill()
            await subscriber.communicate()


def knows_interest(broker: Broker, of: Broker) -> bool:
    """True if ``broker`` has a pattern of ``of`` that is not of the system."""
    held = broker.inspect().interest.held.get(of.inspect().id)
    return held is not None and any(not pattern.startswith("$") for pattern, _ in held.patterns)


@pytest.mark.interop
@pytest.mark.process
@pytest.mark.skipif(shutil.which("nngcat") is None, reason="nngcat is not installed (Debian: nng-utils)")
async def test_nngcat_reads_a_brokers_status_and_its_errors() -> None:
    async with Cluster(**ROOMY) as cluster:
        alpha = await cluster.broker("alpha")
        for data, expected in (("$sys.status", b'"name":"alpha"'), ("bad..topic x", b"error: ")):
            process = await asyncio.create_subprocess_exec(
                *("nngcat", "--req", "--dial", alpha.url, "--ascii", "--data", data), stdout=subprocess.PIPE
            )
            output, _ = await asyncio.wait_for(process.communicate(), 60)
            assert expected in output


# --- the machine


async def test_a_given_environment_is_the_callers_to_close(tmp_path: Path) -> None:
    storage = ThreadStorage()
    real = Environment.real()
    environment = Environment(storage, real.rng, real.wall_time, real.token, "here", 7)
    async with Broker(listen=LOCAL, environment=environment) as broker:
        status = broker.statistics()
        assert (status["host"], status["pid"]) == ("here", 7)
    await storage.append(str(tmp_path / "still"), b"open")
    await storage.aclose()


async def test_a_paused_loop_shows_in_the_lateness() -> None:
    async with Broker(listen=LOCAL, stats_s=0.2) as broker:
        await eventually(lambda: broker.statistics()["loop"]["late_ms_max"] > 0, "lateness is measured")
        time.sleep(0.3)
        await eventually(lambda: broker.statistics()["loop"]["late_ms_max"] > 150, "the pause is seen")


async def test_an_unwritable_log_folder_ends_the_start() -> None:
    with pytest.raises(StorageError, match="cannot write the event log in /proc/nowhere"):
        async with Broker(listen=LOCAL, log_dir="/proc/nowhere"):
            raise AssertionError("unreachable")


async def test_a_port_in_use_by_another_program_says_so() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        url = f"tcp://127.0.0.1:{holder.getsockname()[1]}"
        with pytest.raises(ListenError, match="another program listens there"):
            async with Broker(listen=url):
                raise AssertionError("unreachable")


async def test_a_broker_without_settings_is_found_by_clients_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("MANGROVE_URL", raising=False)
    monkeypatch.setattr(listeners, "DEFAULT_TCP_URL", LOCAL)
    async with Broker() as broker:
        tcp, ipc = broker.urls
        assert tcp.startswith("tcp://127.0.0.1:") and broker.url == tcp
        assert ipc == f"ipc://{tmp_path}/mangrove/broker.sock"
        assert (tmp_path / "mangrove").stat().st_mode & 0o777 == 0o700
        async with Client() as client, client.subscribe("a") as subscription, Client(tcp) as other:
            await other.publish("a", b"1")
            assert (await asyncio.wait_for(anext(subscription), 60)).body == b"1"


async def test_a_runtime_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(listeners, "DEFAULT_TCP_URL", LOCAL)
    monkeypatch.setattr("os.getuid", lambda: 987_654)
    with pytest.raises(ListenError, match="belongs to another user"):
        async with Broker():
            pass


# --- the system's options of accepted connections


async def test_a_vanished_host_of_a_silent_peer_is_noticed_in_minutes(tmp_path: Path) -> None:
    """The connection of a stock subscriber or a blocking client stayed for two hours."""
    authority = certificates.Authority()
    cert, key = authority.sign(*certificates.LOCAL).write(tmp_path, "server")
    ca = authority.write(tmp_path)
    urls = [
        *(LOCAL, "tls+tcp://127.0.0.1:0", "ws://127.0.0.1:0/m", "wss://127.0.0.1:0/m"),
        f"ipc://{tmp_path}/broker.sock",
    ]
    tls = TlsConfig(cert_file=cert, key_file=key, ca_file=ca, verify="none")
    async with Broker(name="alpha", listen=[Listen(url) for url in urls], tls=tls) as broker:
        for url in broker.urls:
            async with Sub0(dial=url, options=SocketOptions(tls=TlsConfig(ca_file=ca))) as sub:
                await sub.wait_for_peers()
                (pipe,) = await accepted(broker, 1)
                with socket.socket(fileno=os.dup(pipe.connection.descriptor)) as sock:
                    if url.startswith("ipc"):
                        assert sock.family == socket.AF_UNIX, "its peer is on this host; the kernel tells"
                        continue
                    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                    if hasattr(socket, "TCP_KEEPIDLE"):
                        times = [getattr(socket, f"TCP_KEEP{name}") for name in ("IDLE", "INTVL", "CNT")]
                        found = [sock.getsockopt(socket.IPPROTO_TCP, name) for name in times]
                        assert found == [30, 30, 3], url
            await accepted(broker, 0)


async def accepted(broker: Broker, count: int) -> list[Pipe]:
    """The pipes of stock subscribers, once there are so many."""
    assert broker._node is not None
    pub = broker._node._sockets[1]
    await eventually(lambda: len(pub.pipes) == count, f"{count} stock subscribers")
    return pub.pipes
