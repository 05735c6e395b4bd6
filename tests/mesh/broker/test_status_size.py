"""A status always fits into one answer, names what it leaves out, and costs no link."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mesh import Client
from mesh.broker import report
from mesh.broker.status_encoding import STATUS_BYTES_MAX, encode_status
from simulations import Mesh, World

SUBSCRIPTIONS = 6
PATTERNS = 1000
LONG = "x" * 60
ANSWER_MAX = 960_000
"""Bytes of one answer. A longer one breaks a rule of the link (docs/reference/wire-format.md)."""


def status(**lists: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {"schema": 1, "name": "alpha", "listeners": [], "members": [], "interest": []}
    whole |= {"queues": [], "queues_twice": {}}
    return {**whole, "taps": [], "events": [], "drops": {}, "refused": {}, "omitted": {}, **lists}


def member(number: int, state: str = "alive", **more: Any) -> dict[str, Any]:
    return {"id": f"{number:016x}", "name": f"b-{number}", "state": state, "self": number == 0, **more}


def test_a_status_that_fits_is_encoded_as_it_is() -> None:
    whole = status(interest=["news.#"], members=[member(0), member(1)])
    assert json.loads(encode_status(whole)) == whole


def test_a_status_that_is_too_large_leaves_out_entries_and_counts_them() -> None:
    patterns = [f"{LONG}.{number}" for number in range(40_000)]
    whole = status(interest=patterns)
    data = encode_status(whole)
    shown = json.loads(data)
    assert len(data) <= STATUS_BYTES_MAX < ANSWER_MAX
    assert shown["interest"] == patterns[: len(shown["interest"])] != []
    assert shown["omitted"] == {"interest": 40_000 - len(shown["interest"])}
    assert whole["interest"] == patterns, "the caller's own status is as it was"


class Counted(dict[str, int]):
    """Patterns that count how many of them are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        for pattern in super().__iter__():
            self.looked_at += 1
            yield pattern


def test_a_status_reads_no_more_patterns_than_an_answer_may_have() -> None:
    """Each answer encoded all 64 000 patterns of a broker in 0.2 s, to send the first 1000 of them."""
    patterns = Counted.fromkeys(f"{LONG}.{number}" for number in range(64_000))
    shown = json.loads(encode_status(status(interest=patterns)))
    assert shown["omitted"]["interest"] == 64_000 - len(shown["interest"]) > 60_000
    assert patterns.looked_at <= STATUS_BYTES_MAX // len(LONG)


def test_members_are_left_out_last_and_those_that_are_gone_first() -> None:
    """A host of control characters takes six bytes for each in JSON."""
    hosts = [member(n, "left" if n % 2 else "alive", host="\x1b" * 255) for n in range(1024)]
    data = encode_status(status(interest=[LONG] * 1000, members=hosts))
    shown = json.loads(data)
    assert len(data) <= STATUS_BYTES_MAX
    assert shown["members"][0]["self"]
    assert shown["omitted"]["interest"] > 400
    states = [each["state"] for each in shown["members"]]
    assert 0 < len(states) < 1024 and len(states) + shown["omitted"]["members"] == 1024
    assert states.count("alive") == min(512, len(states))


def test_the_newest_events_and_the_largest_counts_are_kept() -> None:
    rows = [{"kind": "mem", "reason": "r" * 9000, "seq": number} for number in range(100)]
    drops = {f"{LONG * 200}-{number}": number for number in range(100)}
    shown = json.loads(encode_status(status(events=rows, drops=drops)))
    assert [row["seq"] for row in shown["events"]] == list(range(100 - len(shown["events"]), 100))
    assert sorted(shown["drops"].values()) == list(range(100 - len(shown["drops"]), 100))
    assert shown["events"] and shown["drops"]


async def hold_many_patterns(client: Client) -> None:
    for number in range(SUBSCRIPTIONS):
        patterns = [f"{LONG}.{LONG}.{LONG}.{number}.{each}" for each in range(PATTERNS)]
        await client.subscribe(*patterns).__aenter__()


def test_asking_for_the_status_of_a_broker_with_many_patterns_costs_no_link() -> None:
    """Its answer was above the limit, so the broker that had asked cut the link."""
    answers: list[dict[str, Any]] = []

    async def ask(client: Client) -> None:
        survey = await client.survey("$sys.status", b"", deadline=2.0)
        answers.extend(json.loads(answer.body) for answer in survey.answers)

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.client("holder", hold_many_patterns, at="broker-2")
        world.run_for(10)
        assert mesh.broker("broker-2").inspect().exchange.subscriptions == SUBSCRIPTIONS
        up_since = [each.up_since for each in mesh.broker("broker-1").inspect().links]
        mesh.client("asker", ask, at="broker-1")
        world.run_for(5)
        assert sorted(answer["name"] for answer in answers) == ["broker-1", "broker-2"]
        assert {answer["name"]: bool(answer["omitted"]) for answer in answers}["broker-2"]
        assert [each.up_since for each in mesh.broker("broker-1").inspect().links] == up_since
        assert mesh.broker("broker-2").statistics()["omitted"] == {}, "the program itself sees all"
        mesh.finish()


def test_simultaneous_status_requests_get_one_answer_and_later_ones_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixty requests for the status of a broker with many patterns blocked it for 15 s."""
    encoded: list[float] = []

    def encode(status: Mapping[str, Any]) -> bytes:
        encoded.append(status["uptime_s"])
        return encode_status(status)

    monkeypatch.setattr(report, "encode_status", encode)
    uptimes: list[float] = []

    async def ask(client: Client) -> None:
        for _ in range(2):
            replies = await asyncio.gather(*(client.request("$sys.status", b"") for _ in range(60)))
            uptimes.extend(json.loads(reply)["uptime_s"] for reply in replies)
            await asyncio.sleep(report.STATUS_AGE_S)

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        world.run_for(5)
        encoded.clear()
        mesh.run(ask)
        assert len(uptimes) == 120 and len(encoded) == 2 == len(set(uptimes))
