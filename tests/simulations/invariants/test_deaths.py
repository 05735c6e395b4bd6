"""The checks find a death without an excuse, accept an excused one, and count too many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.broker.identity import format_id
from simulations.evidence import Life
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from tests.simulations.invariants.histories import (
    IDS,
    ONE,
    THREE,
    TWO,
    Log,
    Spoilt,
    false_death,
    history,
    judged,
    log_spoilt,
    refused,
    right_history,
    with_view,
)


def _false_death_heard(log: Log) -> None:
    log.member(ONE, 22.0, TWO, "alive>dead", via=THREE)


SPOILT: list[Spoilt] = [
    log_spoilt(
        "no_false_deaths",
        false_death,
        "broker-1 called broker-2 dead at 22.000 s (by hand), though no fault affected it",
    ),
    log_spoilt("no_false_deaths", _false_death_heard, "broker-1 called broker-2 dead at 22.000 s"),
    log_spoilt(
        "nobody_dead", false_death, "broker-1 called broker-2 dead at 22.000 s (by hand)", whom=(ONE, TWO)
    ),
    log_spoilt(
        "deaths_at_most",
        false_death,
        "broker-1 called broker-2 dead 1 times, more than 0",
        most=0,
        whom=(TWO,),
    ),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_a_death_is_excused_by_faults_of_the_dead_or_between_the_two() -> None:
    evidence = right_history(false_death)
    evidence.faults.append(Span(Fault(20, "partition", (ONE,), (TWO,)), 20.0, 21.0))
    assert judged(evidence, "no_false_deaths").ok
    evidence.faults[-1] = Span(Fault(20, "partition", (ONE,), (THREE,)), 20.0, 21.0)
    assert not judged(evidence, "no_false_deaths").ok
    evidence.faults[-1] = Span(Fault(20, "pause", (TWO,)), 20.0, 25.0)
    assert judged(evidence, "no_false_deaths").ok


@pytest.mark.parametrize(
    "mild",
    [
        Span(Fault(20, "pause", (TWO,)), 20.0, 22.0),
        Span(Fault(20, "lossy_link", (ONE,), (TWO,), value=0.1), 20.0, 22.0),
        Span(Fault(20, "slow_link", (ONE,), (TWO,), value=0.05), 20.0, 22.0),
        Span(Fault(20, "slow_link", (ONE,), (TWO,), 2.0, 0.1, (("jitter_s", 0.01),)), 20.0, 22.0),
        Span(Fault(20, "coalesce", (ONE,), (TWO,), value=0.05), 20.0, 22.0),
        Span(Fault(20, "pause", (ONE,)), 19.0, 22.0),
    ],
)
def test_a_mild_fault_excuses_no_death(mild: Span) -> None:
    evidence = right_history(false_death)
    evidence.faults.append(mild)
    assert not judged(evidence, "no_false_deaths").ok


@pytest.mark.parametrize(
    ("skewed", "excused"),
    [
        (Span(Fault(15, "config_skew", (ONE,), value=0.6), 15.0, 23.0), True),
        (Span(Fault(15, "config_skew", (ONE,), value=2.0), 15.0, 23.0), False),
        (Span(Fault(15, "config_skew", (THREE,), value=0.6), 15.0, 23.0), False),
        (Span(Fault(5, "config_skew", (ONE,), value=0.6), 5.0, 11.0), False),
    ],
)
def test_a_pause_is_long_for_a_broker_whose_rounds_are_short(skewed: Span, excused: bool) -> None:
    """Swarm seed 1675881197 with durable subscriptions: 2 s are three rounds of 0.6 s."""
    evidence = right_history(false_death)
    evidence.faults += [skewed, Span(Fault(20, "pause", (TWO,)), 20.0, 22.0)]
    assert judged(evidence, "no_false_deaths").ok is excused


@pytest.mark.parametrize(
    "harsh",
    [
        [Span(Fault(20, "coalesce", (ONE,), (TWO,), value=2.0), 20.0, 22.0)],
        [Span(Fault(20, "slow_link", (ONE,), (TWO,), 2.0, 0.1, (("jitter_s", 0.05),)), 20.0, 22.0)],
        [Span(Fault(20, "partition", (), (TWO,)), 20.0, 22.0)],
        [Span(Fault(20, "partition", (TWO,), ()), 20.0, 22.0)],
        [Span(Fault(20, "isolate", (THREE,), (TWO,)), 20.0, 22.0)],
    ],
    ids=lambda spans: f"{spans[0].fault.kind}-{spans[0].fault.a}",
)
def test_a_fault_that_stops_heartbeats_of_either_side_excuses_a_death(harsh: list[Span]) -> None:
    evidence = history(false_death)
    evidence.faults += harsh
    assert judged(evidence, "no_false_deaths").ok


def stalls(name: str, from_s: float, *, every_s: float, times: int, for_s: float = 0.5) -> list[Span]:
    starts = [from_s + number * every_s for number in range(times)]
    return [Span(Fault(start_s, "stall", (name,), value=for_s), start_s) for start_s in starts]


def test_silences_that_leave_no_time_between_them_are_one() -> None:
    evidence = history(false_death)
    evidence.faults += stalls(TWO, 19.0, every_s=0.6, times=5)
    assert judged(evidence, "no_false_deaths").ok
    evidence = history(false_death)
    evidence.faults += stalls(TWO, 18.0, every_s=1.2, times=4)
    assert not judged(evidence, "no_false_deaths").ok


def test_stalls_of_two_faults_add_up_since_a_process_does_one_thing_at_a_time() -> None:
    """In each second the one takes 0.4 and the other 0.7."""
    hogged = stalls(TWO, 18.5, every_s=1.0, times=4, for_s=0.4)
    starved = stalls(TWO, 18.5, every_s=0.1, times=35, for_s=0.07)
    for spans, excused in ((hogged, False), (starved, False), ([*hogged, *starved], True)):
        evidence = history(false_death)
        evidence.faults += sorted(spans, key=lambda span: span.start_s)
        assert judged(evidence, "no_false_deaths").ok is excused


def test_stalls_wait_while_their_process_is_paused() -> None:
    """Neither the pause nor the stalls alone excuse a death."""
    paused = [Span(Fault(18.5, "pause", (TWO,)), 18.5, 20.3)]
    starved = stalls(TWO, 18.5, every_s=0.1, times=35, for_s=0.07)
    for spans, excused in ((paused, False), (starved, False), ([*paused, *starved], True)):
        evidence = history(false_death)
        evidence.faults += spans
        assert judged(evidence, "no_false_deaths").ok is excused


def test_a_stall_ends_with_its_process() -> None:
    evidence = history(false_death)
    evidence.faults += [Span(Fault(3.0, "stall", (THREE,), value=60.0), 3.0)]
    evidence.rows = [
        {**row, "subject": format_id(3), "subject_name": THREE} if row["at_s"] == 22.0 else row
        for row in evidence.rows
    ]
    assert not judged(evidence, "no_false_deaths").ok


def test_a_death_without_a_first_row_is_excused_by_a_lost_log() -> None:
    """Broker-1, which was healthy, learned of it. A killed broker loses its last rows."""
    for changes, excused in (
        ({"log_lost": True}, True),
        ({"how": "killed", "ended_s": 21.5}, True),
        ({"how": "killed", "ended_s": 11.5}, False),
        ({"how": "killed", "ended_s": 31.0}, False),
        ({}, False),
    ):
        evidence = history(_false_death_heard)
        evidence.faults.append(Span(Fault(17, "partition", (TWO,), (THREE,)), 17.0, 21.0))
        evidence.lives[-1] = replace(evidence.lives[-1], **changes)
        assert judged(evidence, "no_false_deaths").ok is excused


def test_a_killed_client_does_not_count_as_the_source_of_a_death() -> None:
    evidence = history(_false_death_heard)
    evidence.faults.append(Span(Fault(17, "partition", (TWO,), (THREE,)), 17.0, 21.0))
    evidence.lives.append(Life("sub-9", 1, THREE, 1.0, 22.5, "killed"))
    assert not judged(evidence, "no_false_deaths").ok


@pytest.mark.parametrize(("kind", "until_s"), [("stall", None), ("pause", 21.0)])
def test_a_fault_of_a_broker_that_is_down_excuses_no_death_in_its_next_life(
    kind: str, until_s: float | None
) -> None:
    """Broker-3 is down from 4 to 11 s."""
    evidence = history(lambda log: log.member(ONE, 18.5, THREE, "alive>dead"))
    evidence.faults += [Span(Fault(5.0, kind, (THREE,), value=60.0), 5.0, until_s)]
    assert not judged(evidence, "no_false_deaths").ok


def test_the_time_in_which_two_cannot_hear_each_other_counts() -> None:
    """Two seconds of the one and then one of the other are three; the accuser's own silence is no excuse."""
    for name, excused in ((TWO, True), (ONE, False)):
        evidence = history(false_death)
        evidence.faults += [
            Span(Fault(19.0, "pause", (name,)), 19.0, 21.0),
            Span(Fault(21.0, "block_io", (ONE,)), 21.0, 22.0),
        ]
        assert judged(evidence, "no_false_deaths").ok is excused


def test_trouble_too_short_for_a_death_excuses_none_between_two_that_stayed_linked() -> None:
    """For example a reset two seconds ago, after which the link was up again at once."""
    reset = Span(Fault(20, "reset", (ONE,), (TWO,)), 20.0)
    evidence = history(false_death)
    evidence.faults.append(reset)
    assert not judged(evidence, "no_false_deaths").ok
    with_view(evidence, 21.0, ONE, links=(3,))
    assert judged(evidence, "no_false_deaths").ok


def test_a_broker_deaf_while_it_declares_a_death_is_excused() -> None:
    for until_s, excused in ((23.0, True), (21.9, False)):
        evidence = history(false_death)
        evidence.faults.append(Span(Fault(18, "block_io", (ONE,)), 18.0, until_s))
        assert judged(evidence, "no_false_deaths").ok is excused


@pytest.mark.parametrize("name", [ONE, TWO])
@pytest.mark.parametrize(
    ("from_s", "until_s", "excused"),
    [(15.0, None, True), (5.0, 12.1, True), (5.0, 11.9, False), (22.1, None, False)],
)
def test_two_brokers_with_one_id_are_excused_until_others_know_only_one(
    name: str, from_s: float, until_s: float | None, excused: bool
) -> None:
    """Broker-1 declares broker-2 dead at 22 s."""
    evidence = history(false_death)
    evidence.lives.append(Life("twin", 1, "twin", from_s, until_s, "killed", IDS[name], 99))
    assert judged(evidence, "no_false_deaths").ok is excused


def test_a_fault_of_a_vanished_twin_excuses_no_death_of_the_other() -> None:
    """The row has the name of the one that was killed at 5 s and never came back; its id lives on."""
    for ended_s, excused in ((5.0, False), (21.0, True)):
        evidence = history(lambda log: log.member(ONE, 22.0, TWO, "alive>dead"))
        lives = [life for life in evidence.lives if life.name != TWO]
        killed = Life(TWO, 1, TWO, 0.2, ended_s, "killed", IDS[TWO], 12)
        evidence.lives = [*lives, killed, Life("twin", 1, "twin", 3.0, None, "", IDS[TWO], 99)]
        assert judged(evidence, "no_false_deaths").ok is excused


def test_the_death_of_an_abandoned_id_is_true() -> None:
    """A broker that lost its state came back under another id, and the old one is declared dead late."""
    evidence = right_history(false_death)
    evidence.lives = [replace(life, id=22) if life.name == TWO else life for life in evidence.lives]
    assert judged(evidence, "no_false_deaths").ok


def test_a_faulty_broker_may_err_where_only_healthy_ones_are_judged() -> None:
    evidence = right_history(false_death)
    evidence.faults.append(Span(Fault(20, "partition", (ONE,), (THREE,)), 20.0, 21.0))
    assert judged(evidence, "no_false_deaths", observers="healthy").ok


def test_deaths_are_allowed_only_for_the_named_broker() -> None:
    refused(judged(history(), "nobody_dead"), "broker-1 called broker-3 dead at 7.100 s")
    assert judged(history(), "nobody_dead", by=(THREE,)).ok


def test_deaths_of_a_member_at_one_observer_are_bounded() -> None:
    assert judged(history(), "deaths_at_most", most=1).ok
    refused(judged(history(), "deaths_at_most", most=0), "called broker-3 dead 1 times, more than 0")
    assert judged(history(), "deaths_at_most", most=0, whom=(ONE,)).ok


@pytest.mark.parametrize("whom", [("sub-2",), (TWO,)])
def test_a_client_stands_for_its_broker(whom: tuple[str, ...]) -> None:
    assert judged(history(), "nobody_dead", whom=whom).ok
