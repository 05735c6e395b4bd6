"""The warnings about an outbox that does not drain come once for each reason that lasts."""

from __future__ import annotations

from mesh.clients.outbox_notices import DRAINS, TOLD_AFTER_S, Standstill, Why


def test_a_lasting_reason_is_reported_and_again_when_it_changes() -> None:
    it = Standstill("/o")
    assert it.look(0.0, DRAINS, 0) == "" and it.due is None
    assert it.look(1.0, Why.of("no broker"), 3) == "" and it.due == 1.0 + TOLD_AFTER_S
    assert it.look(1.5, Why.of("no broker"), 3) == ""
    assert (
        it.look(2.0, Why.of("no broker"), 4)
        == "the outbox /o does not drain: no broker; 4 message(s) wait in it"
    )
    assert it.look(60.0, Why.of("no broker"), 4) == "" and it.due is None
    assert it.look(61.0, Why.of("nobody keeps t"), 4) == "" and it.due == 62.0
    assert "nobody keeps t" in it.look(62.0, Why.of("nobody keeps t"), 4)
    assert it.look(63.0, DRAINS, 4) == "the outbox /o drains again"
    assert it.look(64.0, DRAINS, 4) == ""


def test_a_reason_that_passes_soon_is_not_reported() -> None:
    it = Standstill("/o")
    for now in range(10):
        assert it.look(now, Why.of("no session"), 1) == ""
        assert it.look(now + 0.5, DRAINS, 1) == ""


def test_a_reason_that_comes_back_soon_is_not_reported_again() -> None:
    it = Standstill("/o")
    it.look(0.0, Why.of("a"), 1)
    assert it.look(1.0, Why.of("a"), 1)
    assert it.look(2.0, Why.of("b"), 1) == ""
    assert it.look(2.5, Why.of("a"), 1) == "" and it.due is None


def test_the_same_reason_for_more_topics_is_not_reported_again() -> None:
    """A home that was away caused a new warning with each topic that needed it."""
    it = Standstill("/o")
    one, two = Why("topic a: gone", frozenset(["gone"])), Why("topics a, b: gone", frozenset(["gone"]))
    it.look(0.0, one, 1)
    assert "topic a: gone" in it.look(1.0, one, 1)
    assert it.look(2.0, two, 5) == it.look(9.0, two, 5) == ""
