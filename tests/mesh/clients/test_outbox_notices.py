"""What is logged of an outbox that does not drain is said once for each reason that lasts."""

from __future__ import annotations

from mesh.clients.outbox_notices import TOLD_AFTER_S, Standstill


def test_a_reason_is_told_when_it_lasts_and_again_when_it_is_another() -> None:
    it = Standstill("/o")
    assert it.look(0.0, "", 0) == "" and it.due is None
    assert it.look(1.0, "no broker", 3) == "" and it.due == 1.0 + TOLD_AFTER_S
    assert it.look(1.5, "no broker", 3) == ""
    assert it.look(2.0, "no broker", 4) == "the outbox /o does not drain: no broker; 4 message(s) wait in it"
    assert it.look(60.0, "no broker", 4) == "" and it.due is None
    assert it.look(61.0, "nobody keeps t", 4) == "" and it.due == 62.0
    assert "nobody keeps t" in it.look(62.0, "nobody keeps t", 4)
    assert it.look(63.0, "", 4) == "the outbox /o drains again"
    assert it.look(64.0, "", 4) == ""


def test_what_passes_soon_is_not_told() -> None:
    it = Standstill("/o")
    for now in range(10):
        assert it.look(now, "no session", 1) == ""
        assert it.look(now + 0.5, "", 1) == ""


def test_a_reason_that_comes_back_soon_is_not_told_again() -> None:
    it = Standstill("/o")
    it.look(0.0, "a", 1)
    assert it.look(1.0, "a", 1)
    assert it.look(2.0, "b", 1) == ""
    assert it.look(2.5, "a", 1) == "" and it.due is None
