"""The gossip of bounded degree: what it finds, and that a split of hundreds ends."""

from __future__ import annotations

from functools import cache

import pytest

from simulations.cores import Striking, build, run
from simulations.cores.running import Outcome, start_all
from simulations.faults import Fault

NODES = 120
HALF = tuple(f"broker-{number}" for number in range(1, NODES // 2 + 1))


def split() -> Outcome:
    return run("gossip", [Fault(1.0, "partition", HALF, for_s=10.0)], nodes=NODES, seed=2, seconds=40)


@cache
def usual_split() -> Outcome:
    return split()


def test_at_rest_every_wire_carries_a_survey_and_an_answer_a_period() -> None:
    field = build("gossip", nodes=50, seed=1)
    start_all(field, "gossip")
    field.run_for(1.0)  # the first rounds begin somewhere in the first period
    before = field.messages
    field.run_for(10.0)
    assert field.messages - before == pytest.approx(10 * 2 * len(field.wires.targets), rel=0.001)
    assert not field.changes


def test_both_sides_of_a_split_find_the_other_dead_and_all_alive_after_it() -> None:
    outcome = usual_split()
    assert outcome.ok, outcome.wrong[:5]
    while_split = {
        (change.observer, change.subject)
        for change in outcome.changes
        if change.to_state == "dead" and change.at_s < 16.0
    }
    field = build("gossip", nodes=NODES, seed=2)
    sides = [name in HALF for name in field.names]
    watched = [
        place  # by somebody of the other side, which by chance not all are
        for place, wires in enumerate(field.wires.of)
        if any(sides[other] != sides[place] for other in wires)
    ]
    assert len(watched) > 0.9 * NODES
    assert while_split == {
        (observer, field.names[place])
        for place in watched
        for observer, side in zip(field.names, sides, strict=True)
        if side != sides[place]
    }


def test_a_split_takes_few_messages_more_than_peace() -> None:
    """It once held a message for each change and each cut wire until the end, and ended for no size above
    some hundreds."""
    peace = run("gossip", nodes=NODES, seed=2, seconds=40)
    assert usual_split().messages < 1.5 * peace.messages


def test_one_bad_link_kills_nobody() -> None:
    outcome = run(
        "gossip", [Fault(1.0, "partition", ("broker-1",), ("broker-2",))], nodes=8, seed=3, seconds=60
    )
    assert "dead" not in {change.to_state for change in outcome.changes}
    assert {change.subject for change in outcome.changes} == {"broker-1", "broker-2"}


def test_a_broker_that_comes_back_empty_takes_up_its_own_last_word() -> None:
    field = build("gossip", nodes=8, seed=4)
    striking = Striking(field)
    start_all(field, "gossip")
    striking.schedule([Fault(at_s, "power_off", ("broker-3",), for_s=8.0) for at_s in (1.0, 21.0)])
    field.run_for(60)
    before = field.messages
    field.run_for(10)
    assert all(state == "alive" for place in range(8) for state in field.core.view(place).values())
    # Surveys and answers only: had tables differed for good, they would be sent in every period.
    assert field.messages - before == 10 * 2 * len(field.wires.targets)


def test_of_many_changes_the_first_are_kept_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = usual_split()
    monkeypatch.setattr("simulations.cores.field.CHANGES_MAX", 100)
    short = split()
    assert short.changes == whole.changes[:100]
    assert (short.changes_seen, short.deaths_seen) == (len(whole.changes), whole.deaths_seen)
    assert set(short.dead) == {change.subject for change in whole.changes if change.to_state == "dead"}
    assert short.history_hash == whole.history_hash
