"""Brokers that start together on too little processor form a mesh, however slowly, as the scenarios say."""

from __future__ import annotations

import pytest

from mesh.cluster.pace import Pace
from simulations.runs import playing
from simulations.scenarios import scenario_file


def failed(name: str) -> dict[str, tuple[str, ...]]:
    result = playing.play(scenario_file.load(name), seed=1)
    return {each.check: each.violations for each in result.verdicts if not each.ok}


def test_ten_brokers_on_slow_processors_form_a_mesh() -> None:
    assert failed("slow-start") == {}


def test_brokers_without_the_adapted_pace_form_no_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenario needs the special behaviour of a late broker: without it, brokers fail as they once
    did.
    """
    monkeypatch.setattr(Pace, "dials_max", 32)
    monkeypatch.setattr(Pace, "patience", 1.0)
    assert "has links to 2 of 9" in str(failed("slow-start")["members_within"])


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_forty_brokers_that_share_half_a_core_form_a_mesh() -> None:
    """They did not in 150 s."""
    assert failed("forty-on-half-a-core") == {}
