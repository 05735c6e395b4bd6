"""Brokers find each other, carry messages and notice brokers that left."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.errors import Locked, MeshError
from tests.mesh.loopback import LOCAL, PERIOD_S, Cluster, crash, eventually, linked, states, whole
from tests.support.virtual_time import disk

pytestmark = pytest.mark.virtual

LOGS, STATE = "/logs", "/state"
FIVE = ("alpha", "bravo", "charlie", "delta", "echo")


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No callback of the event loop may have failed."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def rows() -> list[dict[str, Any]]:
    """Every row of every log file."""
    return [json.loads(line) for text in disk().under(LOGS).values() for line in text.splitlines()]


async def test_five_brokers_find_each_other_by_joining_any_one() -> None:
    async with Cluster() as cluster:
        brokers = [await cluster.broker("alpha")]
        for name in FIVE[1:]:
            brokers.append(await cluster.broker(name, brokers[-1]))  # a chain: each knows one
        await whole(brokers)
        await eventually(lambda: {b.statistics()["state"] for b in brokers} == {"ready"}, "all ready")
        assert [len(broker.members()) for broker in brokers] == [5] * 5


async def test_brokers_that_join_each_other_at_once_end_with_one_link_a_pair() -> None:
    urls = [f"tcp://127.0.0.1:{port}" for port in range(7771, 7775)]
    async with Cluster() as cluster:
        brokers = await asyncio.gather(
            *(
                cluster.broker(name, listen=url, join=[other for other in urls if other != url])
                for name, url in zip(FIVE, urls, strict=False)
            )
        )
        await whole(list(brokers))


async def test_a_message_reaches_the_subscribers_of_its_topic_on_all_brokers_and_no_others() -> None:
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
    """The barrier: subscribe on one broker and tell the publisher, which publishes at once on another."""
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


async def test_a_broker_that_dies_is_dead_for_the_others_and_comes_back_as_itself() -> None:
    async with Cluster() as cluster:
        alpha, bravo, charlie = await cluster.mesh(*FIVE[:3])
        victim = await cluster.broker("victim", alpha, state_dir=STATE)
        await whole([alpha, bravo, charlie, victim])
        id, url = victim.id, victim.url
        await crash(victim)
        others = [alpha, bravo, charlie]
        await eventually(
            lambda: all(states(broker)["victim"] == "dead" for broker in others), "dead everywhere", 10
        )
        assert all("victim" not in linked(broker) for broker in others)
        again = await cluster.broker("victim", None, listen=url, state_dir=STATE)
        # through the known peers in its state folder: it was given no URL to join
        await whole([*others, again])
        assert again.id == id
        assert all(len(broker.members()) == 4 for broker in others)


async def test_a_broker_that_took_all_others_for_dead_still_knows_where_they_were() -> None:
    """It may have been cut off; and it has moved, so that nobody would find it."""
    async with Cluster() as cluster:
        alpha = await cluster.broker("alpha")
        bravo = await cluster.broker("bravo", alpha, state_dir=STATE)
        await whole([alpha, bravo])
        url = alpha.url
        await crash(alpha)
        await eventually(lambda: states(bravo)["alpha"] == "dead", "dead for bravo", 10)
        await crash(bravo)
        alpha = await cluster.broker("alpha", listen=url)
        await whole([alpha, await cluster.broker("bravo", state_dir=STATE)])


async def test_a_broker_that_leaves_is_left_everywhere_and_writes_its_own_row() -> None:
    async with Cluster(log_dir=LOGS, stats_s=0.5) as cluster:
        alpha, bravo, charlie = await cluster.mesh(*FIVE[:3])
        await eventually(lambda: {"hb", "stats"} <= {row["kind"] for row in rows()}, "a heartbeat")
        await charlie.leave()
        await eventually(
            lambda: [states(b).get("charlie") for b in (alpha, bravo)] == ["left"] * 2, "left", 5
        )
        charlie_id = charlie.id
    found = rows()
    assert not [path for path in disk().under(LOGS) if path.endswith(".part")]
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


async def test_two_brokers_of_one_name_and_state_folder_cannot_run_at_once() -> None:
    async with Broker(name="a", listen=LOCAL, state_dir=STATE):
        with pytest.raises(Locked):
            async with Broker(name="a", listen=LOCAL, state_dir=STATE):
                pass


async def test_every_broker_reports_its_status_and_a_survey_finds_them_all() -> None:
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


async def test_the_status_counts_published_and_delivered_messages() -> None:
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


async def test_export_limits_the_topics_that_stock_subscribers_receive() -> None:
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


async def test_rows_are_on_disk_within_a_second_and_stats_come_regularly() -> None:
    async with Cluster(log_dir=LOGS, stats_s=0.3) as cluster:
        await cluster.mesh("alpha", "bravo")

        def stats() -> list[dict[str, Any]]:
            return [row for row in rows() if row["kind"] == "stats" and row["links"]]

        await eventually(lambda: len(stats()) >= 4, "stats rows")
        row = stats()[-1]
        assert row["loop_late_ms_max"] >= row["loop_late_ms_p50"] >= 0
        answers = [r for r in rows() if r["kind"] == "hb" and r["msg"] == "answer"]
        assert all(0 < r["rtt_us"] < 1e6 * PERIOD_S for r in answers) and answers


# --- addresses


async def test_a_broker_listens_on_several_addresses_and_all_serve_alike() -> None:
    async with Broker(listen=[LOCAL, "ipc:///run/b.sock", LOCAL]) as broker:
        async with Client(broker.urls[0]) as reader, reader.subscribe("a.#") as subscription:
            for number, url in enumerate(broker.urls):
                async with Client(url) as client:
                    await client.publish("a.b", b"%d" % number)
            bodies = [(await asyncio.wait_for(anext(subscription), 5)).body for _ in range(3)]
            assert bodies == [b"0", b"1", b"2"]


async def test_the_log_of_a_broker_whose_name_begins_with_an_underscore_is_no_hidden_file() -> None:
    """Spark passes over such files, and so the analysis did not see the broker."""
    async with Cluster(log_dir=LOGS) as cluster:
        await cluster.broker("_edge")
        assert [path.rpartition("/")[2].partition("-")[0] for path in disk().under(LOGS)] == ["@_edge"]
