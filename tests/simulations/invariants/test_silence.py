"""The checks find a broker that hears nobody and accuses others, or keeps a link on which nothing passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mesh.cluster.membership import State
from simulations.evidence import Evidence, Life
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from tests.simulations.invariants.histories import (
    IDS,
    ONE,
    SECOND_BOOT,
    THREE,
    TWO,
    Log,
    Spoilt,
    cut,
    history,
    judged,
    log_spoilt,
    record,
    spoilt,
    with_view,
)


def _alone(spoil: Callable[[Log], None] = lambda log: None) -> Evidence:
    """Broker-1 is cut off, and all links to it have ended if requested."""
    evidence = history(spoil)
    cut(evidence, 12.5, 20.5, b=())
    for name in IDS:
        with_view(evidence, 18.0, name, links=() if name == ONE else (IDS[TWO], IDS[THREE]))
    with_view(evidence, 18.0, ONE, state="isolated")
    return evidence


def _blocked(spoil: Callable[[Log], None] = lambda log: None) -> Evidence:
    evidence = history(spoil)
    evidence.faults.append(Span(Fault(12.5, "block_io", (ONE,), for_s=8.0), 12.5, 20.5))
    return evidence


def _believes_it_is_ready(evidence: Evidence) -> None:
    with_view(evidence, 18.0, ONE, state="ready")


def _accuses_at(at_s: float, state: str = "dead") -> Callable[[Log], None]:
    return lambda log: log.member(ONE, at_s, TWO, f"alive>{state}")


def _keeps(name: str, other: str) -> Callable[[Evidence], None]:
    return lambda evidence: with_view(evidence, 18.0, name, links=(IDS[other],))


SPOILT: list[Spoilt] = [
    log_spoilt(
        "deaf_accuse_nobody",
        _accuses_at(15.5),
        "broker-1 called broker-2 dead at 15.500 s (by hand), and heard nobody from 12.500 s on",
        right=_alone,
    ),
    log_spoilt("deaf_accuse_nobody", _accuses_at(16.0, "suspect"), "called broker-2 suspect", right=_blocked),
    spoilt(
        "deaf_know_it",
        _believes_it_is_ready,
        "broker-1 is ready at 18.0 s and heard nobody from 12.500 s on",
        right=_alone,
    ),
    spoilt(
        "dead_links_end",
        _keeps(ONE, TWO),
        "broker-1 still has its link to broker-2 at 18.0 s, over which nothing has passed since 12.500 s",
        right=_alone,
    ),
    spoilt("dead_links_end", _keeps(TWO, ONE), "broker-2 still has its link to broker-1", right=_alone),
]


@pytest.mark.parametrize("case", SPOILT, ids=str)
def test_each_kind_of_silence_is_found(case: Spoilt) -> None:
    case.must_be_found()


@pytest.mark.parametrize("fault", ["pause", "stall"])
def test_a_faulty_broker_need_not_know_that_it_is_alone(fault: str) -> None:
    evidence = _alone()
    _believes_it_is_ready(evidence)
    evidence.faults.append(Span(Fault(16.0, fault, (ONE,), value=1.0, for_s=1.0), 16.0, 17.0))
    assert judged(evidence, "deaf_know_it").count == 0


@pytest.mark.parametrize("at_s", [14.9, 20.6])
def test_a_broker_with_answers_in_a_round_or_that_hears_again_may_declare_deaths(at_s: float) -> None:
    assert judged(_alone(_accuses_at(at_s, "suspect")), "deaf_accuse_nobody").ok


def test_a_broker_that_hears_a_later_host_may_declare_others_dead() -> None:
    for came_s, excused in ((12.6, True), (15.6, False)):
        evidence = _alone(_accuses_at(15.5))
        evidence.lives.append(Life("broker-4", 1, "broker-4", came_s, None, "", 4, 14))
        assert judged(evidence, "deaf_accuse_nobody").empty is excused


def test_the_host_of_a_spare_is_cut_off_before_it_starts() -> None:
    evidence = _alone(_accuses_at(18.5))
    evidence.scenario = replace(evidence.scenario, spares=1)
    (spare,) = evidence.scenario.spare_names
    evidence.lives.append(Life(spare, 1, spare, 13.0, None, "", 4, 14))
    assert not judged(evidence, "deaf_accuse_nobody").ok


@pytest.mark.parametrize("deaf", [_alone, _blocked])
def test_a_deaf_broker_with_an_unheard_twin_must_declare_no_deaths(
    deaf: Callable[..., Evidence],
) -> None:
    for spoil, right in ((_accuses_at(15.5), False), (lambda log: None, True)):
        evidence = deaf(spoil)
        evidence.lives.append(Life("twin", 1, "twin", 5.0, None, "", IDS[ONE], 99))
        assert judged(evidence, "deaf_accuse_nobody").ok is right


@pytest.mark.parametrize(
    ("from_s", "until_s", "excused"),
    [(13.0, 14.0, True), (5.0, 12.6, True), (5.0, 12.4, False), (18.1, None, False)],
)
def test_a_link_may_be_to_the_other_of_two_with_one_id(
    from_s: float, until_s: float | None, excused: bool
) -> None:
    """Broker-1 is cut off at 12.5 s and still has a link to the id of broker-2 at 18 s."""
    evidence = _alone()
    _keeps(ONE, TWO)(evidence)
    evidence.lives.append(Life("twin", 1, "twin", from_s, until_s, "killed", IDS[TWO], 99))
    assert judged(evidence, "dead_links_end").ok is excused


def test_a_link_may_be_to_a_twin_that_came_after_the_cut_when_its_original_was_gone() -> None:
    """Broker-2 is killed right before the cut, and its link not given up yet."""
    for from_s, excused in ((13.0, True), (12.45, False)):
        evidence = _alone()
        _keeps(ONE, TWO)(evidence)
        ended = [replace(life, ended_s=12.4) if life.name == TWO else life for life in evidence.lives]
        evidence.lives = [*ended, Life("twin", 1, "twin", from_s, None, "", IDS[TWO], 99)]
        assert judged(evidence, "dead_links_end").ok is excused


def test_a_single_other_broker_may_be_declared_dead() -> None:
    """Broker-3 is away when broker-1 is cut off."""
    evidence = history(_accuses_at(9.5))
    cut(evidence, 6.5, 10.5, b=())
    assert judged(evidence, "deaf_accuse_nobody").empty


@pytest.mark.parametrize("died", [True, False])
def test_a_member_that_was_never_linked_does_not_count_as_audible(died: bool) -> None:
    """Broker-1 still counts a run as living that it never heard. Once broker-3 is dead, it can hear only
    broker-2.
    """
    evidence = _alone(_accuses_at(15.5))
    gone = replace(record(THREE), id=9)
    third = record(THREE, State.DEAD if died else State.ALIVE, boot=SECOND_BOOT)
    for at_s in (13.0, 14.0, 15.0):
        with_view(evidence, at_s, ONE, table=(record(ONE), record(TWO), third, gone))
    verdict = judged(evidence, "deaf_accuse_nobody")
    assert verdict.empty if died else not verdict.ok


def test_a_broker_that_reaches_one_of_the_others_may_declare_the_rest_dead() -> None:
    evidence = history(_accuses_at(16.0))
    cut(evidence, 12.5, 20.5, b=(TWO,))
    assert judged(evidence, "deaf_accuse_nobody").empty


def test_a_link_may_live_as_long_as_rounds_go_by() -> None:
    evidence = history()
    cut(evidence, 12.5, 17.5, b=())
    assert judged(evidence, "dead_links_end").empty


def test_a_broker_that_was_away_may_have_kept_its_link() -> None:
    evidence = _alone()
    _keeps(ONE, TWO)(evidence)
    evidence.faults.append(Span(Fault(14.0, "pause", (ONE,), for_s=3.0), 14.0, 17.0))
    assert judged(evidence, "dead_links_end").ok
