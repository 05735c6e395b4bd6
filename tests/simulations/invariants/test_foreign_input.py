"""X5: what strangers send and what members lie must leave no mark."""

from __future__ import annotations

from collections.abc import Callable

from mesh.membership import State
from simulations.evidence import Evidence
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from tests.simulations.invariants.histories import SECOND_BOOT, Log, judged, record, right_history, with_view

TWO, THREE = "broker-2", "broker-3"


def foreign(
    spoil: Callable[[Log], None] | None = None, *, count: bool = True, kind: str = "garbage"
) -> Evidence:
    evidence = right_history(spoil)
    evidence.faults = [Span(Fault(21.5, kind, (TWO,)), 21.5)]
    if count:
        for at_s in range(22, 26):
            with_view(evidence, float(at_s), TWO, counters={"control_out": 4 * at_s, "refused": 1})
    return evidence


def test_foreign_bytes_that_are_counted_and_change_nothing_are_harmless() -> None:
    assert judged(foreign(), "foreign_input_is_harmless").ok


def test_foreign_bytes_that_are_not_counted_are_found() -> None:
    verdict = judged(foreign(count=False), "foreign_input_is_harmless")
    assert "was not counted" in verdict.violations[0]
    assert judged(foreign(count=False), "foreign_input_is_harmless", counted=0).ok


def test_foreign_bytes_that_cost_a_link_or_change_a_table_are_found() -> None:
    def spoil(log: Log) -> None:
        log.link(TWO, 21.7, THREE, "down")
        log.member(TWO, 21.8, THREE, "alive>dead", sub_inc=3, sub_boot=SECOND_BOOT, via=THREE)

    violations = judged(foreign(spoil), "foreign_input_is_harmless").violations
    assert "the link to broker-3 went down" in violations[0]
    assert "broker-3 became dead" in violations[1]


def test_a_lie_about_a_broker_must_be_refuted() -> None:
    assert judged(foreign(kind="forged_dead"), "foreign_input_is_harmless").ok
    evidence = foreign(kind="forged_dead")
    with_view(evidence, 24.0, THREE, table=(record(THREE, incarnation=3), record(TWO, State.DEAD)))
    violations = judged(evidence, "foreign_input_is_harmless").violations
    assert violations == ("forged_dead about broker-2 at 21.500 s: broker-3 holds it dead later",)
