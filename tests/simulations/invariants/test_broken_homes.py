"""Checks find bugs of homes: durable subscriptions run with an injected bug."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from simulations.faults import Fault
from simulations.runs.playing import Play
from simulations.scenario import Scenario, Workload
from tests.simulations import durable_bugs
from tests.simulations.bugs import PutIn

pytestmark = pytest.mark.long

HOME = "broker-1"
SMALL = Scenario(
    "small",
    brokers=1,
    warm_s=1.0,
    safety_s=5.0,
    quiet_s=1.0,
    workload=Workload(
        publishers=2,
        subscribers=1,
        pause_s=0.15,
        batch_max=3,
        stored_share=0.9,
        durable_subscriptions=2,
        workers=3,
        drop_share=0.05,
        poison_share=0.02,
    ),
)
THREE = replace(SMALL, brokers=3, safety_s=12.0)
NOTHING: tuple[Fault, ...] = ()
SLOW = Fault(0.0, "slow_disk", (HOME,), for_s=5.0, value=0.2)
CRASHES = (SLOW, *(Fault(at_s, "crash", (HOME,), for_s=0.3) for at_s in (1.0, 2.5, 4.0)))
POWER_LOSSES = tuple(replace(each, kind="power_off") if each.kind == "crash" else each for each in CRASHES)
DEATHS = tuple(Fault(at_s, "crash", ("worker-1", "worker-2"), for_s=0.3) for at_s in (1.0, 2.0, 3.0))

DEATH = (Fault(1.0, "crash", (HOME,), for_s=10.0),)
"""One home among three brokers."""


def play(*faults: Fault) -> dict[str, tuple[str, ...]]:
    """The violations by check."""
    scenario = THREE if faults == DEATH else SMALL
    result = Play(replace(scenario, faults=faults), seed=1).run()
    return {verdict.check: verdict.violations for verdict in result.verdicts if not verdict.ok}


@dataclass(frozen=True)
class Proof:
    """With the bug the check finds something; without it the same run passes."""

    check: str
    sentence: str
    bug: PutIn
    faults: tuple[Fault, ...] = NOTHING

    def __str__(self) -> str:
        return f"{self.check}-{getattr(self.bug, '__name__', self.sentence)}"


PROOFS = [
    Proof("stored_is_kept", "acknowledged as stored", durable_bugs.acknowledge_before_commit, CRASHES),
    Proof("stored_is_kept", "acknowledged as stored", durable_bugs.sync_nothing, POWER_LOSSES),
    Proof("stored_is_kept", "neither processed", durable_bugs.settle_at_delivery, DEATHS),
    Proof("stored_is_kept", "in queue-2 at broker-1", durable_bugs.keep_for_the_first),
    Proof("stored_is_kept", "neither processed", durable_bugs.bury_nowhere),
    Proof("stored_is_kept", "at broker-1", durable_bugs.forget_dead_homes, DEATH),
    Proof("settled_once", "had said done", durable_bugs.never_settle, CRASHES),
    Proof("settled_once", "had said done", durable_bugs.forget_what_came, CRASHES),
    Proof("held_once", "has had it in hand since", durable_bugs.deliver_to_all),
    Proof("refused_is_nowhere", "which was refused, from broker-1", durable_bugs.refuse_what_is_kept),
    Proof("work_is_genuine", "was published by nobody", durable_bugs.alter_work),
    Proof("drained", "wait in queue-1 at broker-1", durable_bugs.overlook_some),
]
PROVEN = {proof.check for proof in PROOFS}


@pytest.mark.parametrize("proof", PROOFS, ids=str)
def test_a_bug_is_found_by_the_check_of_its_subject(monkeypatch: pytest.MonkeyPatch, proof: Proof) -> None:
    proof.bug(monkeypatch)
    violations = play(*proof.faults)
    assert proof.check in violations, violations
    assert any(proof.sentence in each for each in violations[proof.check]), violations[proof.check]


@pytest.mark.parametrize("faults", dict.fromkeys(proof.faults for proof in PROOFS), ids=str)
def test_the_runs_of_these_tests_pass_without_a_bug(faults: tuple[Fault, ...]) -> None:
    assert play(*faults) == {}
