"""The checks of a run: every invariant whose subject occurs, and the scenario's expectations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulations.evidence import Evidence
from simulations.invariants import ALL, CHECKS, durability, judge, outboxes
from simulations.scenario import Scenario, Workload
from tests.simulations.invariants.histories import (
    ONE,
    expectation,
    judged,
    right_history,
    with_view,
)


def test_a_right_history_passes_all_checks_of_every_run() -> None:
    verdicts = judge(right_history())
    assert [verdict for verdict in verdicts if not verdict.ok] == []
    asked = {check.name for check in ALL if check.default}
    without_subject = {"foreign_input_is_harmless", "deaf_accuse_nobody", "deaf_know_it", "dead_links_end"}
    without_subject |= {check.name for check in (*durability.CHECKS, *outboxes.CHECKS)}  # nothing is stored
    assert {verdict.check for verdict in verdicts} == asked - without_subject
    assert all(verdict.count > 0 for verdict in verdicts)


@pytest.mark.parametrize("check", [check.name for check in ALL])
def test_a_check_without_a_subject_fails_when_it_is_requested(check: str) -> None:
    nothing = Evidence(Scenario("nothing"))
    verdict = CHECKS[check].judge(nothing)
    assert not verdict.ok and verdict.count == 0
    assert expectation(check).check in [
        each.check for each in judge(nothing, [expectation(check)]) if not each.ok
    ]


def test_a_check_without_a_subject_is_silent_unless_it_is_requested() -> None:
    evidence = right_history()
    evidence.lives = [replace(life, ended_s=None, how="") for life in evidence.lives]
    assert "leaves_are_seen" not in [verdict.check for verdict in judge(evidence)]
    asked = judge(evidence, [expectation("leaves_are_seen")])
    assert asked[-1].violations == ("there is no leave seen by another to look at",)


def test_a_mesh_with_clients_must_have_delivered_something() -> None:
    evidence = right_history()
    evidence.ledger.receipts.clear()
    failed = [verdict.check for verdict in judge(evidence) if not verdict.ok]
    assert failed == ["at_most_once", "in_order", "genuine", "complete", "conserved"]
    evidence.scenario = replace(evidence.scenario, workload=Workload(publishers=0))
    assert all(verdict.ok for verdict in judge(evidence))


def test_a_mesh_that_was_never_whole_is_reported_once() -> None:
    evidence = right_history()
    del evidence.phases["held_s"]
    assert [verdict.check for verdict in judge(evidence) if not verdict.ok] == ["converged"]


def test_an_expectation_replaces_the_check_of_every_run() -> None:
    verdicts = judge(right_history(), [expectation("M7", within_s=1.0)])
    assert [verdict.check for verdict in verdicts].count("detected") == 1
    assert not verdicts[-1].ok and verdicts[-1].check == "detected"


def test_a_difference_at_a_single_moment_does_not_count() -> None:
    evidence = right_history()
    with_view(evidence, 18.0, ONE, digest=b"something else", links=(3,), held={3: (2, (("#", 0),))})
    for check in ("one_digest", "degree", "interest_known", "connected"):
        assert judged(evidence, check).ok, check
    with_view(evidence, 22.0, ONE, digest=b"something else")
    assert not judged(evidence, "one_digest").ok  # the last moment has no next
