"""Boots of a broker that others spoke of, and when each of them began."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.analysis.lives.evidence import stays
from tests.mesh.analysis.lives.test_telling import boot, of, said, us


@pytest.mark.parametrize(
    ("state", "boots"), [("alive", ["1", "2"]), ("suspect", ["1", "2"]), ("left", ["1"]), ("dead", ["1"])]
)
def test_only_a_boot_that_others_took_for_running_is_one_more(state: str, boots: list[str]) -> None:
    known = of(boots=[boot("1", 0, 50)], said=[said("b", 60, "2", state, "joined")])

    assert [stay.boot for stay in stays(known)] == boots


def test_a_boot_without_a_log_began_when_the_first_peer_spoke_of_it() -> None:
    words = [said(dst, at, "1", "alive", "restarted") for dst, at in (("b", 12), ("c", 10), ("d", 14))]

    assert [(stay.first, stay.until) for stay in stays(of(said=words))] == [(us(10), us(100) + 1)]


@pytest.mark.parametrize(
    ("reason", "began_before"), [("joined", True), ("restarted", False), ("returned", False)]
)
def test_a_boot_that_a_new_observer_met_may_have_begun_before(reason: str, began_before: bool) -> None:
    """Unless the observer knew an earlier boot of it. The observer started 0.1 s before."""
    known = replace(of(said=[said("b", 10, "1", "alive", reason)]), since=[us(9.9)])

    assert stays(known)[0].truncated is began_before
