"""Operators' questions about the clients and topics of a broker: the answers are right, bounded, and
harmless."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.dataplane import looking
from mesh.wire.session_frames import Role
from tests.mesh.dataplane.neighbourhood import FakeMesh


def ask(mesh: FakeMesh, node: int = 1, **question: Any) -> dict[str, Any]:
    return ask_raw(mesh, json.dumps(question).encode(), node)


def ask_raw(mesh: FakeMesh, body: bytes, node: int = 1) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(mesh.nodes[node].exchange.looking.answer(body))
    assert document["schema"] == 1 and document["id"] == f"{node:016x}"
    return document


def test_clients_are_listed_with_their_patterns_and_counters() -> None:
    mesh = FakeMesh(1)
    reader, writer = mesh.client(name="reader"), mesh.client(name="writer")
    reader.subscribe("news.#", "weather.*")
    mesh.pump()
    writer.publish("news.uk", b"1", b"2")
    mesh.pump()
    answer = ask(mesh, look="clients")
    assert answer["count"] == 2
    one, other = sorted(answer["clients"], key=lambda client: str(client["name"]))
    assert one["patterns"] == ["news.#", "weather.*"] and one["subscriptions"] == 1
    assert one["address"].startswith("tcp://") and one["principal"] == "anonymous" and one["dropped"] == 0
    assert other["published"] == 2 and other["patterns"] == [] and other["kind"] == "session"


def test_the_busiest_of_many_clients_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "CLIENTS_MAX", 2)
    mesh = FakeMesh(1)
    busy = [mesh.client(name=f"c{number}") for number in range(5)][3]
    mesh.pump()
    busy.publish("a", b"x")
    mesh.pump()
    answer = ask(mesh, look="clients")
    assert answer["count"] == 5 and len(answer["clients"]) == 2 and answer["clients"][0]["name"] == "c3"


def test_patterns_are_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = FakeMesh(1)
    for number in range(3):
        mesh.client().subscribe("news.#", role=Role.ANSWERS if number else Role.LISTEN)
    mesh.client().subscribe(*(f"t.{number}" for number in range(20)))
    mesh.pump()
    found = {each["pattern"]: each for each in ask(mesh, look="topics")["topics"]}
    assert found["news.#"] == {"pattern": "news.#", "listen": 1, "answer": 2, "messages": 0, "bytes": 0}
    assert len(found) == 21
    monkeypatch.setattr(looking, "PATTERNS_MAX", 3)
    answer = ask(mesh, look="topics")
    assert answer["count"] == 21 and answer["topics"][0]["pattern"] == "news.#" and len(answer["topics"]) == 3


def test_messages_to_the_subscribers_of_a_pattern_are_known_without_being_counted() -> None:
    mesh = FakeMesh(1)
    readers = [mesh.client() for _ in range(3)]
    for reader in readers[:2]:
        reader.subscribe("news.#")
    readers[2].subscribe("weather.#", "sport.#")
    writer = mesh.client()
    mesh.pump()
    for number in range(500):
        writer.publish("news.uk", b"%03d" % number)
        mesh.pump()
    found = {each["pattern"]: each for each in ask(mesh, look="topics")["topics"]}
    assert found["news.#"]["messages"] == 1000 and found["news.#"]["bytes"] > 1000 * len("news.uk000")
    assert found["sport.#"]["messages"] is found["weather.#"]["bytes"] is None


def test_the_route_of_a_topic_names_local_takers_and_other_brokers() -> None:
    mesh = FakeMesh(2)
    mesh.client(1, "here").subscribe("news.#")
    mesh.client(2, "there").subscribe("news.uk")
    mesh.pump()
    answer = ask(mesh, look="way", topic="news.uk")
    assert [(taker["name"], taker["pattern"]) for taker in answer["takers"]] == [("here", "news.#")]
    (hop,) = answer["next"]
    assert hop["id"] == f"{2:016x}" and hop["via"] is not None and hop["lost"] == 0
    assert answer["durable"] == [] and answer["held"] is False and answer["next_count"] == 1
    mesh.unlink(1, 2)
    (hop,) = ask(mesh, look="way", topic="news.uk")["next"]
    assert hop["via"] is None, "there is no link, so that what is published is dropped"
    assert ask(mesh, look="way", topic="other")["takers"] == []


def test_each_broker_says_whether_it_had_a_message() -> None:
    mesh = FakeMesh(2)
    mesh.client(1, "here").subscribe("news.#")
    writer = mesh.client(1)
    mesh.pump()
    writer.publish("news.uk", b"1", b"2", level=1)
    mesh.pump()
    (session,) = [each for each in ask(mesh, look="clients")["clients"] if each["published"]]
    publisher = int(session["client"], 16)
    ((_, boot),) = [key for key in mesh.nodes[1].exchange._publishers._table if key[0] == publisher]
    record = mesh.nodes[1].exchange._publishers.find(publisher, boot)
    assert record is not None
    last = record._next
    numbers = {"publisher": publisher, "boot": boot}
    heard = [
        ask(mesh, look="message", sequence=sequence, **numbers)["heard"]
        for sequence in range(last - 3, last + 1)
    ]
    assert heard == [False, True, True, False]
    assert ask(mesh, 2, look="message", sequence=1, **numbers)["heard"] is None
    assert len(mesh.nodes[2].exchange._publishers) == 0, "asking makes no record"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "a question is a JSON object"),
        (b"[" * 4000, "a question is a JSON object"),
        (b"x" * 5000, "above the limit of 4096"),
        (b"[]", "a question is a JSON object"),
        (b"{}", "'look' is 'None'"),
        (b'{"look": "passwords"}', "which this broker does not know"),
        (b'{"look": "way"}', "'topic' must be a string"),
        (b'{"look": "way", "topic": "a..b"}', "a..b"),
        (b'{"look": "way", "topic": "a.*"}', "a.*"),
        (b'{"look": "message", "publisher": "x", "boot": 1, "sequence": 1}', "must be whole numbers"),
    ],
)
def test_a_bad_question_is_refused_with_a_sentence(body: bytes, sentence: str) -> None:
    assert sentence in ask_raw(FakeMesh(1), body)["error"]
