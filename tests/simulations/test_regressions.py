"""Failures that the swarm found, and that were shrunk and fixed, do not come back.

`mesh simulate shrink` wrote each file; some were tidied by hand. A comment at the top says what the failure
was. Its own seed once failed; others are played too, since any change moves the moments at which events meet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulations.runs import playing, replaying

FOLDER = Path(__file__).parent / "regressions"
FILES = sorted(FOLDER.glob("*.toml"))
OTHERS = (1, 2)


def test_there_are_regressions() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_fixed_failure_stays_fixed(path: Path) -> None:
    failure = replaying.read(path)
    assert failure.scenario.name == path.stem, "a file is called as its scenario"
    for seed in (failure.seed, *OTHERS):
        result = playing.play(failure.scenario, seed=seed)
        assert result.ok, f"seed {seed}: {[each.violations[:3] for each in result.verdicts if not each.ok]}"
