"""`mesh clients`, `topics`, `links`, `events` and `trace`, on a mesh in virtual time."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from mesh import Broker, Client
from mesh.cli import looking
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.settings import connected
from mesh.config import ClientConfig, FlagError
from mesh.console.clients import client_rows, cut, topic_rows
from mesh.console.probe import Answers, ask_all
from mesh.console.trace import NO_RECORD, MessageId, heard, lines, read_id, way
from mesh.picture import compose
from tests.mesh.console import statuses
from tests.mesh.loopback import Cluster, crash, eventually

NAMES = ("alpha", "bravo", "charlie")


def settings(broker: Broker) -> ClientConfig:
    return ClientConfig(url=broker.urls[0])


async def ask(broker: Broker, **question: str) -> Answers:
    async with connected(settings(broker)) as client:
        return await ask_all(client, question, 1.0)


@pytest.mark.virtual
async def test_clients_and_topics_of_all_brokers_are_listed() -> None:
    async with Cluster() as cluster:
        alpha, bravo, _ = brokers = await cluster.mesh(*NAMES)
        await eventually(lambda: all(len(each.members()) == 3 for each in brokers), "all know all")
        async with (
            Client(alpha.urls[0], name="desk") as desk,
            Client(bravo.urls[0], name="worker") as worker,
            desk.subscribe("news.#"),
            worker.subscribe("news.#", "jobs.*", answers=True),
        ):
            await desk.publish("jobs.1", b"x")
            answers = await ask(alpha, look="clients")
            named = {row.record["name"]: row for row in client_rows(answers.documents)}
            assert named["desk"].broker == "alpha" and named["worker"].broker == "bravo"
            assert named["worker"].record["patterns"] == ["news.#", "jobs.*"]
            assert not answers.silent and cut(answers.documents, "clients") == 0
            before = (await ask(alpha, look="topics")).documents
            after = (await ask(alpha, look="topics")).documents
            topics = {row.pattern: row for row in topic_rows(after, before, 2.0)}
            assert topics["jobs.*"].messages_s is None, "the worker has two patterns in one subscription"
            assert set(topics) == {"news.#", "jobs.*"}, "what brokers themselves answer is left out"
            assert (topics["news.#"].listen, topics["news.#"].answer) == (1, 1)
            assert topics["news.#"].brokers == ("alpha", "bravo")


@pytest.mark.virtual
async def test_a_trace_names_the_receivers_of_a_topic_and_the_links_to_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Cluster() as cluster:
        alpha, bravo, _ = brokers = await cluster.mesh(*NAMES)
        await eventually(lambda: all(len(each.members()) == 3 for each in brokers), "all know all")
        async with Client(bravo.urls[0], name="worker") as worker, worker.subscribe("jobs.*"):
            await asyncio.sleep(1)
            assert await looking._trace(settings(alpha), "jobs.1", None, False) == ExitCode.OK
            said = capsys.readouterr().out.splitlines()
            assert said[0] == "jobs.1" and said[1] == "  alpha takes it from the publisher"
            assert said[2].startswith("    to bravo: round trip ")
            assert said[3].startswith("      worker (tcp://") and said[3].endswith(" by jobs.*")
            assert said[4] == "    level stored: nobody keeps it"
            await looking._trace(settings(alpha), "nothing", None, True)
            document = json.loads(capsys.readouterr().out)
            assert document["schema"] == 1 and document["steps"][1] == {
                "depth": 1,
                "text": "nobody wants it",
                "fault": True,
            }


@pytest.mark.virtual
async def test_events_are_followed_over_the_death_of_the_broker_that_was_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Cluster() as cluster:
        alpha, *_ = brokers = await cluster.mesh(*NAMES)
        await eventually(lambda: all(len(each.members()) == 3 for each in brokers), "all know all")
        following = asyncio.create_task(looking._events(settings(alpha), True, 1.0, False))
        rows = asyncio.create_task(looking._events(settings(brokers[1]), True, 1.0, True))
        await asyncio.sleep(5)
        await crash(alpha)
        await asyncio.sleep(40)
        for task in (following, rows):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    said = capsys.readouterr().out.splitlines()
    text = [line for line in said if not line.startswith("{")]
    assert sum("alpha suspect → dead" in line for line in text) == 1
    found = [json.loads(line) for line in said if line.startswith("{")]
    assert all(row["schema"] == 1 for row in found)
    keys = [(row["node"], row["boot"], row["seq"]) for row in found]
    assert len(keys) == len(set(keys)), "each row once"
    assert any(row.get("to_state") == "dead" for row in found)


@pytest.mark.virtual
async def test_an_older_mesh_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Broker(name="alpha", listen="tcp://127.0.0.1:7770") as broker:
        monkeypatch.setattr(
            broker._node.exchange.looking, "answer", lambda body: b'{"id": "1", "error": "?"}'
        )
        async with connected(settings(broker)) as client:
            with pytest.raises(CommandFailed, match="older version"):
                await looking._ask(client, settings(broker), {"look": "clients"})


def test_tables_and_documents(capsys: pytest.CaptureFixture[str]) -> None:
    documents = [
        {"id": "1", "broker": "alpha", "topics": [{"pattern": "a.#", "listen": 2}, {"pattern": "$sys.x"}, 3]}
    ]
    rows = topic_rows(documents)
    records = [row._asdict() for row in rows]

    def show(**form: bool) -> str:
        form = {"json": False, "jsonl": False, **form}
        assert looking._show("topics", records, looking.TOPIC_COLUMNS, rows, (), more=1, **form) == 0
        return capsys.readouterr().out

    assert show().splitlines() == [
        "pattern msgs/s bytes/s listen answer at brokers",
        "a.#          -       -      2      0 alpha     ",
        "1 more are not shown",
    ]
    assert json.loads(show(json=True)) == {
        "schema": 1,
        "topics": [{**records[0], "brokers": ["alpha"]}],
        "more": 1,
        "silent": [],
    }
    assert json.loads(show(jsonl=True)) == {"schema": 1, **records[0], "brokers": ["alpha"]}
    with pytest.raises(FlagError):
        show(json=True, jsonl=True)
    with pytest.raises(CommandFailed, match="no answer from beta"):
        looking._show("topics", records, looking.TOPIC_COLUMNS, rows, ("beta",), False, False, 0)


def test_rates_of_topics_are_those_of_all_subscribers_together() -> None:
    def answer(broker: str, **counts: int | None) -> dict[str, Any]:
        record = {"pattern": "news.#", "listen": 1, "answer": 0, **counts}
        return {"id": broker, "broker": broker, "topics": [record]}

    before = [answer("a", messages=100, bytes=1000), answer("b", messages=0, bytes=0)]
    after = [answer("a", messages=300, bytes=5000), answer("b", messages=20, bytes=100)]
    (row,) = topic_rows(after, before, 2.0)
    assert (row.messages_s, row.bytes_s) == (110.0, 2050.0)
    for unknown in (
        topic_rows(after),
        topic_rows(after, before[:1], 2.0),
        topic_rows(before, after, 2.0),
        topic_rows([after[0], answer("b", messages=None, bytes=None)], before, 2.0),
        topic_rows([answer("a"), after[1]], before, 2.0),
    ):
        assert (unknown[0].messages_s, unknown[0].bytes_s) == (None, None)


def test_a_way_without_a_link_and_a_slow_subscriber_are_faults() -> None:
    picture = compose(statuses.calm())
    taker = {
        "kind": "session",
        "name": "slow",
        "address": "tcp://h:1",
        "pattern": "a",
        "dropped": 7,
        "waiting": 3,
    }
    entry = {
        "id": picture.connected,
        "broker": "alpha",
        "takers": [taker, "no taker"],
        "takers_count": 2,
        "held": True,
        "next": [{"id": "x", "broker": "beta", "via": None}, {"id": "y", "broker": "gamma", "via": "delta"}],
        "next_count": 2,
        "durable": [{"home": "beta", "names": ["mail"]}],
    }
    assert lines(way([entry], picture, ["gamma"])) == [
        "  alpha takes it from the publisher",
        "!   messages wait, since it does not know yet who wants what",
        "!   slow (tcp://h:1) by a: 3 waiting, 7 dropped",
        "    and 1 more subscriber",
        "!   to beta: no link, so that it is dropped (no_link)",
        "    to gamma: by way of delta",
        "!     it did not answer",
        "    level stored: kept for mail at beta",
    ]
    assert lines(way([], picture, [])) == ["! the connected broker did not answer"]


def test_a_message_is_missed_where_clients_want_its_topic() -> None:
    answers = [
        {"id": str(n), "broker": f"b{n}", "heard": came} for n, came in enumerate((True, False, None, 3))
    ]
    ways = [{"id": "1", "takers": [{"name": "x"}]}, {"id": "2", "takers": []}]
    assert lines(heard(answers, ways)) == [
        "  b0: it came here",
        "! b1: no record of it; its clients want the topic",
        "  b2: no record of its publisher",
        "  b3: no record of its publisher",
        f"  {NO_RECORD}",
    ]
    assert lines(heard(answers[:1], ways)) == ["  b0: it came here"]
    assert read_id("00000000000000ff-1a-7") == MessageId(255, 26, 7)
    assert read_id("news.uk") is None and read_id("00000000000000ff-1a-7-8") is None
