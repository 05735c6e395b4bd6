"""Brokers in one process over real sockets: they find each other, carry messages, notice who is gone."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mesh.broker import listeners
from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.environment import Environment
from mesh.errors import ListenError, Locked, MeshError
from mesh.storage import ThreadStorage
from tests.mesh.loopback import LOCAL, PERIOD_S, Cluster, eventually, linked, states, whole

FIVE = ("alpha", "bravo", "charlie", "delta", "echo")


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No callback of the event loop may have failed."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def rows(folder: Path) -> list[dict[str, Any]]:
    """Every row of every log file in the folder."""
    return [
        json.loads(line) for path in sorted(folder.glob("*.jsonl*")) for line in path.read_text().splitlines()
    ]


async def test_five_brokers_find_each_other_by_joining_any_one() -> None:
    async with Cluster() as cluster:
        brokers = [await cluster.broker("alpha")]
        for name in FIVE[1:]:
            brokers.append(await cluster.broker(name, brokers[-1]))  # a chain: each knows one
        await whole(brokers)
        await eventually(lambda: {b.statistics()["state"] for b in brokers} == {"ready"}, "all ready")
        assert [len(broker.members()) for broker in brokers] == [5] * 5


async def test_brokers_that_join_each_other_at_once_end_with_one_link_a_pair() -> None:
    urls = [f"tcp://127.0.0.1:{port}" for port in unused_ports(4)]
    async with Cluster() as cluster:
        brokers = await asyncio.gather(
            *(
                cluster.broker(name, listen=url, join=[other for other in urls if other != url])
                for name, url in zip(FIVE, urls, strict=False)
            )
        )
        await whole(list(brokers))


def unused_ports(count: int) -> list[int]:
    """Free when looked at."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


async def test_what_is_published_on_one_broker_reaches_subscribers_on_all_and_only_who_wants_it() -> None:
    async with Cluster() as cluster:
        brokers = await cluster.mesh(*FIVE[:3])
        async with Client(brokers[0].url) as publisher:
            for broker in brokers[1:]:
                assert broker.statistics()["totals"]["msgs_in"] == 0
            async with Client(brokers[1].url) as reader, reader.subscribe("news.*") as news:
                for number in range(500):
                    await publisher.publish("news.uk", b"%d" % number)
                    await publisher.publish("other.uk", b"not wanted")
                for number in range(500):
                    delivery = await asyncio.wait_for(anext(news), 5)
                    assert (delivery.topic, delivery.body) == ("news.uk", b"%d" % number)
        assert brokers[2].statistics()["totals"]["msgs_in"] == 0, "nobody on charlie asked for anything"


async def test_a_message_published_right_after_a_subscription_elsewhere_always_arrives() -> None:
    """The barrier: subscribe on one broker, tell the publisher, which publishes at once on another."""
    rounds = 1000
    async with Cluster() as cluster:
        alpha, bravo, charlie = await cluster.mesh(*FIVE[:3])
        arrived = 0
        async with Client(alpha.url) as publisher, Client(bravo.url) as one, Client(charlie.url) as two:
            for number in range(rounds):
                reader = one if number % 2 else two
                async with reader.subscribe(f"round.{number}") as subscription:
                    await publisher.publish(f"round.{number}", b"x")
                    delivery = await asyncio.wait_for(anext(subscription), 5)
                    arrived += delivery.body == b"x"
        assert arrived == rounds


async def test_a_broker_that_dies_is_dead_for_the_others_and_comes_back_as_itself(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        alpha, bravo, charlie = await cluster.mesh(*FIVE[:3])
        victim = await cluster.broker("victim", alpha, state_dir=str(tmp_path))
        await whole([alpha, bravo, charlie, victim])
        id, url = victim.id, victim.url
        await crash(victim)
        others = [alpha, bravo, charlie]
        await eventually(
            lambda: all(states(broker)["victim"] == "dead" for broker in others), "dead everywhere", 10
        )
        assert all("victim" not in linked(broker) for broker in others)
        again = await cluster.broker("victim", None, listen=url, state_dir=str(tmp_path))
        await whole([*others, again])  # by the known peers in its state folder: it was given nobody to join
        assert again.id == id
        assert all(len(broker.members()) == 4 for broker in others)


async def test_a_broker_that_took_all_others_for_dead_still_knows_where_they_were(tmp_path: Path) -> None:
    """It may have been cut off; and it has moved, so that nobody would find it."""
    async with Cluster() as cluster:
        alpha = await cluster.broker("alpha")
        bravo = await cluster.broker("bravo", alpha, state_dir=str(tmp_path))
        await whole([alpha, bravo])
        url = alpha.url
        await crash(alpha)
        await eventually(lambda: states(bravo)["alpha"] == "dead", "dead for bravo", 10)
        await crash(bravo)
        alpha = await cluster.broker("alpha", listen=url)
        await whole([alpha, await cluster.broker("bravo", state_dir=str(tmp_path))])


async def crash(broker: Broker) -> None:
    """End it as SIGKILL would: no goodbye, everything closed at once."""
    node = broker._node
    assert node is not None
    node._stopped = asyncio.get_running_loop().create_future()
    node._stopped.set_result(None)
    await node._close()


async def test_a_broker_that_leaves_is_left_everywhere_and_writes_its_own_row(tmp_path: Path) -> None:
    async with Cluster(log_dir=str(tmp_path), stats_s=0.5) as cluster:
        alpha, bravo, charlie = await cluster.mesh(*FIVE[:3])
        await eventually(lambda: {"hb", "stats"} <= {row["kind"] for row in rows(tmp_path)}, "a heartbeat")
        await charlie.leave()
        await eventually(
            lambda: [states(b).get("charlie") for b in (alpha, bravo)] == ["left"] * 2, "left", 5
        )
        charlie_id = charlie.id
    found = rows(tmp_path)
    assert not list(tmp_path.glob("*.part"))
    own = [row for row in found if row["node"] == charlie_id]
    assert [row["seq"] for row in own] == list(range(1, len(own) + 1))
    assert [row["op"] for row in own if row["kind"] == "meta"] == ["start", "stop"]
    assert own[-1]["reason"] == "leave"
    left = [row for row in own if row["kind"] == "mem" and row["subject"] == charlie_id]
    assert [row["to_state"] for row in left][-1] == "left"
    assert {row["kind"] for row in found} == {"meta", "hb", "mem", "link", "stats"}
    assert not [row for row in found if row.get("to_state") in ("dead", "suspect")]


async def test_leaving_twice_and_after_leaving_the_block_is_harmless() -> None:
    async with Broker(listen=LOCAL) as broker:
        await asyncio.gather(broker.leave(), broker.leave())
        assert broker.statistics()["state"] == "leaving"
    with pytest.raises(MeshError, match="runs once"):
        async with broker:
            pass
    with pytest.raises(MeshError, match="not running"):
        _ = Broker(listen=LOCAL).url


async def test_two_brokers_of_one_name_and_state_folder_cannot_run_at_once(tmp_path: Path) -> None:
    async with Broker(name="a", listen=LOCAL, state_dir=str(tmp_path)):
        with pytest.raises(Locked):
            async with Broker(name="a", listen=LOCAL, state_dir=str(tmp_path)):
                pass


async def test_a_given_environment_is_the_callers_to_close(tmp_path: Path) -> None:
    storage = ThreadStorage()
    real = Environment.real()
    environment = Environment(storage, real.rng, real.wall_time, real.token, "here", 7)
    async with Broker(listen=LOCAL, environment=environment) as broker:
        status = broker.statistics()
        assert (status["host"], status["pid"]) == ("here", 7)
    await storage.append(str(tmp_path / "still"), b"open")
    await storage.aclose()


async def test_every_broker_answers_for_its_status_and_a_survey_finds_them_all() -> None:
    async with Cluster() as cluster:
        _, bravo, charlie = await cluster.mesh(*FIVE[:3])
        async with Client(bravo.url) as client:
            nearest = json.loads(await client.request("$sys.status", b""))
            assert nearest["name"] == "bravo"
            result = await client.survey("$sys.status", b"", deadline=2.0)
            assert sorted(json.loads(answer.body)["name"] for answer in result.answers) == [
                "alpha",
                "bravo",
                "charlie",
            ]
            assert not result.missing
            one = json.loads(await client.request(f"$sys.status.{charlie.id}", b""))
            assert one["name"] == "charlie"


async def test_the_status_counts_what_was_carried() -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        async with Client(alpha.url) as publisher, Client(bravo.url) as reader:
            async with reader.subscribe("n.#") as subscription:
                for _ in range(50):
                    await publisher.publish("n.x", b"12345678")
                for _ in range(50):
                    await asyncio.wait_for(anext(subscription), 5)
                status = alpha.statistics()
                assert status["totals"]["published"] == 50
                assert status["sessions"] == 1
                (link,) = [member["link"] for member in status["members"] if member["link"]]
                assert link["msgs_out"] == 50 and link["lost"] == 0
                assert bravo.statistics()["totals"]["delivered"] == 50
                assert "n.#" in bravo.statistics()["interest"]
                assert bravo.statistics()["subscriptions"] == 1


# --- stock clients


@pytest.mark.interop
@pytest.mark.process
@pytest.mark.skipif(shutil.which("nngcat") is None, reason="nngcat is not installed (Debian: nng-utils)")
async def test_the_two_nngcat_lines_of_the_manual_work_between_two_brokers() -> None:
    async with Cluster() as cluster:
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
            receipt, _ = await asyncio.wait_for(publisher.communicate(), 10)
            assert receipt.strip() == b"accepted topic=news.uk broker=alpha seq=1"
            assert subscriber.stdout is not None
            line = await asyncio.wait_for(subscriber.stdout.readline(), 10)
            assert line.strip() == b'"news.uk hello"'
        finally:
            subscriber.kill()
            await subscriber.communicate()


def knows_interest(broker: Broker, of: Broker) -> bool:
    """Whether ``broker`` holds a pattern of ``of`` that is not of the system."""
    held = broker.inspect().interest.held.get(of.inspect().id)
    return held is not None and any(not pattern.startswith("$") for pattern, _ in held.patterns)


@pytest.mark.interop
@pytest.mark.process
@pytest.mark.skipif(shutil.which("nngcat") is None, reason="nngcat is not installed (Debian: nng-utils)")
async def test_nngcat_reads_a_brokers_status_and_its_errors() -> None:
    async with Cluster() as cluster:
        alpha = await cluster.broker("alpha")
        for data, expected in (("$sys.status", b'"name":"alpha"'), ("bad..topic x", b"error: ")):
            process = await asyncio.create_subprocess_exec(
                *("nngcat", "--req", "--dial", alpha.url, "--ascii", "--data", data), stdout=subprocess.PIPE
            )
            output, _ = await asyncio.wait_for(process.communicate(), 10)
            assert expected in output


async def test_stock_sockets_publish_and_subscribe_across_brokers() -> None:
    from protocols import Pub0, Push0, Req0, Sub0

    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        async with Sub0(topics=[b"news."]) as reader, Client(bravo.url) as client:
            reader.dial(bravo.url)
            async with client.subscribe("news.#") as subscription:
                await eventually(lambda: bravo.statistics()["taps"], "the tap")
                async with Push0() as push, Pub0() as pub, Req0() as request:
                    for socket in (push, pub, request):
                        socket.dial(alpha.url)
                    await request.send(b"news.a by request")
                    assert (await request.recv()).startswith(b"accepted topic=news.a broker=alpha")
                    await push.send(b"news.b by push")
                    await eventually(lambda: len(pub.pipes) == 1, "pub is connected")
                    await pub.send(b"news.c by pub")
                    expected = {b"news.a by request", b"news.b by push", b"news.c by pub"}
                    assert {await asyncio.wait_for(reader.recv(), 5) for _ in range(3)} == expected
                    got = [await asyncio.wait_for(anext(subscription), 5) for _ in range(3)]
                    assert {d.topic.encode() + b" " + d.body for d in got} == expected
        await eventually(lambda: not bravo.statistics()["taps"], "the tap goes with its subscriber")


async def test_export_bounds_what_stock_subscribers_may_see() -> None:
    from protocols import Sub0

    async with Cluster() as cluster:
        alpha = await cluster.broker("alpha", export=["public.#"])
        async with Sub0(topics=[b""]) as reader, Client(alpha.url) as client:
            reader.dial(alpha.url)
            await eventually(lambda: alpha.statistics()["taps"] == ["public.#"], "the tap")
            await client.publish("private.x", b"secret")
            await client.publish("public.x", b"open")
            assert await asyncio.wait_for(reader.recv(), 5) == b"public.x open"


# --- events


async def test_rows_are_on_disk_within_a_second_and_stats_come_regularly(tmp_path: Path) -> None:
    async with Cluster(log_dir=str(tmp_path), stats_s=0.3) as cluster:
        await cluster.mesh("alpha", "bravo")

        def stats() -> list[dict[str, Any]]:
            return [row for row in rows(tmp_path) if row["kind"] == "stats" and row["links"]]

        await eventually(lambda: len(stats()) >= 4, "stats rows")
        row = stats()[-1]
        assert row["loop_late_ms_max"] >= row["loop_late_ms_p50"] >= 0
        assert row["rss_bytes"] > 1 << 20
        answers = [r for r in rows(tmp_path) if r["kind"] == "hb" and r["msg"] == "answer"]
        assert all(0 < r["rtt_us"] < 1e6 * PERIOD_S for r in answers) and answers


async def test_a_paused_loop_shows_in_the_lateness() -> None:
    import time

    async with Broker(listen=LOCAL, stats_s=0.2) as broker:
        await eventually(lambda: broker.statistics()["loop"]["late_ms_max"] > 0, "lateness is measured")
        time.sleep(0.3)
        await eventually(lambda: broker.statistics()["loop"]["late_ms_max"] > 150, "the pause is seen", 5)


# --- addresses


async def test_told_nothing_a_broker_is_found_by_clients_of_its_user(
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
            assert (await asyncio.wait_for(anext(subscription), 5)).body == b"1"


async def test_listening_beyond_loopback_without_a_key_warns_loudly(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(name="open", listen="tcp://:0"):
        pass
    assert "broker open can be reached from other hosts" in caplog.text
    caplog.clear()
    async with Broker(name="closed", listen="tcp://:0", mesh_key="secret"):
        pass
    async with Broker(name="local", listen="tcp://localhost:0"):
        pass
    assert "can be reached" not in caplog.text


async def test_a_broker_listens_on_several_addresses_and_all_serve_alike(tmp_path: Path) -> None:
    async with Broker(listen=[LOCAL, f"ipc://{tmp_path}/b.sock", LOCAL]) as broker:
        async with Client(broker.urls[0]) as reader, reader.subscribe("a.#") as subscription:
            for number, url in enumerate(broker.urls):
                async with Client(url) as client:
                    await client.publish("a.b", b"%d" % number)
            bodies = [(await asyncio.wait_for(anext(subscription), 5)).body for _ in range(3)]
            assert bodies == [b"0", b"1", b"2"]


async def test_a_runtime_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("os.getuid", lambda: 4242)
    with pytest.raises(ListenError, match="belongs to another user"):
        async with Broker():
            pass
