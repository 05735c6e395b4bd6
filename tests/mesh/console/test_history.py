"""Totals, rates and samples over many looks."""

from __future__ import annotations

from typing import Any

from mesh.console.history import RUNS_MAX, SAMPLES_MAX, History
from mesh.console.signs import ASCII, UNICODE
from mesh.console.sparklines import sparkline
from mesh.console.view import head
from mesh.picture import compose
from tests.mesh.console import statuses
from tests.mesh.console.statuses import broker_id, status


def look(published: int, dropped: int = 0, **changes: Any) -> dict[str, Any]:
    answer = status("alpha", **changes)
    totals = answer["totals"] | {"published": published, "dropped": dropped, "delivered": 2 * published}
    return answer | {"totals": totals}


def test_totals_do_not_shrink_when_a_broker_dies_or_starts_again() -> None:
    """The messages that a dead broker had published were missing from the total."""
    past = History()
    past.add(compose(statuses.calm()), 1.0)
    assert past.total("published") == 600_000
    past.add(compose(statuses.after_a_kill()), 2.0)
    assert past.total("published") == 600_000 and past.total("dropped") == 37
    again = status("beta", boot="00000000000000b2")
    again["totals"] = again["totals"] | {"published": 5}
    past.add(compose([*statuses.after_a_kill(), again]), 3.0)
    assert past.total("published") == 600_005
    (_, does) = head(compose(statuses.after_a_kill()), 80, past=past)
    assert "(600k)" in does.plain


def test_the_totals_of_many_past_runs_are_summed_up() -> None:
    past = History()
    for run in range(RUNS_MAX + 50):
        past.add(compose([look(2, boot=f"{run:016x}")]), float(run))
    assert past.total("published") == 2 * (RUNS_MAX + 50) and len(past._runs) == RUNS_MAX


def test_drops_are_a_rate_of_the_same_run() -> None:
    past, id = History(), broker_id("alpha")
    past.add(compose([look(1, 100)]), 1.0)
    assert past.drops_s[id] is None
    past.add(compose([look(1, 150)]), 3.0)
    assert past.drops_s[id] == 25.0
    past.add(compose([look(1, 5, boot="00000000000000b2")]), 4.0)
    assert past.drops_s[id] is None, "a restart is no rate"
    (_, does) = head(compose([look(1, 5)]), 80, past=past)
    assert "dropped 155" in does.plain


def test_published_messages_are_counted_once() -> None:
    """The head said "in 9.99k/s" of 2 000 published: each of five brokers had counted them."""
    answers = statuses.calm()
    for answer in answers:
        published_s = 2000.0 if answer["name"] == "alpha" else 0.0
        rates = {"msgs_in_s": 2000.0, "published_s": published_s, "delivered_s": 400.0}
        answer["rates"] = answer["rates"] | rates
    (_, does) = head(compose(answers), 80)
    assert does.plain.startswith("published 2k/s (600k)  delivered 2k/s")
    assert "in 10k/s" not in does.plain


def test_samples_of_brokers_and_links_are_bounded_and_forgotten_with_them() -> None:
    past = History()
    for second in range(SAMPLES_MAX + 20):
        past.add(compose(statuses.calm()), float(second))
    assert {len(samples) for samples in past.brokers.values()} == {SAMPLES_MAX}
    assert len(past.links) == 10 and {len(samples) for samples in past.links.values()} == {SAMPLES_MAX}
    past.add(compose(statuses.after_a_kill()), 500.0)
    gone = [samples[-1] for link, samples in past.links.items() if broker_id("beta") in link]
    assert len(gone) == 4 and all(sample.rtt_ms is None for sample in gone), "a blank in its line"
    past.add(compose([status("alpha", [statuses.member("alpha", is_self=True)])]), 501.0)
    assert list(past.brokers) == [broker_id("alpha")] and not past.links


def test_a_sparkline_ends_with_the_newest_value_and_keeps_peaks() -> None:
    assert sparkline([0, 1, 2, 4, None, 8], 10, UNICODE) == "▁▂▃▅ █"
    assert sparkline([0, 8, 0, 0, 0, 1], 3, ASCII) == "@_."
    assert sparkline([1.0] * 7, 3, UNICODE) == "███"
    assert len(sparkline(list(range(300)), 40, UNICODE)) <= 40
    assert sparkline([], 5, UNICODE) == "" and sparkline([1.0], 0, UNICODE) == ""
    assert sparkline([0.0, None], 5, ASCII) == "_ "
