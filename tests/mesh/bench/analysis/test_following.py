"""How far a follower is behind: the age of its view at every moment, and the command as it is used."""

from __future__ import annotations

import pytest

from mesh.bench.analysis import following
from mesh.bench.analysis.following import BEHIND, BUSY, LOOKS, MEDIAN, Look, ages_of, run_following
from mesh.bench.harness import Figures


def test_a_view_ages_until_the_next_look() -> None:
    """Only its age right after each look was counted, when it is least."""
    looks = [Look(10.0, 2.0), Look(12.0, 3.0), Look(13.0, 1.0)]
    assert ages_of(looks, 0.5) == [2.5, 3.0, 3.5, 4.0, 3.5, 4.0]
    assert ages_of(looks, 60.0) == [4.0, 4.0]


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_follower_is_measured_beside_a_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
    monkeypatch.setattr(following, "WARM_UP", 1)
    told: list[Figures] = []
    run_following(6, 2, 0.1, told.append, None)
    (figures,) = told
    assert sorted(figures) == sorted((MEDIAN, BEHIND, LOOKS, BUSY))
    assert 0 < figures[MEDIAN] <= figures[BEHIND]
    assert figures[LOOKS] >= 1
