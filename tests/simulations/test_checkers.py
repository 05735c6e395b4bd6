"""Each checker passes on what is right, and finds what is broken on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.topics import matches
from simulations import checkers
from simulations.checkers import Outage
from simulations.ledger import Ledger, Outcome, Receipt, Subscribed
from simulations.world import Failure

LIVE = {"alpha": "a1", "beta": "b2"}
WHOLE = {"a1": "alive", "b2": "alive", "c3": "dead"}


def ledger_of(count: int = 5) -> Ledger:
    """A publisher whose every body reaches both subscribers that want it, once and in order."""
    ledger = Ledger()
    ledger.subscriptions += [
        Subscribed("sub-1", 1, ("#",), 0.5),
        Subscribed("sub-2", 1, ("news.*",), 0.5),
        Subscribed("late", 1, ("#",), 3.5),
    ]
    for number in range(count):
        topic = "news.uk" if number % 2 else "orders"
        entry = ledger.publish("pub-1", 1, number, topic, "filler", 1.0 + number)
        entry.outcome = Outcome.ACCEPTED
        ledger.receipts.append(Receipt("sub-1", 1, topic, entry.body, 1.1 + number))
        if topic == "news.uk":
            ledger.receipts.append(Receipt("sub-2", 1, topic, entry.body, 1.1 + number))
    return ledger


def verdicts(ledger: Ledger) -> dict[str, tuple[str, ...]]:
    found = [
        checkers.at_most_once(ledger),
        checkers.genuine(ledger, matches),
        checkers.in_order(ledger),
        checkers.complete(ledger, matches, since_s=1, until_s=10),
    ]
    return {verdict.check: verdict.violations for verdict in found if not verdict.ok}


def test_a_right_record_passes_every_check() -> None:
    assert verdicts(ledger_of()) == {}


def test_an_empty_record_passes_no_check() -> None:
    assert set(verdicts(Ledger())) == {"at_most_once", "genuine", "in_order", "complete"}


def test_a_duplicate_is_found_with_both_times() -> None:
    ledger = ledger_of()
    ledger.receipts.append(Receipt("sub-1", 1, "orders", ledger.receipts[0].body, 9.0))
    found = verdicts(ledger)
    assert "at 1.100 s and again at 9.000 s" in found["at_most_once"][0]
    assert set(found) == {"at_most_once", "in_order"}


def test_another_life_of_a_subscriber_may_get_a_body_again() -> None:
    ledger = ledger_of()
    ledger.subscriptions.append(Subscribed("sub-1", 2, ("#",), 8.0))
    ledger.receipts.append(Receipt("sub-1", 2, "orders", ledger.receipts[0].body, 9.0))
    assert verdicts(ledger) == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"body": b"pub-1/1/0/fillex"}, "nobody published"),
        ({"body": b""}, "nobody published"),
        ({"topic": "news.uk"}, "published on orders"),
        ({"at_s": 0.5}, "before it was published"),
        ({"subscriber": "sub-2"}, "had not subscribed"),
        ({"life": 7}, "had not subscribed"),
    ],
)
def test_a_delivery_that_is_not_genuine_is_found(change: dict[str, Any], sentence: str) -> None:
    ledger = ledger_of()
    first = ledger.receipts[0]
    fields = {name: getattr(first, name) for name in ("subscriber", "life", "topic", "body", "at_s")}
    ledger.receipts[0] = Receipt(**{**fields, **change})
    assert sentence in verdicts(ledger)["genuine"][0]


def test_two_messages_of_one_topic_that_change_places_are_found() -> None:
    ledger = ledger_of()
    orders = [index for index, each in enumerate(ledger.receipts) if each.topic == "orders"]
    one, other = orders[0], orders[1]
    ledger.receipts[one], ledger.receipts[other] = ledger.receipts[other], ledger.receipts[one]
    assert verdicts(ledger)["in_order"] == ("sub-1 got number 0 of pub-1 on orders after number 2",)


def test_a_loss_in_a_quiet_time_is_found_once_for_each_subscriber() -> None:
    ledger = ledger_of()
    lost = ledger.receipts.pop().body
    assert lost
    found = verdicts(ledger)["complete"]
    assert len(found) == 1 and "sub-1 never got number 4" in found[0]


def test_a_publication_that_was_not_accepted_in_a_quiet_time_is_found() -> None:
    ledger = ledger_of()
    next(iter(ledger.publications.values())).outcome = Outcome.UNKNOWN
    assert "is unknown in a time without faults" in verdicts(ledger)["complete"][0]


def test_a_subscriber_that_did_not_stand_throughout_is_owed_nothing() -> None:
    ledger = ledger_of()
    ledger.subscriptions[0].until_s = 2.0
    ledger.receipts = [each for each in ledger.receipts if each.subscriber == "sub-2"]
    assert verdicts(ledger) == {}


def test_a_whole_mesh_has_converged() -> None:
    assert checkers.converged({"alpha": WHOLE, "beta": WHOLE}, LIVE).ok


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        ({"b2": "alive"}, "beta does not see alpha alive"),
        ({"a1": "suspect", "b2": "alive"}, "beta does not see alpha alive"),
        ({**WHOLE, "c3": "alive"}, "beta sees c3 alive, which is not"),
        ({}, "beta does not see beta alive"),
        (None, "shows no table"),
    ],
)
def test_a_mesh_that_has_not_converged_is_found(view: dict[str, str] | None, sentence: str) -> None:
    views = {"alpha": WHOLE, "beta": view} if view is not None else {"alpha": WHOLE}
    violations = checkers.converged(views, LIVE).violations
    assert any(sentence in violation for violation in violations)


def test_a_mesh_without_brokers_has_not_converged() -> None:
    assert not checkers.converged({}, {}).ok


def row(to_state: str, subject: str) -> dict[str, Any]:
    return {
        "kind": "mem",
        "node": "n",
        "ts": "2026-01-01T00:00:00Z",
        "reason": "missed",
        "to_state": to_state,
        "subject_name": subject,
    }


def test_a_death_of_an_unharmed_broker_is_found() -> None:
    rows = [row("dead", "harmed"), row("suspect", "alpha"), row("left", "alpha")]
    assert checkers.no_false_deaths(rows, ["alpha"]).ok
    assert (
        "called alpha dead"
        in checkers.no_false_deaths([*rows, row("dead", "alpha")], ["alpha"]).violations[0]
    )
    assert not checkers.no_false_deaths([], ["alpha"]).ok


def outage_rows(noticed_s: dict[str, float]) -> list[dict[str, Any]]:
    """Three brokers, of which alpha is called dead by these others at these times."""
    rows: list[dict[str, Any]] = [
        {"kind": "meta", "op": "start", "node": f"id-{name}", "name": name, "at_s": 0.0}
        for name in ("alpha", "beta", "gamma")
    ]
    rows += [
        {"kind": "mem", "node": f"id-{name}", "to_state": "dead", "subject_name": "alpha", "at_s": at_s}
        for name, at_s in noticed_s.items()
    ]
    return rows


def test_a_death_that_everyone_notices_in_time_passes() -> None:
    rows = outage_rows({"beta": 13.5, "gamma": 14.0})
    verdict = checkers.deaths_noticed(rows, [Outage("alpha", 10.0, 20.0)], within_s=6)
    assert verdict.ok and "noticed in 3.50 to 4.00 s" in verdict.looked_at


@pytest.mark.parametrize("noticed", [{"beta": 13.5}, {"beta": 13.5, "gamma": 16.5}, {"beta": 13, "gamma": 9}])
def test_a_death_that_somebody_does_not_notice_in_time_is_found(noticed: dict[str, float]) -> None:
    verdict = checkers.deaths_noticed(outage_rows(noticed), [Outage("alpha", 10.0, 20.0)], within_s=6)
    assert len(verdict.violations) == 1 and verdict.violations[0].startswith("gamma did not call alpha dead")


def test_who_was_away_itself_need_not_notice_and_short_outages_do_not_count() -> None:
    outages = [Outage("alpha", 10.0, 20.0), Outage("gamma", 12.0, 13.0)]
    assert checkers.deaths_noticed(outage_rows({"beta": 13.5}), outages, within_s=6).ok
    unplugged = [Outage("alpha", 10.0, 20.0), Outage("gamma", 30.0, 33.0, log_lost=True)]
    assert checkers.deaths_noticed(outage_rows({"beta": 13.5}), unplugged, within_s=6).ok
    short = [Outage("alpha", 10.0, 12.0)]
    assert "no outage to look at" in checkers.deaths_noticed(outage_rows({}), short, within_s=6).violations[0]


def test_failures_and_escapes_are_found() -> None:
    assert checkers.sound([], []).ok
    failure = Failure(1.0, "alpha", "main ended by an exception", ValueError("no"))
    assert checkers.sound([failure], ["time.time was called", "time.time was called"]).violations == (
        "at 1.000000 s alpha: main ended by an exception: ValueError: no",
        "time.time was called",
    )
