"""The documents for a page: bounded, printable, and right about rates, links, changes and trouble."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh import trouble
from mesh.http import overview
from mesh.http.overview import BROKERS_MAX, HISTORY_MAX, NEWS_MAX, Overview
from tests.mesh.console import statuses
from tests.mesh.console.statuses import broker_id, changed, link, member, status


def frame(
    answers: list[dict[str, Any]],
    silent: tuple[str, ...] = (),
    made: Overview | None = None,
    now: float = 0.0,
) -> dict[str, Any]:
    bodies = [json.dumps(answer).encode() for answer in answers]
    document = (made or Overview()).document(bodies, silent, now=now, wall_s=now, interval_s=2.0)
    found = json.loads(document)
    assert isinstance(found, dict)
    return found


def named(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in found["brokers"] if each["name"] == name)


def test_a_calm_mesh_has_no_trouble() -> None:
    found = frame(statuses.calm())
    assert found["trouble"] == [] and found["links_up"] == 10 and found["links_bad"] == 0
    assert len(found["links"]) == 10 and {each[2] for each in found["links"]} == {"whole"}
    assert found["schema"] == 1 and found["connected"] == broker_id("alpha")


def test_a_death_is_shown_with_its_history() -> None:
    found = frame(statuses.after_a_kill(), ("beta",))
    beta = named(found, "beta")
    assert beta["state"] == "dead" and beta["in_s"] is None
    assert [change[1] for change in beta["changes"]] == ["suspect", "dead"], "four reports are one change"
    assert {"level": "bad", "text": "beta is dead or cut off"} in found["trouble"]
    assert any("612 ms late" in each["text"] for each in found["trouble"])


def test_a_split_mesh_names_the_brokers_of_each_part() -> None:
    found = frame(statuses.split())
    assert [len(part) for part in found["parts"]] == [3, 2]
    assert any(
        "split into 2 parts: alpha, beta, gamma; delta, epsilon" in e["text"] for e in found["trouble"]
    )


def test_a_pair_without_a_link_is_drawn_as_one() -> None:
    answers = statuses.calm()
    for this, other in ((0, 1), (1, 0)):
        answers[this]["members"][other]["link"] = None
    found = frame(answers)
    assert [each[2] for each in found["links"]].count("missing") == 1 and found["links_missing"] == 1
    assert [each["text"] for each in found["trouble"]] in (
        ["no link: alpha - beta"],
        ["no link: beta - alpha"],
    )


def test_drops_are_a_rate_and_a_restart_is_no_negative_one() -> None:
    made = Overview()
    totals = statuses.status()["totals"]
    seen = []
    for now, dropped in ((0.0, 100), (2.0, 300), (4.0, 300), (6.0, 5)):
        answers = [status("alpha", totals={**totals, "dropped": dropped})]
        seen.append(frame(answers, made=made, now=now))
    assert [named(each, "alpha")["drops_s"] for each in seen] == [None, 100.0, 0.0, None]
    assert seen[1]["trouble"][0] == {"level": "bad", "text": "alpha drops 100 messages a second"}
    assert not any("drops" in each["text"] for each in seen[2]["trouble"])


def test_words_of_others_are_printable() -> None:
    wild = "be\u202eta\x1b]0;x\x07"
    answers = [status("alpha", [member("alpha", is_self=True), member("beta") | {"name": wild}])]
    answers[0]["events"] = [changed("alpha", 1, "10:00:00.000000", "beta", "alive", "dead", "\x1b[31m")]
    text = json.dumps(frame(answers), ensure_ascii=False)
    assert "\\u202e" in text.replace("\\\\", "\\") and "\u202e" not in text and "\x1b" not in text
    assert "\\u001b" not in text


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"id": 5}', b"[" * 100_000, b"\xff"])
def test_answers_that_are_no_status_are_left_out(body: bytes) -> None:
    good = json.dumps(status("alpha")).encode()
    found = json.loads(Overview().document([good, body], (), now=0, wall_s=0, interval_s=2))
    assert named(found, "alpha")["answered"]


def test_a_large_mesh_shows_brokers_in_trouble_and_counts_the_rest() -> None:
    members = [member("alpha", is_self=True), *(member(f"b{number:04}") for number in range(999))]
    members[900]["state"] = "dead"
    found = frame([status("alpha", members)])
    assert len(found["brokers"]) == BROKERS_MAX and found["hidden"] == 1000 - BROKERS_MAX
    assert named(found, "b0899")["state"] == "dead" and named(found, "alpha")
    assert len(json.dumps(found)) < 200_000


def test_the_history_of_rates_is_bounded_to_a_few_minutes() -> None:
    """For a page left open, the broker keeps a bounded past; `test_day` has a whole day."""
    made = Overview()
    sizes = []
    for number in range(HISTORY_MAX + 50):
        frame([status("alpha")], made=made, now=2.0 * number)
        sizes.append(len(made.past()))
    assert {len(samples) for samples in made.history.values()} == {HISTORY_MAX}
    assert max(sizes) < sizes[HISTORY_MAX] + 50


def test_a_broker_that_is_forgotten_is_forgotten_here_too() -> None:
    made = Overview()
    frame([status("alpha")], made=made)
    frame([status("alpha", [member("alpha", is_self=True)])], made=made, now=2.0)
    assert list(made.history) == [broker_id("alpha")]


def test_news_are_bounded_and_trouble_too() -> None:
    rows = [
        changed(
            "alpha",
            number,
            f"10:{number // 20:02}:{3 * number % 60:02}.000000",
            f"b{number}",
            "alive",
            "dead",
            "x",
        )
        for number in range(100)
    ]
    dropping = [
        status(f"b{number}", id=broker_id(f"b{number}"), events=rows, totals={"dropped": 0})
        for number in range(40)
    ]
    made = Overview()
    frame(dropping, made=made)
    for each in dropping:
        each["totals"] = {"dropped": 1000}
    found = frame(dropping, made=made, now=2.0)
    assert len(found["news"]) == NEWS_MAX
    assert len(found["trouble"]) == trouble.TROUBLES_MAX
    assert found["trouble"][-1]["text"] == "30 more are not shown"
    assert link() and overview.SCHEMA == 1
